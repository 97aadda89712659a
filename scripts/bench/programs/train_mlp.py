"""train_mlp.py STEPS [WORKERS]: trains an MLP on the CPU; a DataLoader's workers make its rows in Python."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 64


class Rows(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        total = 0.0
        for step in range(400):
            total += index * step % 7 * 0.5
        return torch.full((256,), total * 0.001), index % 10


def main(steps, workers):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    layers = [torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = torch.nn.CrossEntropyLoss()
    for rows, classes in DataLoader(Rows(BATCH * steps), batch_size=BATCH, num_workers=workers):
        optimizer.zero_grad()
        loss_of(model(rows), classes).backward()
        optimizer.step()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2)
