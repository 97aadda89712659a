"""Runs collectives with known bytes on two devices: `collectives.py OUT`. It starts its ranks itself.

With TORCH_NCCL_USE_COMM_NONBLOCKING=1 communicators are made without waiting.
"""

import json
import os
import sys

import torch
import torch.distributed
import torch.multiprocessing

RANKS, STEPS, ELEMENTS = 2, 10, 1 << 20


def rank(number, out):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531", "RANK": str(number), "WORLD_SIZE": str(RANKS),
                   "LOCAL_RANK": str(number)}
    torch.cuda.set_device(number)
    torch.distributed.init_process_group("nccl", rank=number, world_size=RANKS)
    numbers = torch.ones(ELEMENTS, device="cuda")
    for _ in range(STEPS):
        torch.distributed.all_reduce(numbers)
    half = torch.distributed.new_group([0, 1])
    torch.distributed.broadcast(numbers, 0, group=half)
    torch.cuda.synchronize()
    if number == 0:
        with open(out, "w", encoding="utf-8") as file:
            json.dump({
                "ranks": RANKS, "nccl": ".".join(map(str, torch.cuda.nccl.version())),
                "collectives": [
                    {"name": "all_reduce", "count": STEPS * RANKS, "bytes": ELEMENTS * 4},
                    {"name": "broadcast", "count": RANKS, "bytes": ELEMENTS * 4},
                ],
            }, file, indent=1)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, args=(sys.argv[1],), nprocs=RANKS)
