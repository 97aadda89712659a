"""Measures what recording costs a step of eager PyTorch that is bound by the host, which launches the kernels.

The figure is the CPU time of the training thread in a step. Each round runs all contenders, in an order that changes.
For each contender a row has the median, over the rounds, of the ratio to the plain run of the same round. The shortest
step of a run shows the duration of a step while nothing else runs. If valgrind is installed, callgrind counts all
instructions of the training process in each of twenty steps, which do not depend on the load: those of tprof's
libraries, and those that PyTorch executes because of them.
"""

import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from measure import Run

JOB = Path(__file__).resolve().parent / "programs" / "eager_gpt.py"
# Targets: the largest time of a step, as a multiple of its time without tprof.
PAUSED, DEFAULT = 1.01, 1.04
NOTHING = ["--mem", "off", "--operators", "off", "--activities", "nvtx"]
CONTENDERS = {
    "paused": (["--paused"], PAUSED),
    "default": ([], DEFAULT),
    "loaded, nothing recorded": (NOTHING, None),
    "memory only": (["--operators", "off", "--activities", "mem"], None),
    "CPU samples only": (["--mem", "off", "--operators", "off", "--activities", "cpu"], None),
    "operators' names only": ([*NOTHING[:2], "--operators", "names", *NOTHING[4:]], None),
}


def measure(bench):
    python = bench.torch("eager steps are")
    if not python:
        return
    steps, rounds = bench.rounds(300, 150), bench.rounds(12, 5)

    def command(options, steps=steps, tool=()):
        traced = [] if options is None else [bench.tprof, "run", "--quiet", "-o", "{folder}/run", *options, "--"]
        return [*traced, *tool, python, JOB, steps]

    plain, ratios, least = [], {name: [] for name in CONTENDERS}, {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        order = [None, *CONTENDERS]
        random.shuffle(order)
        runs = {name: Run(command(CONTENDERS[name][0] if name else None)) for name in order}
        failed = [run for run in runs.values() if run.status != 0]
        if failed:
            raise RuntimeError(f"eager_gpt.py failed: {failed[0].output[-400:]}")
        plain.append(runs[None].printed)
        for name in CONTENDERS:
            ratios[name].append(runs[name].printed["median_ns"] / plain[-1]["median_ns"])
            least[name].append(runs[name].printed["least_ns"])
    bench.notes.append(f"eager: load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    best = min(of["least_ns"] for of in plain)
    bench.row("eager step, plain: median", statistics.median(of["median_ns"] for of in plain) / 1e6, "ms", None, basis="cpu")
    for name, (_, target) in CONTENDERS.items():
        low, high = interval(ratios[name])
        bench.row(f"  {name}: median step", statistics.median(ratios[name]), "x", target, basis="cpu")
        bench.row("    95 % of the median, and least step to least", low, "x", None, basis=f"to {high:.3f}; {min(least[name]) / best:.3f}")
    if shutil.which("valgrind"):
        instructions(bench, command)


def interval(ratios):
    """Returns the 95 % interval of a median, which it estimates by drawing rounds with replacement."""
    draws = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    return draws[50], draws[-51]


def instructions(bench, command):
    steps, folder = 40, Path(tempfile.mkdtemp(prefix="bench-"))
    mark = folder / "mark.so"
    source = JOB.with_name("callgrind_mark.c")
    subprocess.run([os.environ.get("CC", "gcc"), "-O1", "-shared", "-fPIC", source, "-o", mark], check=True)

    def of_steps(options):
        """Returns the instructions of each counted step."""
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counts"]
        run = Run([*command(options, steps, tool), mark], timeout=1200)
        counts = [folder / f"counts.{step + 1}" for step in range(steps // 2)]
        if run.status != 0 or not all(count.exists() for count in counts):
            raise RuntimeError(f"callgrind failed: {run.output[-400:]}")
        return [int(re.search(r"^totals: (\d+)", count.read_text(), re.M)[1]) for count in counts]

    plain = statistics.mean(of_steps(None))
    bench.row("eager step, plain: instructions", plain / 1e6, "M", None, basis="callgrind")
    for name, (options, target) in CONTENDERS.items():
        counted = of_steps(options)
        if name != "default":
            bench.row(f"  {name}: instructions", statistics.mean(counted) / plain, "x", target, basis="callgrind")
            continue
        # Time passes differently under callgrind, so that `--operators auto` leaves out other steps than else.
        bench.row("  default, a step without its operators", min(counted) / plain, "x", target, basis="callgrind")
        bench.row("  default, a step with its operators", max(counted) / plain, "x", None, basis="callgrind")
    shutil.rmtree(folder)
