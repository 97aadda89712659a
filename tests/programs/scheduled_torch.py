"""Makes fifteen updates of a small network, from batches of a data loader: with one optimizer, or with
`two` with two optimizers, one for each layer."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
if sys.argv[1:] == ["two"]:
    optimizers = [torch.optim.SGD(net[0].parameters(), lr=0.01), torch.optim.AdamW(net[2].parameters())]
else:
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01)]
data = TensorDataset(torch.randn(15 * 16, 64), torch.randint(0, 8, (15 * 16,)))
for inputs, labels in DataLoader(data, batch_size=16):
    net.zero_grad()
    torch.nn.functional.cross_entropy(net(inputs), labels).backward()
    for optimizer in optimizers:
        optimizer.step()
