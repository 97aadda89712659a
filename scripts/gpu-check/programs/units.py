"""Keeps a device idle, then its memory busy, then its tensor cores: `units.py OUT [SECONDS]`.

Each phase is a range of the program, so that tprof's samples of what the device's units do can be sorted by phase.
"""

import json
import sys
import time

import torch

MEMORY_BYTES, SIDE = 1 << 30, 8192


def main():
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    source = torch.zeros(MEMORY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    matrix = torch.zeros(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    work = {"idle": lambda: time.sleep(0.01), "memory": lambda: target.copy_(source), "tensor": lambda: matrix @ matrix}
    for once in work.values():
        once()
    torch.cuda.synchronize()
    for phase, once in work.items():
        with torch.autograd.profiler.record_function(f"phase {phase}"):
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                for _ in range(10):
                    once()
                torch.cuda.synchronize()
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"phases": list(work), "seconds": seconds}, file)


if __name__ == "__main__":
    main()
