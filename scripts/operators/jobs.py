"""Unedited training jobs, by name: what scripts/operators-check.sh runs with tprof and with torch.profiler.

usage: jobs.py NAME [TRACE]    with TRACE, torch.profiler records the job into that file
"""

import sys

import torch
from torch import nn

STEPS = 6


def mlp():
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(4)])
    return model, lambda: torch.ones(8, 32)


def conv():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(4))
    batch = torch.ones(4, 3, 16, 16)
    model(batch)
    return model, lambda: batch


def transformer():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2), lambda: torch.ones(2, 10, 32)


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


def loader():
    data = torch.utils.data.TensorDataset(torch.ones(48, 32))
    batches = iter(torch.utils.data.DataLoader(data, batch_size=8, num_workers=2))
    model, _ = mlp()
    train((model, lambda: next(batches)[0]))


JOBS = {
    "mlp": lambda: train(mlp()),
    "conv": lambda: train(conv()),
    "transformer": lambda: train(transformer()),
    "loader": loader,
    "accumulation": lambda: train(mlp(), every=2),
    "autocast": lambda: train(mlp(), autocast=True),
    "optimizers": lambda: train(mlp(), optimizers=2),
}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    job = JOBS[sys.argv[1]]
    if len(sys.argv) > 2:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
            job()
        profiler.export_chrome_trace(sys.argv[2])
    else:
        job()


if __name__ == "__main__":
    main()
