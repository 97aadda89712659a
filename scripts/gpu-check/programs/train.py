"""Trains a small transformer and writes the duration of a step as JSON: `train.py --out FILE …`.

All steps do the same work, so that runs with and without tprof can be compared.
"""

import argparse
import json
import statistics
import time

import torch


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--mode", default="plain", choices=["plain", "graph", "streams", "compile"])
    return parser.parse_args()


class Trainer:
    """A model, its data, and one step."""

    def __init__(self, device):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device)
        self.input = torch.randn(16, 128, 256).to(device)
        self.target = torch.randn(16, 128, 256).to(device)
        # SGD with momentum can be captured in a graph with every PyTorch.
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def step(self):
        self.optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.mse_loss(self.model(self.input), self.target)
        loss.backward()
        self.optimizer.step()
        return loss


def graphed(trainer):
    """Returns a step that was captured once and is replayed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            trainer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        trainer.step()
    return graph.replay


def streamed(trainer):
    """Returns a step on one stream beside copies on another."""
    compute, copies = torch.cuda.Stream(), torch.cuda.Stream()
    host = torch.randn(16, 128, 256).pin_memory()

    def step():
        with torch.cuda.stream(copies):
            batch = host.to("cuda", non_blocking=True)
        with torch.cuda.stream(compute):
            trainer.step()
        compute.wait_stream(copies)
        batch.record_stream(compute)

    return step


def main():
    args = arguments()
    cuda = args.device == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None
    trainer = Trainer(args.device)
    step = trainer.step
    if args.mode == "graph":
        step = graphed(trainer)
    elif args.mode == "streams":
        step = streamed(trainer)
    elif args.mode == "compile":
        trainer.model = torch.compile(trainer.model)
    times = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - begin)
    found = {
        "mode": args.mode,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "steps": args.steps,
        # The first steps warm up; the median of the others is used.
        "median_step_s": statistics.median(times[len(times) // 3 :]),
    }
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
