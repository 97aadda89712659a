"""Models, forwards and backwards, by name, whose operations scripts/flops-check.sh counts.

usage: jobs.py NAME                 the job as it is
       jobs.py NAME count FILE      with torch.utils.flop_counter, its counts by operator into FILE
       jobs.py NAME ahead FILE      the same, by tprof.flops without running it
       jobs.py NAME profile FILE    with torch.profiler, which records sizes into FILE
       jobs.py names                the names
"""

import json
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

STEPS = 2


def mlp():
    model = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 48, bias=False), nn.ReLU(), nn.Linear(48, 10))
    return model, lambda: torch.randn(16, 24)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


def residual():
    stem = [nn.Conv2d(3, 16, 7, stride=2, padding=3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    down = nn.Conv2d(16, 32, 1, stride=2, bias=False)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(*stem, Block(16), down, Block(32), *head), lambda: torch.randn(2, 3, 65, 65)


class Convolutions(nn.Module):
    """Convolutions in each dimension; with groups, depthwise, dilated; transposed, with output padding and groups."""

    def __init__(self):
        super().__init__()
        self.line = nn.Sequential(nn.Conv1d(4, 8, 5, stride=2, padding=2), nn.ConvTranspose1d(8, 4, 4, stride=2, padding=1))
        self.plane = nn.Sequential(
            nn.Conv2d(8, 16, (3, 5), stride=(2, 1), padding=(1, 2), groups=4),
            nn.Conv2d(16, 16, 3, padding="same", groups=16),
            nn.Conv2d(16, 8, 3, dilation=2, bias=False),
            nn.ConvTranspose2d(8, 12, 3, stride=2, padding=1, output_padding=1, groups=2),
        )
        self.space = nn.Sequential(nn.Conv3d(2, 4, 3, stride=2, padding=1), nn.ConvTranspose3d(4, 2, 2, stride=2))

    def forward(self, inputs):
        line, plane, space = inputs
        return self.line(line).sum() + self.plane(plane).sum() + self.space(space).sum() + self.line(line[0]).sum()


def convolutions():
    return Convolutions(), lambda: (torch.randn(3, 4, 33), torch.randn(2, 8, 17, 19), torch.randn(2, 2, 9, 8, 7))


def encoder():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1)
    return nn.TransformerEncoder(layer, 2), lambda: torch.randn(2, 10, 32)


class Attention(nn.Module):
    """Attention that is causal, with grouped queries, with a mask, and made of products."""

    def __init__(self):
        super().__init__()
        self.into, self.out, self.table = nn.Linear(32, 64), nn.Linear(32, 50, bias=False), nn.Embedding(50, 32)

    def forward(self, tokens):
        x = self.table(tokens)
        batch, length, _ = x.shape
        q, k, v = self.into(x).split([32, 16, 16], dim=-1)
        q = q.view(batch, length, 4, 8).transpose(1, 2)
        k, v = (one.view(batch, length, 2, 8).transpose(1, 2) for one in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        k, v = (one.repeat_interleave(2, 1) for one in (k, v))
        y = y + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mask = torch.zeros(length, length).masked_fill(torch.ones(length, length).triu(1).bool(), -1e4)
        y = y + F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            y = y + F.scaled_dot_product_attention(q, k, v)
        return F.log_softmax(self.out(y.transpose(1, 2).reshape(batch, length, 32)), -1)


def attention():
    return Attention(), lambda: torch.randint(0, 50, (2, 12))


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(4, 6, 8)), nn.Parameter(torch.randn(8, 5))
        self.low = nn.Linear(8, 5).bfloat16()

    def forward(self, x):
        y = torch.bmm(x, self.a.transpose(1, 2)) + torch.baddbmm(torch.ones(1, 1, 6), x, self.a.transpose(1, 2))
        y = y.sum() + torch.einsum("bik,bjk->bij", x, self.a).sum() + torch.einsum("bik,kj->bij", x, self.b).sum()
        y = y + torch.mv(x[0], self.b[:, 0]).sum() + torch.dot(x[0, 0], self.b[:, 1]) + (x @ self.b).sum()
        y = y + torch.addmm(self.b, torch.eye(8), self.b).sum() + torch.addbmm(torch.zeros(3, 6), x, self.a.transpose(1, 2)).sum()
        return y + self.low(x.bfloat16()).float().sum()


def products():
    return Products(), lambda: torch.randn(4, 3, 8)


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(3))

    def forward(self, x):
        x = self.layers[0](x)
        # Without early stop, because the operator that stops early appears in traces and does nothing.
        with set_checkpoint_early_stop(False):
            x = checkpoint(self.layers[1], x, use_reentrant=False)
        return checkpoint(self.layers[2], x, use_reentrant=True)


def recomputed():
    return Recomputed(), lambda: torch.randn(8, 16)


JOBS = {job.__name__: job for job in (mlp, residual, convolutions, encoder, attention, products, recomputed)}


def train(made):
    model, batch = made
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        model(batch()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    name, *rest = sys.argv[1:]
    if name == "names":
        print(*JOBS)
        return
    torch.manual_seed(0)
    made = JOBS[name]()
    match rest:
        case []:
            train(made)
        case ["count", path]:
            from torch.utils.flop_counter import FlopCounterMode

            with FlopCounterMode(display=False) as counter:
                train(made)
            counts = {str(operator): flops for operator, flops in counter.get_flop_counts()["Global"].items()}
            with open(path, "w") as file:
                json.dump(counts, file, sort_keys=True)
        case ["ahead", path]:
            import tprof
            from torch.utils.flop_counter import flop_registry

            model, batch = made
            ahead = tprof.flops(model, batch(), backward=True).by_operator
            names = {name: name.replace("::", ".") for name in ahead}
            counts = {names[name]: flops * STEPS for name, flops in ahead.items()}
            counted = {str(operator) for operator in flop_registry}
            with open(path, "w") as file:
                json.dump({name: flops for name, flops in counts.items() if name in counted}, file, sort_keys=True)
        case ["profile", path]:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
                train(made)
            profiler.export_chrome_trace(path)


main()
