"""Fifteen updates of a small network, by batches of a data loader."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = TensorDataset(torch.randn(15 * 16, 64), torch.randint(0, 8, (15 * 16,)))
for inputs, labels in DataLoader(data, batch_size=16):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(inputs), labels).backward()
    optimizer.step()
