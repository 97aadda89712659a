"""Measures the cost of recording PyTorch's operators for the thread that runs them, beside torch.profiler. See
docs/notes/overhead-history.md.

The figure is the CPU time of the training thread by its own clock, so that the collector and other work on the machine
matter less. Of blocks of ten steps, the quickest quarter counts. All contenders run in turn. A row has the median over
rounds of the difference from the plain run of the same round, divided by the operators of a step. It includes PyTorch's
own part, which is there as soon as any callback is registered; callbacks that do nothing show how large that part is.
"""

import os
import statistics
from pathlib import Path

from measure import Run

JOB = Path(__file__).resolve().parent / "programs" / "train_small.py"
# Largest cost of an operator in ns: if only its name is recorded, and if its sizes are recorded too.
NAMES_NS, SIZES_NS = 150, 300


def measure(bench):
    python = bench.torch("operators are")
    if not python:
        return
    steps, rounds = bench.rounds(400, 200), bench.rounds(7, 3)

    def traced(*options):
        # Operators only: samples and memory blocks have rows of their own.
        return [bench.tprof, "run", "--quiet", "-o", "{folder}/run", "--mem", "off", "--activities", "nvtx", *options, "--", python, JOB, steps]

    empty = bench.built / "empty_callbacks.so"
    contenders = {
        "callbacks that do nothing": ([python, JOB, steps, "empty", empty], None),
        "callbacks that do nothing, with inputs": ([python, JOB, steps, "empty-shapes", empty], None),
        "tprof, callbacks off": (traced("--operators", "off"), None),
        "tprof, names": (traced("--operators", "names"), NAMES_NS),
        "tprof, names and sizes": (traced("--operators", "shapes"), SIZES_NS),
        "torch.profiler, names": ([python, JOB, steps, "names"], None),
        "torch.profiler, names and sizes": ([python, JOB, steps, "shapes"], None),
    }
    added, plain, operators = {name: [] for name in contenders}, [], None
    for turn in range(rounds):
        order = list(contenders.items())
        runs = {None: Run([python, JOB, steps])}
        runs |= {name: Run(command) for name, (command, _) in (order if turn % 2 == 0 else order[::-1])}
        failed = [run for run in runs.values() if run.status != 0]
        if failed:
            raise RuntimeError(f"train_small.py failed: {failed[0].output[-400:]}")
        operators = runs["torch.profiler, names"].printed["operators"]
        plain.append(runs[None].printed["step_ns"])
        for name in contenders:
            added[name].append((runs[name].printed["step_ns"] - plain[-1]) / operators)
    bench.notes.append(f"operators: load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    bench.row("small operators, plain", statistics.median(plain) / operators, "ns/operator", None, basis="cpu")
    for name, (_, target) in contenders.items():
        bench.row(f"  {name}: added", statistics.median(added[name]), "ns/operator", target, basis="cpu")
        bench.row("    least and most of rounds", min(added[name]), "ns/operator", None, basis=f"to {max(added[name]):.0f}")
