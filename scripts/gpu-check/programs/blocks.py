"""Takes blocks of device memory as training does, and writes what PyTorch's allocator says of them.

`blocks.py OUT`: PYTORCH_CUDA_ALLOC_CONF chooses the kind of segments. OUT gets the segments, blocks and history of
`torch.cuda.memory._snapshot()`, and the sums of `torch.cuda.memory_stats()`. The blocks are held to the end.
"""

import json
import os
import random
import sys

import torch

SEED, SIZES, STEPS = 43, 400, 4
BLOCK, ENTRY = ("size", "state"), ("action", "addr", "size")
SEGMENT = ("device", "address", "total_size", "is_expandable")
SUMS = [f"{what}_bytes.all.{when}" for what in ("allocated", "reserved") for when in ("current", "peak")]


def train():
    """Trains a small model, and returns what holds its memory."""
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()
    return model, optimizer


def take_and_give(count):
    """Takes blocks of many sizes on two streams and gives back some of them, in an order that is always the same."""
    chance, held = random.Random(SEED), []
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    for number in range(count):
        with torch.cuda.stream(chance.choice(streams)):
            held.append(torch.empty(int(2 ** chance.uniform(0, 25)), dtype=torch.uint8, device="cuda"))
        while len(held) > chance.randrange(1, 40):
            held.pop(chance.randrange(len(held)))
        if number == count // 2:
            torch.cuda.empty_cache()
    return held


def some(row, keys):
    return {key: row.get(key) for key in keys}


def main():
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(context=None, max_entries=1 << 20)
    held = train(), take_and_give(SIZES), torch.empty(1, device="cuda")
    torch.cuda.synchronize()
    snapshot, stats = torch.cuda.memory._snapshot(), torch.cuda.memory_stats()
    found = {
        "segments": [{**some(segment, SEGMENT), "blocks": [some(block, BLOCK) for block in segment["blocks"]]}
                     for segment in snapshot["segments"]],
        "device_traces": [[some(entry, ENTRY) for entry in trace] for trace in snapshot["device_traces"]],
        "sums": {key: stats[key] for key in SUMS},
    }
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(found, file)
        file.flush()
    print(f"{sum(map(len, found['device_traces']))} entries, {len(held)} holders")
    # Blocks that are given back while the process ends are not in the snapshot.
    os._exit(0)


if __name__ == "__main__":
    main()
