"""Runs a DataLoader with forked workers after a device was used: `loader.py OUT`."""

import json
import sys

import torch

BATCHES = 20


class Numbers(torch.utils.data.Dataset):
    """A data set whose item n is a row filled with n."""

    def __len__(self):
        return BATCHES * 4

    def __getitem__(self, at):
        return torch.full((256,), float(at))


def main():
    sums = torch.zeros(256, device="cuda")
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork", pin_memory=True
    )
    for batch in loader:
        sums += torch.cos(batch.to("cuda", non_blocking=True) * 0).sum(0)
    found = {"sum": float(sums[0]), "wanted": BATCHES * 4.0, "kernel": {"word": "cos", "count": BATCHES}}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
