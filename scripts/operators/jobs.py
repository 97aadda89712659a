"""Training jobs, by name, which scripts/operators-check.sh runs with tprof and with torch.profiler.

usage: jobs.py NAME [TRACE]    with TRACE, torch.profiler records the job into that file

JOBS_SIZE=large makes operators of some 100 us, and more steps, so that a profiler's cost is a small part of them.

Prints a hash of the final weights, which must be the same in all runs. The modules of PyTorch that torch.profiler
imports run operators too, so they are imported first, and only operators in the range "job" count.
"""

import hashlib
import os
import sys

import torch
import torch._dynamo
import torch.distributed
from torch import nn

LARGE = os.environ.get("JOBS_SIZE") == "large"
STEPS, WIDTH, ROWS = (24, 512, 128) if LARGE else (6, 32, 8)


def mlp():
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(4)])
    return model, lambda: torch.ones(ROWS, WIDTH)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        layers = [nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)]
        self.inner = nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))

    def forward(self, x):
        return torch.relu(x + self.inner(x))


def conv():
    channels = WIDTH // 4
    head = [nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(4)]
    model = nn.Sequential(nn.Conv2d(3, channels, 3), nn.BatchNorm2d(channels), nn.ReLU(), Residual(channels), *head)
    batch = torch.ones(4, 3, 16, 16)
    model(batch)
    return model, lambda: batch


def transformer():
    layer = nn.TransformerEncoderLayer(WIDTH, 4, WIDTH * 2, batch_first=True)
    return nn.TransformerEncoder(layer, 2), lambda: torch.ones(2, ROWS + 2, WIDTH)


def train(made, every=1, optimizers=1, autocast=False):
    model, batch = made
    parameters = list(model.parameters())
    chosen = [torch.optim.AdamW(parameters[i::optimizers]) for i in range(optimizers)]
    for step in range(STEPS):
        with torch.profiler.record_function("forward"):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                loss = model(batch()).float().sum()
        loss.backward()
        if step % every == every - 1:
            for optimizer in chosen:
                optimizer.step()
                optimizer.zero_grad()
    show_weights(model)


def show_weights(model):
    digest = hashlib.sha256()
    for weights in model.state_dict().values():
        digest.update(bytes(weights.reshape(-1).view(torch.uint8).tolist()))
    # One write, because ranks share the file, and torchrun makes them write each part as it comes.
    sys.stdout.write(f"weights {digest.hexdigest()[:16]}\n")
    sys.stdout.flush()


def loader():
    data = torch.utils.data.TensorDataset(torch.ones(STEPS * ROWS, WIDTH))
    batches = iter(torch.utils.data.DataLoader(data, batch_size=ROWS, num_workers=2))
    model, _ = mlp()
    train((model, lambda: next(batches)[0]))


def lists():
    """Runs operators on lists of tensors: short, long, of different sizes, empty, and of optional ones."""
    some = [torch.ones(2, size) for size in range(1, 5)]
    torch.cat(some, 1)
    torch.stack(some[:1] * 3)
    torch._foreach_mul_(some, 2.0)
    torch._foreach_add(some, some)
    torch.block_diag(*some)
    torch.einsum("ij,ij->i", some[0], some[0])
    for count in (29, 30, 31, 200):
        torch.cat([torch.ones(1) for _ in range(count)])
    torch.ones(3, 4)[torch.tensor([0, 1])]
    model, batch = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, foreach=True)
    model(batch()).sum().backward()
    optimizer.step()
    show_weights(model)


def scaler():
    """Trains with a loss that is infinite in one step, whose update is skipped. Needs PyTorch 2.3."""
    if not hasattr(torch.amp, "GradScaler"):
        return
    model, batch = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    scaled = torch.amp.GradScaler("cpu")
    for step in range(STEPS):
        loss = model(batch()).sum() * (float("inf") if step == 2 else 1.0)
        scaled.scale(loss).backward()
        scaled.step(optimizer)
        scaled.update()
        optimizer.zero_grad()
    show_weights(model)


def compiled():
    """Compiles a model: the graphs, and the number of compilations, must be the same in all runs."""
    model, batch = mlp()
    fast = torch.compile(model, backend="aot_eager")
    for rows in (8, 8, 4, 4):
        fast(batch()[:rows]).sum().backward()
    from torch._dynamo.utils import counters

    print("compiled", dict(counters["stats"]), dict(counters["frames"]), dict(counters["graph_break"]), flush=True)
    show_weights(model)


def ddp():
    """Trains as one of several ranks, under torchrun."""
    torch.distributed.init_process_group("gloo")
    model, batch = mlp()
    train((nn.parallel.DistributedDataParallel(model), batch))
    torch.distributed.barrier()


JOBS = {
    "mlp": lambda: train(mlp()),
    "conv": lambda: train(conv()),
    "transformer": lambda: train(transformer()),
    "loader": loader,
    "accumulation": lambda: train(mlp(), every=2),
    "autocast": lambda: train(mlp(), autocast=True),
    "optimizers": lambda: train(mlp(), optimizers=2),
    "lists": lists,
    "scaler": scaler,
    "compiled": compiled,
    "ddp": ddp,
}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    job = JOBS[sys.argv[1]]
    trace = sys.argv[2].replace("RANK", os.environ.get("RANK", "0")) if len(sys.argv) > 2 else None
    if trace:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
            run(job)
        profiler.export_chrome_trace(trace)
    else:
        run(job)


def run(job):
    with torch.profiler.record_function("job"):
        job()


if __name__ == "__main__":
    main()
