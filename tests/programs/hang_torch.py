"""One of two ranks that train with gloo, and then stand still: `hang_torch.py HOW`.

HOW is what rank 1 does in step 10. late: it sleeps in a loader. barrier: it leaves out a barrier.
calm: nothing, and steps go on until the ranks are killed. Before that step each rank prints
`ready RANK PID`.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

STEP = 10


def load(how, step):
    if step == STEP:
        # One write, so that the lines of both ranks don't mix.
        os.write(1, f"ready {dist.get_rank()} {os.getpid()}\n".encode())
    if step == STEP and how == "late" and dist.get_rank() == 1:
        time.sleep(3600)  # HERE late
    time.sleep(0.02)
    return torch.randn(8, 16)


def main():
    how = sys.argv[1]
    dist.init_process_group("gloo")
    net = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    step = 0
    while True:
        loss = net(load(how, step)).square().mean()
        loss.backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)  # HERE reduces
        if step == STEP and not (how == "barrier" and dist.get_rank() == 1):
            dist.barrier()  # HERE barrier
        optimizer.step()
        optimizer.zero_grad()
        step += 1


main()
