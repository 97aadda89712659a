"""Runs torch.profiler with `schedule(repeat=3)`, and a known amount of work before, within and after
it.

`takeover.py OUT [SECONDS]`: kernels of `sin` run before the profiler, of `cos` within it, and of `tan`
after it, so that their names tell them apart. Then it runs for SECONDS, with a kernel every 10 ms.
"""

import json
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile, schedule

BEFORE = WITHIN_STEP = AFTER = 50
WAIT, WARMUP, ACTIVE, REPEAT = 1, 1, 3, 3
LONGEST_US = 60e6


def resident_kib():
    with open("/proc/self/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def run(function, numbers, count):
    for _ in range(count):
        function(numbers)
    torch.cuda.synchronize()


def kernels_of(profiler, word):
    """Returns how many kernels have this word in their names, and how many of those have impossible
    times."""
    count = implausible = 0
    for event in profiler.events():
        if event.device_type != torch.autograd.DeviceType.CUDA or word not in event.name:
            continue
        count += 1
        implausible += not 0 < event.time_range.elapsed_us() < LONGEST_US
    return {"kernels": count, "implausible": implausible}


def main():
    out, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    numbers = torch.rand(1 << 16, device="cuda")
    run(torch.sin, numbers, BEFORE)
    cycles = []
    plan = schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=REPEAT)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=plan,
        on_trace_ready=lambda profiler: cycles.append(kernels_of(profiler, "cos")),
    ) as profiler:
        for _ in range((WAIT + WARMUP + ACTIVE) * REPEAT):
            run(torch.cos, numbers, WITHIN_STEP)
            profiler.step()
    run(torch.tan, numbers, AFTER)
    resident, ends_at = [resident_kib()], time.monotonic() + seconds
    extra = 0
    while time.monotonic() < ends_at:
        run(torch.tan, numbers, 1)
        extra += 1
        time.sleep(0.01)
        if extra % 100 == 0:
            resident.append(resident_kib())
    found = {
        "torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name(),
        "before": {"word": "sin", "count": BEFORE}, "after": {"word": "tan", "count": AFTER + extra},
        "within": {"word": "cos", "count": WITHIN_STEP * (WAIT + WARMUP + ACTIVE) * REPEAT},
        "cycles": cycles, "kernels_of_a_cycle": WITHIN_STEP * ACTIVE, "wanted_cycles": REPEAT,
        "resident_kib": [*resident, resident_kib()],
    }
    with open(out, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
