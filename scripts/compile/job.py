"""A job with two graph breaks and three recompilations, and training steps around another
recompilation.

    job.py [STEPS]      the report must list: `breaks` (branch, asked) and `recompiles` (size,
    option, type)
"""

import sys

import torch


@torch.compile
def breaks(x):
    y = x.sin()
    if y.sum() > 0:  # the first break: a branch on data
        y = y + 1
    torch._dynamo.graph_break()  # the second break
    return y.cos()


@torch.compile
def recompiles(x, option):
    return x * 2 if option == "double" else x * 3


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def train(steps):
    model = torch.compile(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        # The last two steps have a batch of another size.
        batch = torch.ones(4 if step < steps - 2 else 6, 8)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    breaks(torch.ones(4))
    recompiles(torch.ones(4), "double")
    recompiles(torch.ones(8), "double")  # another size
    recompiles(torch.ones(8), "triple")  # another option
    recompiles(torch.ones(8, dtype=torch.float64), "triple")  # another type
    train(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


main()
