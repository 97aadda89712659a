"""A job with NVIDIA's cupti-python as its profiler: cupti_python.py WORK_LIBRARY. Prints the content of each of its
sessions, which is the same with tprof and without."""

import collections
import ctypes
import sys

from cupti import cupti

library = ctypes.CDLL(sys.argv[1])
Kind = cupti.ActivityKind
KINDS = (Kind.CONCURRENT_KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.RUNTIME)
BUFFER_BYTES = 8 << 20
seen, wrong = collections.Counter(), []


def work(kernels):
    if error := library.work(kernels):
        sys.exit(f"CUDA error {error}")


def completed(records):
    for record in records:
        seen[Kind(record.kind).name] += 1
        # Only the session's own work is printed, in order of time.
        if not begin <= record.start <= record.end:
            wrong.append(record.kind)


work(1)
begin = cupti.get_timestamp()
cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), completed)
for session in range(3):
    seen.clear()
    begin = cupti.get_timestamp()
    for kind in KINDS:
        cupti.activity_enable(kind)
    work(5)
    cupti.activity_flush_all(1)
    for kind in KINDS:
        cupti.activity_disable(kind)
    print(f"session {session}: {sorted(seen.items())}, {len(wrong)} at wrong times")
    work(2)
