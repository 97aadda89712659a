"""Trains one small model on two ranks, with gradients averaged over gloo."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
torch.set_num_threads(1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)))
optimizer = torch.optim.Adam(model.parameters())
losses = []
for step in range(60):
    x, y = torch.randn(128, 256), torch.randint(0, 10, (128,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss)
if dist.get_rank() == 0:
    print(f"loss {losses[-1].item():.3f}")
dist.destroy_process_group()
