"""Measures `import torch` natively, under tprof, under parts of tprof, and under `perf record`. See
docs/notes/overhead-history.md.

Each round runs all of them once, in random order. Two unmeasured rounds first fill the page cache and tprof's cache of
tables. On a virtual machine, the duration of a second's work varies by more than the difference that is measured. So
the minimum, the lower quartile and the median of each are compared with those of the native runs, and all three are
printed.
"""

import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import table

ROUNDS = 20
WARM = 2
# perf's stacks are as deep as tprof's.
PERF = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "99", "--call-graph", "dwarf,32768", "-o", "perf.data", "--"]


class Import:
    """One run: its wall seconds, the CPU seconds of all processes, and the waits for the collector that a run of tprof
    reports."""

    def __init__(self, argv):
        folder = Path(tempfile.mkdtemp(prefix="bench-"))
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        self.wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        info = folder / "run" / "run.json"
        self.waited = json.loads(info.read_text())["overhead"]["wait_ns"] / 1e9 if info.exists() else None
        shutil.rmtree(folder)


def measure(bench):
    python = bench.torch("its import is")
    if not python:
        return
    job = [python, "-c", "import torch"]

    def traced(tprof, *options):
        return [tprof, "run", "--quiet", "-o", "run", *options, "--", *job]

    contenders = {
        "native": job,
        "tprof": traced(bench.tprof),
        "tprof, paused": traced(bench.tprof, "--paused"),
        "tprof, no CPU samples": traced(bench.tprof, "--activities", "gpu"),
        "tprof, frame pointers": traced(bench.tprof, "--stacks", "fp"),
    }
    if bench.args.against:
        contenders["against"] = traced(bench.args.against)
    if shutil.which("perf") and subprocess.run([*PERF, "true"], capture_output=True, check=False, cwd=bench.built).returncode == 0:
        contenders["perf record, 99 Hz"] = [*PERF, *job]
    found = {name: [] for name in contenders}
    order = list(contenders)
    for turn in range(WARM + bench.rounds(ROUNDS, 6)):
        random.shuffle(order)
        for name in order:
            run = Import(contenders[name])
            if turn >= WARM:
                found[name].append(run)

    def quarter(values):
        return sorted(values)[len(values) // 4]

    lines = []
    for name, runs in found.items():
        line = [name]
        for of, clock in ((min, "wall"), (quarter, "wall"), (statistics.median, "wall"), (quarter, "cpu")):
            value, native = (of([getattr(run, clock) for run in runs]) for runs in (runs, found["native"]))
            line += [f"{value:.3f}", f"{100 * (value / native - 1):+.1f}"]
        waits = [run.waited * 1000 for run in runs if run.waited is not None]
        lines.append([*line, f"{statistics.median(waits):.0f}" if waits else "-"])
    head = f"`import torch`, seconds and percent more than native, {len(found['native'])} rounds in turn, load {os.getloadavg()[0]:.1f} at the end:"
    columns = ["what", "least wall", "%", "lower quartile", "%", "median", "%", "CPU, lower quartile", "%", "waits, ms"]
    bench.tables.append(f"{head}\n\n" + "\n".join(table.grid(columns, lines)))
