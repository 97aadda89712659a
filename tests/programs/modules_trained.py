"""Trains a small PyTorch model for twelve steps, with a loader. Prints the results."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])
        self.act = nn.ReLU()

    def forward(self, x):
        for layer in self.layers:
            x = self.act(layer(x))
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = MLP()
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.mlp(x))


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, at):
        return torch.full((16,), float(at))


if __name__ == "__main__":
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    x, target = torch.randn(8, 16), torch.randint(0, 4, (8,))
    for _ in range(12):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(net(x), target)
        loss.backward()
        optimizer.step()
    for batch in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1):
        net(batch)
    print(repr(loss.item()), repr(sum(p.double().sum().item() for p in net.parameters())))
