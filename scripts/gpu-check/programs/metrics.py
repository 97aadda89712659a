"""Keeps a device's memory busy, then its tensor cores, then one of its multiprocessors: `metrics.py OUT [SECONDS]`.

Each phase is a range of the program. A piece of its work takes milliseconds, so that samples of the device's counters lie within it. Between
two pieces of the last phase the device is idle, so that beginnings of kernels show in the samples.
"""

import json
import sys
import time

import torch

MEMORY_BYTES, SIDE, CYCLES = 1 << 32, 8192, 10_000_000


def main():
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    source = torch.zeros(MEMORY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    matrix = torch.zeros(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    work = {"memory": lambda: target.copy_(source), "tensor": lambda: matrix @ matrix, "latency": lambda: torch.cuda._sleep(CYCLES)}
    for once in work.values():
        once()
    torch.cuda.synchronize()
    # A device is sampled from a second after its first use.
    time.sleep(3)
    for phase, once in work.items():
        with torch.autograd.profiler.record_function(f"phase {phase}"):
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                once()
                torch.cuda.synchronize()
                if phase == "latency":
                    time.sleep(0.003)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"copied_bytes": MEMORY_BYTES, "phases": list(work), "seconds": seconds}, file)


if __name__ == "__main__":
    main()
