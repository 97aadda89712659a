"""Compiles modules with torch.compile, with warnings as errors, and exports and traces them. Prints the results."""

import warnings

import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


class Broken(Net):
    def forward(self, x):
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.last(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    net, broken, x = Net(), Broken(), torch.randn(2, 4)
    whole, parts = CompileCounter(), CompileCounter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = torch.compile(net, backend=whole, fullgraph=True)
        function = torch.compile(lambda x: net(x) + 1, backend=whole, fullgraph=True)
        for _ in range(3):
            print(torch.equal(module(x), net(x)), torch.equal(function(x), net(x) + 1))
    print("whole", whole.frame_count, whole.op_count)
    module = torch.compile(broken, backend=parts)
    for _ in range(3):
        module(x)
    print("parts", parts.frame_count, parts.op_count, sum(counters["graph_break"].values()))
    for strict in (False, True):
        print("exported", len(list(torch.export.export(net, (x,), strict=strict).graph.nodes)))
    print("traced", [node.op for node in torch.fx.symbolic_trace(net).graph.nodes])
    print("scripted", torch.jit.script(net).code == torch.jit.trace(net, x).code)
