"""Trains a compiled model whose code has two flaws that `tprof report compile` shows.

`forward` asks for a value on the host, which breaks its graph in two; and the last batch of an
epoch is smaller than the others, which forces a full recompile.

    tprof run --compile --operators names -- python examples/compiled.py
    tprof report compile
"""

import torch


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(256, 1024)
        self.second = torch.nn.Linear(1024, 10)

    def forward(self, batch):
        hidden = torch.nn.functional.gelu(self.first(batch))
        if hidden.abs().max().item() > 1e4:  # the host waits for the value: a graph break
            raise ValueError("the activations diverge")
        return self.second(torch.nn.functional.layer_norm(hidden, hidden.shape[-1:]))


def main():
    torch.manual_seed(0)
    images, labels = torch.randn(2000, 256), torch.randint(10, (2000,))
    model = torch.compile(Classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        for batch, truth in zip(images.split(64), labels.split(64)):
            loss = torch.nn.functional.cross_entropy(model(batch), truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


main()
