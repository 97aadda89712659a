"""Checks the overhead that a run reports: runs jobs with and without tprof in turn, and prints the reported interval
beside the measured difference. See docs/notes/overhead-history.md.

A pair of runs, one with tprof and one without, gives one difference for each of two clocks. The difference in CPU time
is a share of the job's CPU time under tprof, like `fraction` in the report. It counts the job's own CPU time, as the
kernel reports it to the job's parent, without the collector's. The difference in wall time is a share of the run's wall
time, like `fraction_of_wall`.

The median over pairs has a confidence interval of 95 % by its order statistics, which assume nothing about how the
differences are distributed. If a job without tprof varies by a tenth, a median outside of the stated interval proves
nothing. Such a median is `in the noise` if its own interval overlaps the stated one. More pairs are run, up to a limit, as
long as one of the job's two clocks is in the noise.
"""

import json
import math
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
# With fewer than six pairs, no two values enclose the median in 95 % of cases.
LEAST_PAIRS = 6
MOST_PAIRS = 18
MISSED_SHARE = 0.05


def jobs(bench):
    """Yields the name and the command of each job that this machine can run."""
    python = bench.torch("the stated overhead of its job is")
    if python:
        steps = bench.rounds(400, 150)
        yield "PyTorch: MLP, DataLoader with 2 workers", [python, PROGRAMS / "train_mlp.py", steps]
    yield "Python: sqlite3 in memory", [sys.executable, PROGRAMS / "query.py", bench.rounds(400_000, 200_000)]
    if bench.cc1:
        yield "cc1 -O2 of 50,000 lines", [bench.cc1, "-quiet", "-O2", "-w", bench.built / "big.c", "-o", "/dev/null"]
    else:
        bench.notes.append("no cc1 here: its row is missing")
    operations = bench.rounds(12_000_000, 6_000_000)
    yield "C: malloc_mixed, 8 threads", bench.program("malloc_mixed", operations, 8)


class Pair:
    """A run without tprof, a run with it, and the cost that the latter states."""

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
    """Returns the cost that the report of a run states, from its run.json."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        (folder / "run.json").write_text(json.dumps({**info, "files": [], "ranks": []}))
        done = subprocess.run([bench.tprof, "report", "summary", "--json", folder], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["overhead"]
    finally:
        shutil.rmtree(folder)


def percent(share):
    return "-" if share is None else f"{share * 100:.2f}"


def median_interval(values):
    """Returns the two of the values that enclose the true median in 95 % of cases."""
    ordered, count = sorted(values), len(values)
    # Each value is below the true median with probability one half. `below` is the probability that at most `rank`
    # values are below it, or at most `rank` above.
    below, rank = 2 * 0.5**count, 0
    while below <= MISSED_SHARE:
        rank += 1
        below += 2 * math.comb(count, rank) * 0.5**count
    assert rank, "too few pairs"
    return ordered[rank - 1], ordered[-rank]


def judged(values, low, high):
    """Returns the median, the two ends of its interval, and the verdict on the stated interval `low` to `high`."""
    first, last = median_interval(values)
    median = statistics.median(values)
    if low is None or high is None:
        verdict = "not stated"
    elif low <= median <= high:
        verdict = "within"
    elif first <= high and low <= last:
        verdict = "in the noise"
    else:
        verdict = "OUTSIDE"
    return median, first, last, verdict


CLOCKS = (("CPU", Pair.cpu, "fraction"), ("wall", Pair.wall, "fraction_of_wall"))


def compared(pairs):
    """Returns a row for each clock."""
    rows = []
    for clock, figure, key in CLOCKS:

        def bound(which):
            found = [pair.stated.get(f"{key}_{which}") for pair in pairs]
            return None if None in found else statistics.median(found)

        low, high = bound("low"), bound("high")
        median, first, last, verdict = judged([figure(pair) for pair in pairs], low, high)
        native = statistics.median(pair.plain.cpu if clock == "CPU" else pair.plain.wall for pair in pairs)
        rows.append({"clock": clock, "native_s": native, "median": median, "interval": [first, last], "low": low, "high": high, "verdict": verdict})
    return rows


def measured(bench, argv):
    """Returns the pairs of runs of one job: as many as its verdicts need, within limits, or up to a run that failed."""
    pairs = []
    while len(pairs) < MOST_PAIRS:
        pairs.append(Pair(bench, argv, len(pairs)))
        if pairs[-1].status != 0:
            return pairs
        if len(pairs) >= LEAST_PAIRS and all(row["verdict"] != "in the noise" for row in compared(pairs)):
            break
    return pairs


def measure(bench):
    lines = []
    for name, argv in jobs(bench):
        argv = [str(word) for word in argv]
        Run(argv, timeout=300)
        pairs = measured(bench, argv)
        if bad := pairs[-1].status:
            bench.notes.append(f"{name} ended with status {bad}")
            continue
        others = statistics.median(pair.others for pair in pairs)
        for row in compared(pairs):
            bench.overhead_line.append({"job": name, **row, "pairs": len(pairs), "others": others})
            interval = " to ".join(percent(value) for value in row["interval"])
            stated = " to ".join(percent(row[bound]) for bound in ("low", "high"))
            lines.append([name, row["clock"], f"{row['native_s']:.2f}", str(len(pairs)), percent(row["median"]), interval, stated, row["verdict"], f"{others:.2f}"])
    head = ["job", "clock", "native, s", "pairs", "extra, %", "95 % interval", "stated, %", "verdict", "others"]
    bench.tables.append(f"Measured and stated cost, load {os.getloadavg()[0]:.1f} at the end:\n\n" + "\n".join(table.grid(head, lines)))
