"""train_small.py STEPS [PROFILE [LIBRARY]]: an MLP of small operators, trained on the CPU.

PROFILE is `names` or `shapes` to record with torch.profiler, or `empty` or `empty-shapes` to register the callbacks of
LIBRARY, which do nothing. Prints the CPU time of the thread in ns per step, for the quickest quarter of blocks of ten
steps. With torch.profiler, which counts them, it also prints the operators per step.
"""

import ctypes
import sys
import time
from pathlib import Path

import torch

BLOCK = 10


class Callback(ctypes.Structure):
    """`at::RecordFunctionCallback`."""

    _fields_ = [
        ("begin", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("probability", ctypes.c_double),
        ("scopes", ctypes.c_bool * 10),
        ("needs_inputs", ctypes.c_bool),
        ("needs_outputs", ctypes.c_bool),
        ("needs_ids", ctypes.c_bool),
    ]


def register(library, needs_inputs):
    """Registers the callbacks of a library for all scopes but the one of ranges, as tprof does."""
    ours = ctypes.CDLL(library)
    begin, end = (ctypes.cast(function, ctypes.c_void_p) for function in (ours.begin, ours.end))
    scopes = (ctypes.c_bool * 10)(*[scope != 7 for scope in range(10)])
    add = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))._ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE
    add.argtypes, add.restype = [Callback], ctypes.c_uint64
    add(Callback(begin, end, 1.0, scopes, needs_inputs, False, False))


def main(steps, profile, library):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(9)])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    rows = torch.ones(8, 64)

    def block():
        for _ in range(BLOCK):
            model(rows).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    def blocks():
        took = []
        for _ in range(steps // BLOCK):
            began = time.thread_time_ns()
            block()
            took.append((time.thread_time_ns() - began) / BLOCK)
        took.sort()
        return sum(took[: len(took) // 4]) / (len(took) // 4)

    if library:
        register(library, profile == "empty-shapes")
    for _ in range(3):
        block()
    if not profile or library:
        print(f"step_ns={blocks()}", file=sys.stderr)
        return
    only_cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=only_cpu, record_shapes=profile == "shapes"):
        step_ns = blocks()
    with torch.profiler.profile(activities=only_cpu) as profiler:
        block()
    operators = sum(event.count for event in profiler.key_averages() if not event.is_user_annotation)
    print(f"step_ns={step_ns}\noperators={operators / BLOCK}", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]), *(sys.argv[2:] + [None, None])[:2])
