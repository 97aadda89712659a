"""Whether what tprof prints of its own cost is true: jobs with and without it in turn, and the
interval that the run states beside the difference. See docs/overhead.md.

CPU time is the job's own, as the kernel counts it for its parent, without the collector's, as a share of the job's CPU time under tprof,
as `fraction` is; wall time is a share of the run's, as `fraction_of_wall` is. A difference is of one
pair; medians and quartiles are over pairs. Where a job without tprof varies by more than the
interval is wide, a median outside of it proves nothing: such a one is `in the noise` where the
quartiles reach into the interval.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import table
from measure import Run

PROGRAMS = Path(__file__).resolve().parent / "programs"
PAIRS = 5


def jobs(bench):
    """Name and command of each job that this machine can run."""
    python = bench.args.torch_python
    can = python and subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0
    if can:
        steps = bench.rounds(400, 150)
        yield "PyTorch: MLP, DataLoader with 2 workers", [python, PROGRAMS / "train_mlp.py", steps]
    else:
        bench.notes.append("no PyTorch: --torch-python names a Python that has it")
    yield "Python: sqlite3 in memory", [sys.executable, PROGRAMS / "query.py", bench.rounds(400_000, 200_000)]
    if bench.cc1:
        yield "cc1 -O2 of 50,000 lines", [bench.cc1, "-quiet", "-O2", "-w", bench.built / "big.c", "-o", "/dev/null"]
    else:
        bench.notes.append("no cc1 here: its row is missing")
    operations = bench.rounds(12_000_000, 6_000_000)
    yield "C: malloc_mixed, 8 threads", bench.program("malloc_mixed", operations, 8)


class Pair:
    """A run without tprof, one with it, and what that states."""

    def __init__(self, bench, argv, turn):
        command = [bench.tprof, "run", "--quiet", "-o", "{folder}/run", "--", *argv]
        runs = {}
        for traced in (False, True) if turn % 2 == 0 else (True, False):
            runs[traced] = Run(command if traced else argv, timeout=300)
        self.plain, self.run = runs[False], runs[True]
        self.status = max(self.plain.status, self.run.status)
        if self.status == 0:
            self.stated = stated(bench, self.run.info)
        self.others = max(self.plain.others, self.run.others)

    def cpu(self):
        own = self.run.info["overhead"]["job_cpu_ns"] / 1e9
        return (own - self.plain.cpu) / own

    def wall(self):
        wall = (self.run.info["end_ns"] - self.run.info["start_ns"]) / 1e9
        return (wall - self.plain.wall) / wall


def stated(bench, info):
    """What the report of a run states, from its run.json."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        (folder / "run.json").write_text(json.dumps({**info, "files": [], "ranks": []}))
        done = subprocess.run([bench.tprof, "report", "summary", "--json", folder], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["overhead"]
    finally:
        shutil.rmtree(folder)


def percent(share):
    return "-" if share is None else f"{share * 100:.2f}"


def judged(values, low, high):
    """Median, quartiles and the verdict."""
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    if low is None or high is None:
        verdict = "not stated"
    elif low <= median <= high:
        verdict = "within"
    elif first <= high and low <= third:
        verdict = "in the noise"
    else:
        verdict = "OUTSIDE"
    return median, first, third, verdict


def measure(bench):
    lines = []
    for name, argv in jobs(bench):
        argv = [str(word) for word in argv]
        Run(argv, timeout=300)
        pairs = [Pair(bench, argv, turn) for turn in range(PAIRS)]
        if bad := [pair.status for pair in pairs if pair.status != 0]:
            bench.notes.append(f"{name} ended with status {bad[0]}")
            continue
        others = statistics.median(pair.others for pair in pairs)
        native = {"CPU": statistics.median(pair.plain.cpu for pair in pairs), "wall": statistics.median(pair.plain.wall for pair in pairs)}
        for clock, figure, key in (("CPU", Pair.cpu, "fraction"), ("wall", Pair.wall, "fraction_of_wall")):
            values = [figure(pair) for pair in pairs]

            def bound(which):
                found = [pair.stated.get(f"{key}_{which}") for pair in pairs]
                return None if None in found else statistics.median(found)

            low, high = bound("low"), bound("high")
            median, first, third, verdict = judged(values, low, high)
            bench.overhead_line.append(
                {"job": name, "clock": clock, "native_s": native[clock], "median": median, "quartiles": [first, third], "low": low, "high": high, "verdict": verdict, "others": others}
            )
            interval = f"{percent(low)} to {percent(high)}"
            lines.append([name, clock, f"{native[clock]:.2f}", percent(median), f"{percent(first)} to {percent(third)}", interval, verdict, f"{others:.2f}"])
    head = ["job", "clock", "native, s", "extra, %", "quartiles", "stated, %", "verdict", "others"]
    bench.tables.append(f"Measured and stated cost, {PAIRS} pairs of each, load {os.getloadavg()[0]:.1f} at the end:\n\n" + "\n".join(table.grid(head, lines)))
