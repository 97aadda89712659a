"""A job with Triton's Proton as its profiler: proton.py WORK_LIBRARY FOLDER. Prints the content of each of its
sessions, which is the same with tprof and without. Only Proton's own library is used, because Triton itself asks the
driver for functions that the stand-ins lack."""

import ctypes
import json
import sys

from libproton import proton

library = ctypes.CDLL(sys.argv[1])


def work(kernels):
    if error := library.work(kernels):
        sys.exit(f"CUDA error {error}")


def scope(name, kernels):
    number = proton.record_scope()
    proton.enter_scope(number, name)
    work(kernels)
    proton.exit_scope(number, name)


def kernels(node):
    """Yields a scope or kernel, and the kernels below it."""
    metrics = node["metrics"]
    own = metrics["count"] if metrics.get("time (ns)", 0) > 0 else 0
    return node["frame"]["name"], own, [kernels(child) for child in node["children"]]


work(1)
for session in range(3):
    path = f"{sys.argv[2]}/{session}"
    number = proton.start(path, "shadow", "tree", "cupti", "")
    scope("first", 3)
    scope("second", 5)
    proton.finalize(number, "hatchet")
    with open(f"{path}.hatchet", encoding="utf-8") as file:
        print(f"session {session}: {kernels(json.load(file)[0])}")
    work(2)
