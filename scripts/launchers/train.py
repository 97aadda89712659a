"""A rank of torchrun. It adds up the numbers of all ranks with gloo, prints the sum in one line, and ends.

usage: train.py [fail]   fail: rank 1 ends with status 7 before its first restart
"""

import os
import sys
import time

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if sys.argv[1:] == ["fail"] and restart == 0:
    # Rank 1 fails before any connection, because gloo's recovery is not tested. Rank 0 waits until torchrun ends
    # it.
    time.sleep(0.5 if rank == 1 else 60)
    sys.exit(7)
dist.init_process_group("gloo")
total = torch.tensor([rank])
dist.all_reduce(total)
os.write(1, f"rank {rank} of {size}, restart {restart}: sum {int(total)}\n".encode())
dist.destroy_process_group()
