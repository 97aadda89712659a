"""One of two ranks that train with gloo. Prints its loss and the sum of its parameters."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(300):
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
weights = sum(p.double().sum().item() for p in model.parameters())
print("rank", dist.get_rank(), loss.item().hex(), weights.hex())
dist.destroy_process_group()
