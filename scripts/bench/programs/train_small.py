"""train_small.py STEPS [profile]: an MLP of small operators, trained on the CPU; with torch.profiler where asked for.

Prints the CPU time of the thread for the quickest quarter of blocks of ten steps, ns a step; and with torch.profiler, which
is needed for that, operators a step.
"""

import sys
import time

import torch

BLOCK = 10


def main(steps, profile):
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

    for _ in range(3):
        block()
    if not profile:
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
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
