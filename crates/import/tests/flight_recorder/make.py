"""Makes the dumps beside it: python make.py (PyTorch 2.15; README.md says with which paths).

Each scenario runs real processes of gloo. A thread of each writes the process's Flight Recorder dump
while the main thread waits, and ends the process.
"""

import os
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Scenario: ranks, and what else is in the environment.
SCENARIOS = {
    "healthy": (2, {}),
    "late": (3, {}),
    "json": (3, {}),
    "mismatch": (3, {}),
    "sizes": (2, {}),
    "types": (2, {}),
    "stuck": (2, {}),
    "groups": (4, {}),
    "ring": (2, {"TORCH_FR_BUFFER_SIZE": "4"}),
    "sends": (2, {}),
}


def write(how, rank):
    import torch._C._distributed_c10d as c10d

    data = c10d._dump_fr_trace_json() if how == "json" else c10d._dump_fr_trace()
    path = os.path.join(os.environ["OUT"], how, "fr_rank_")
    with open(f"{path}{rank}", "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())
    # The end of a process is an error in those that wait for it.
    while not all(os.path.exists(f"{path}{other}") for other in range(SCENARIOS[how][0])):
        time.sleep(0.1)
        if how == "stuck" and rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(1)
    os._exit(0)


def dump(how, rank):
    time.sleep(4)
    write(how, rank)


def loads():
    time.sleep(60)


def train(how, rank):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    threading.Thread(target=dump, args=(how, rank), daemon=True).start()
    ones = torch.ones(8, 4)
    for _ in range(10 if how == "ring" else 2):
        dist.all_reduce(ones)
    if how in ("late", "json", "ring"):
        if rank == 1:
            loads()
        dist.all_reduce(ones)
    elif how == "mismatch":
        if rank == 1:
            dist.broadcast(ones, src=0)
        dist.all_reduce(ones)
    elif how == "sizes":
        # gloo aborts a process that is sent more than it wants, and doesn't notice less.
        dist.broadcast(torch.ones(16 if rank else 8), src=0)
    elif how == "types":
        dist.all_reduce(ones.int() if rank else ones)
    elif how == "stuck":
        # Rank 1 enters it first, writes its dump, and is stopped.
        if rank == 1:
            dist.all_reduce(ones, async_op=True)
            write(how, rank)
        time.sleep(2)
        dist.all_reduce(ones)
    elif how == "groups":
        pairs = [dist.new_group(ranks, group_desc=f"pair {ranks[0]}") for ranks in ([0, 1], [2, 3])]
        own = pairs[rank // 2]
        dist.all_reduce(ones, group=own)
        if rank == 2:
            loads()
        dist.all_reduce(ones, group=own)
        dist.barrier()
    elif how == "sends":
        if rank == 1:
            dist.send(ones, 0)
            loads()
        dist.recv(ones, 1)
        dist.recv(ones, 1)
    loads()


def main():
    for how, (ranks, more) in SCENARIOS.items():
        if sys.argv[1:] and how not in sys.argv[1:]:
            continue
        os.makedirs(os.path.join(os.environ["OUT"], how), exist_ok=True)
        size = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611", "WORLD_SIZE": str(ranks)}
        started = [
            subprocess.Popen(
                [sys.executable, sys.argv[0], "--rank", how, str(rank)],
                env={**os.environ, **size, "RANK": str(rank), **more},
            )
            for rank in range(ranks)
        ]
        started[0].wait()
        for process in started:
            process.send_signal(signal.SIGCONT)
            process.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        train(sys.argv[2], int(sys.argv[3]))
    else:
        main()
