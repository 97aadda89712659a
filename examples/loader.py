"""Trains a model that waits for its data: each item is prepared in every epoch, or once with --cache."""

import math
import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Waves(torch.utils.data.Dataset):
    """A data set whose items are made in Python, value by value."""

    def __init__(self, cache):
        self.cache = {} if cache else None

    def __len__(self):
        return 512

    def __getitem__(self, index):
        if self.cache is None:
            return self.prepare(index)
        if index not in self.cache:
            self.cache[index] = self.prepare(index)
        return self.cache[index]

    def prepare(self, index):
        wave = [math.sin(index * place / 97) for place in range(2048)]
        return torch.tensor(wave), torch.tensor([index / 512])


model = nn.Sequential(nn.Linear(2048, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(Waves("--cache" in sys.argv), batch_size=32, shuffle=True)
for _ in range(12):
    for wave, place in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(wave), place).backward()
        optimizer.step()
