"""stretches.py PLAN OUT: runs steps in groups called stretches, and writes the duration of each step.

PLAN is a JSON file: `work` (eager: the transformer of eager_gpt.py; copies: as many calls of the runtime, without
PyTorch), `device`, the `warm` steps before each stretch, its `steps`, and the names of the `stretches`. With `floor`,
the path of the library that the driver loads, CUPTI records in each stretch what `chosen` has for it: `kinds`, `calls`
that are left out of a kind or are all that is recorded of it, and whether buffers come `zeroed`. Without `floor`, all
stretches are the same.
"""

import ctypes
import json
import sys
import time

# As many copies as the transformer has launches.
COPIES, COPY_BYTES, WITHIN_DEVICE = 540, 4096, 3
CALLS = {"runtime": 0, "driver": 1}


def eager(plan):
    """Returns the function that does a step of the transformer, and the one that waits for its end."""
    import torch

    import eager_gpt

    sizes = eager_gpt.ON_DEVICE if plan["device"] == "cuda" else eager_gpt.SMALL
    step = eager_gpt.trainer(plan["device"], sizes)
    wait = torch.cuda.synchronize if plan["device"] == "cuda" else lambda: None
    return step, wait


def copies(plan):
    """Returns the functions for a step of short copies by the named runtime. It looks the runtime's functions up as a
    program does, so it finds the hooks."""
    ctypes.CDLL(plan["cudart"], ctypes.RTLD_GLOBAL)
    cuda = ctypes.CDLL(None)
    memory, stream = ctypes.c_void_p(), ctypes.c_void_p()
    ends = [cuda.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(2 * COPY_BYTES)),
            cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), 1)]
    if any(ends):
        sys.exit(f"the CUDA runtime does not start: {ends}")
    copy, synchronize = cuda.cudaMemcpyAsync, cuda.cudaStreamSynchronize
    copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    synchronize.argtypes = [ctypes.c_void_p]
    to = memory.value + COPY_BYTES

    def step():
        for _ in range(COPIES):
            copy(to, memory, COPY_BYTES, WITHIN_DEVICE, stream)

    return step, lambda: synchronize(stream)


class Floor:
    """Switches the kinds that CUPTI records, through the library that the driver loaded."""

    def __init__(self, path):
        self.library, self.on, self.alone = ctypes.CDLL(path), [], []
        if not self.library.floor_is_set_up():
            sys.exit("the driver did not load the floor, or it found no CUPTI")

    def choose(self, chosen):
        """Makes CUPTI record this from now on. Returns what CUPTI refused."""
        for of, call in self.alone:
            self.library.floor_call(of, call, 0)
        for kind in self.on:
            self.library.floor_kind(kind, 0)
        self.on, self.alone = chosen["kinds"], []
        refused = [f"zeroed: {end}" for end in [self.library.floor_zeroed(int(chosen["zeroed"]))] if end]
        refused += [f"kind {kind}: {end}" for kind in self.on if (end := self.library.floor_kind(kind, 1))]
        for of, calls in chosen["calls"].items():
            on = int(calls["alone"])
            self.alone += [(CALLS[of], call) for call in calls["list"] if on]
            ends = [(call, self.library.floor_call(CALLS[of], call, on)) for call in calls["list"]]
            refused += [f"{of} call {call}: {end}" for call, end in ends if end]
        self.counts()
        return refused

    def counts(self):
        """Returns {what: how much of it CUPTI delivered since the last call}."""
        out = (ctypes.c_uint64 * 3)()
        self.library.floor_settle(out)
        return dict(zip(("records", "bytes", "dropped"), out))


def stretch(steps, step, wait):
    took = []
    for _ in range(steps):
        began = time.perf_counter_ns()
        step()
        wait()
        took.append(time.perf_counter_ns() - began)
    return took


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    step, wait = {"eager": eager, "copies": copies}[plan["work"]](plan)
    stretch(plan["warm"], step, wait)
    floor = Floor(plan["floor"]) if plan.get("floor") else None
    found = []
    for one in plan["stretches"]:
        refused = floor.choose(one["chosen"]) if floor else []
        stretch(plan["warm_each"], step, wait)
        if floor:
            floor.counts()
        began = time.monotonic_ns()
        took = stretch(plan["steps"], step, wait)
        within = {"began_ns": began, "ended_ns": time.monotonic_ns()}
        found.append({"name": one["name"], "step_ns": took, "refused": refused, **within, **(floor.counts() if floor else {})})
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
