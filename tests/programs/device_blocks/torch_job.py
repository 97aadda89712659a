"""Trains a small model with AdamW, whose blocks count as blocks of a device, and prints the bytes of
its parameters and states."""

import ctypes
import sys

import torch

blocks = ctypes.PyDLL(sys.argv[1])
blocks.most_allocated.restype = ctypes.c_size_t
blocks.report_blocks()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    x = torch.randn(128, 256)
    loss = model(x).square().mean()  # HERE forward
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def size(tensors):
    return sum(one.numel() * one.element_size() for one in tensors)


states = [one for state in optimizer.state.values() for one in state.values()]
print(f"parameters={size(model.parameters())}")
print(f"gradients={size(one.grad for one in model.parameters())}")
print(f"states={size(states)}")
print(f"peak={blocks.most_allocated()}")
