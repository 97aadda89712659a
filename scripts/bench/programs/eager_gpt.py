"""eager_gpt.py STEPS: trains a transformer of twelve layers on tensors so small that only the host's part of a step is left.

A step is some 4,600 operators and 22,600 allocations, as of the same model on a device that waits for launches. Prints the
CPU time of the thread for the least and the median step, ns, without the first tenth, which warms caches.
"""

import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

LAYERS, HEADS, WIDTH, TOKENS, WORDS = 12, 2, 16, 8, 64


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        parts = self.heads(self.first(x)).view(1, -1, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.second(x))))


def main(steps):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    words, places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
    layers = nn.Sequential(*[Layer() for _ in range(LAYERS)], nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False))
    model = nn.ModuleList([words, places, layers])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    text = torch.randint(0, WORDS, (1, TOKENS + 1))

    def step():
        x = words(text[:, :-1]) + places(torch.arange(TOKENS))
        loss = functional.cross_entropy(layers(x).view(-1, WORDS), text[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    took = []
    for _ in range(steps):
        began = time.thread_time_ns()
        step()
        took.append(time.thread_time_ns() - began)
    took = took[steps // 10 :]
    print(f"least_ns={min(took)}\nmedian_ns={int(statistics.median(took))}", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]))
