"""A job of PyTorch that spends its time in one known way, and measures it itself.

As in planted.py, the first argument chooses the way, and `calm` leaves the cause out. `ddp` starts
two ranks of gloo, one of which comes late.
"""

import os
import sys
import time

import torch

WAY = sys.argv[1]
CALM = "calm" in sys.argv[2:]
PASSES = 40
PAUSE_S = 0.03


def expect(**parts):
    for key, seconds in parts.items():
        print(f"expect {key}={seconds:.6f}", flush=True)


class Waited:
    """Measures the wall time minus the CPU time of the block that it surrounds."""

    def __enter__(self):
        self.began = time.monotonic(), time.thread_time()
        return self

    def __exit__(self, *_):
        cpu = time.thread_time() - self.began[1]
        self.seconds = time.monotonic() - self.began[0] - cpu


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 2 * PASSES

    def __getitem__(self, index):
        end = time.thread_time() + (0 if CALM else PAUSE_S)
        while time.thread_time() < end:
            index * index  # SLOW
        return torch.zeros(8)


def victim_takes(batches):
    return next(batches)  # HERE loader


def loader():
    data = torch.utils.data.DataLoader(Slow(), batch_size=2, num_workers=1, prefetch_factor=1)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters())
    batches = iter(data)
    # The first call also waits for the worker's start.
    victim_takes(batches)
    waited = 0.0
    for _ in range(PASSES - 1):
        with Waited() as taking:
            batch = victim_takes(batches)
        waited += taking.seconds
        model(batch).sum().backward()
        optimizer.step()
        if CALM:
            time.sleep(PAUSE_S)
    expect(data=waited)


def victim_delays():
    time.sleep(PAUSE_S)  # HERE ddp


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch._dynamo  # noqa: F401 DistributedDataParallel imports it when it is made
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    waited = 0.0
    with Waited() as first:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    waited += first.seconds
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(2 * PASSES):
        if rank == 1 and not CALM:
            victim_delays()
        loss = model(torch.zeros(8)).sum()
        with Waited() as backward:
            loss.backward()
        waited += backward.seconds
        optimizer.step()
        if CALM:
            time.sleep(PAUSE_S)
    if rank == 0:
        expect(late=waited)
    dist.destroy_process_group()


def ddp():
    import socket
    import subprocess

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "rank", *sys.argv[2:]]
    env = {**os.environ, "WORLD_SIZE": "2", "PORT": str(port)}
    ranks = [subprocess.Popen(command, env={**env, "RANK": str(rank)}) for rank in range(2)]
    for rank in ranks:
        assert rank.wait() == 0


if __name__ == "__main__":
    if WAY == "rank":
        train(int(os.environ["RANK"]), int(os.environ["PORT"]))
    else:
        {"loader": loader, "ddp": ddp}[WAY]()
