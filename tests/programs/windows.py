"""Trains for longer than a window of PyTorch's profiler takes to arrive; a worker loads data. Prints
sums.

The number of steps is fixed, so the output is the same with and without a window.
"""

import time

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = DataLoader(torch.randn(400, 16), batch_size=1, num_workers=1)


def update(batch):
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


for batch in batches:
    loss = update(batch)
    time.sleep(0.02)
print(loss.item().hex(), sum(p.double().sum().item() for p in model.parameters()).hex())
