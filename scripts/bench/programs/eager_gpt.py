"""eager_gpt.py STEPS [MARK]: trains a transformer of twelve layers on tensors so small that only the host's part of a step is left.

A step has some 4,600 operators and 22,600 allocations, like a step of the same model on a device that waits for
launches. Prints the CPU time of the thread for the least and the median step in ns, without the first tenth of the
steps, which warms caches. `trainer` makes the steps for a device too: there tensors are wide enough that its kernels
are as long as a real job's, and any device is ahead of the host. With MARK, the library of callgrind_mark.c, callgrind
counts only the last half of the steps.
"""

import ctypes
import statistics
import sys
import time
from collections import namedtuple

import torch
from torch import nn
from torch.nn import functional

LAYERS = 12
Sizes = namedtuple("Sizes", "heads width rows tokens words")
SMALL, ON_DEVICE = Sizes(2, 16, 1, 8, 64), Sizes(4, 256, 2, 128, 4096)


class Layer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        width, self.sizes = sizes.width, sizes
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        of = self.sizes
        parts = self.heads(self.first(x)).view(of.rows, -1, 3, of.heads, of.width // of.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.second(x))))


def trainer(device="cpu", sizes=SMALL):
    """Returns a function that does one step of training."""
    torch.manual_seed(0)
    words, places = nn.Embedding(sizes.words, sizes.width), nn.Embedding(sizes.tokens, sizes.width)
    layers = nn.Sequential(*[Layer(sizes) for _ in range(LAYERS)], nn.LayerNorm(sizes.width),
                           nn.Linear(sizes.width, sizes.words, bias=False))
    model = nn.ModuleList([words, places, layers]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    text = torch.randint(0, sizes.words, (sizes.rows, sizes.tokens + 1)).to(device)

    def step():
        x = words(text[:, :-1]) + places(torch.arange(sizes.tokens, device=device))
        loss = functional.cross_entropy(layers(x).view(-1, sizes.words), text[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def main(steps, mark=None):
    torch.set_num_threads(1)
    step, took = trainer(), []
    mark = ctypes.CDLL(mark).mark if mark else lambda what: None
    for number in range(steps):
        if number == steps // 2:
            mark(1)
        began = time.thread_time_ns()
        step()
        took.append(time.thread_time_ns() - began)
        if number >= steps // 2:
            mark(2)
    mark(0)
    took = took[steps // 10 :]
    print(f"least_ns={min(took)}\nmedian_ns={int(statistics.median(took))}", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
