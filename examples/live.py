"""Trains on two ranks for a while, to watch with `tprof serve` or `tprof top`. The batches of rank 1
come from a slow disk now and then, and rank 0 waits for them in its collectives.

    tprof run -o live -- torchrun --nproc-per-node 2 examples/live.py [SECONDS]
"""

import sys
import time

import torch
import torch.distributed as dist
import tprof
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 60
STALLS_EACH, STALL = 15, 4  # seconds


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, labels = torch.randn(128, 256), torch.randint(0, 10, (128,))
    begun = time.monotonic()
    next_stall = STALLS_EACH
    going = torch.ones(1)
    while going.item():
        tprof.step()
        time.sleep(0.02)  # a loader that keeps up
        if rank == 1 and time.monotonic() - begun > next_stall:
            tprof.mark("batch from the slow disk")
            time.sleep(STALL)
            next_stall += STALLS_EACH
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tprof.counter("loss", loss.item())
        # Both ranks must stop at the same step: they stop as soon as the time of one is over.
        going.fill_(time.monotonic() - begun < SECONDS)
        dist.all_reduce(going, dist.ReduceOp.MIN)
    dist.destroy_process_group()


main()
