"""Measures what CPU sampling costs, beside perf and py-spy. See docs/notes/overhead-history.md.

    python3 scripts/bench/cpu.py [--tprof PATH] [--rounds N]

Seconds are CPU time, so that other work on the machine matters less. The job prints its own CPU time, and the kernel
counts the sampler's. The contenders run in turn, in reversed order every other time; medians are printed.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PYTHON = """
import resource
def leaf(n):
    x = 0
    for i in range(2000): x += i * n
    return x
def middle(n):
    return leaf(n) + leaf(n + 1)
for i in range({rounds}): middle(i)
r = resource.getrusage(resource.RUSAGE_SELF)
print(r.ru_utime + r.ru_stime)
"""


def cost(argv, cwd):
    """Runs a command. Returns the CPU seconds of it and its children, and its stdout."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{argv[0]} failed: {done.stderr[-400:]}")
    total = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return total, done.stdout


def own(stdout):
    """Returns the time that the job printed on a line among other lines."""
    lines = [line for line in stdout.splitlines() if line.replace(".", "").isdigit()]
    return float(lines[-1])


class Contender:
    def __init__(self, name, before, size=None, after=None):
        self.name, self.before, self.size, self.after = name, before, size, after
        self.job, self.sampler, self.bytes, self.samples = [], [], [], []

    def run(self, job):
        folder = Path(tempfile.mkdtemp(prefix="bench-cpu-"))
        total, stdout = cost([*self.before, *job], folder)
        took = own(stdout)
        sampler = total - took
        if self.after:
            sampler += cost(self.after, folder)[0]
        self.job.append(took)
        self.sampler.append(sampler)
        if self.size:
            size, samples = self.size(folder)
            self.bytes.append(size)
            self.samples.append(samples)
        shutil.rmtree(folder, ignore_errors=True)


def perf_size(folder):
    out = subprocess.run(["perf", "script", "-i", "perf.data", "-F", "tid"], cwd=folder, capture_output=True, text=True, check=False)
    return (folder / "perf.data").stat().st_size, len(out.stdout.split())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tprof", default=str(ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/tprof"))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    tprof = args.tprof

    def tprof_size(folder):
        out = subprocess.run([tprof, "report", "cpu", "--json", "run"], cwd=folder, capture_output=True, text=True, check=True)
        rows = json.loads(out.stdout)["tables"]["functions"]
        size = sum(path.stat().st_size for path in (folder / "run").glob("*.tprof"))
        return size, sum(row["samples"] for row in rows)

    def traced(*options):
        return [tprof, "run", "-q", "-o", "run", "--activities", "cpu", *options, "--"]

    built = Path(tempfile.mkdtemp(prefix="bench-cpu-"))
    for name, option in (("fp", "-fno-omit-frame-pointer"), ("bare", "-fomit-frame-pointer")):
        source = HERE / "programs/cpu_work.c"
        subprocess.run(["gcc", "-O2", "-g", "-fno-optimize-sibling-calls", option, source, "-o", built / name], check=True)
    script = built / "work.py"
    script.write_text(PYTHON.format(rounds=12000))

    has = {name: shutil.which(name) for name in ("perf", "py-spy")}
    perf = lambda *graph: ["perf", "record", "-q", "-e", "cpu-clock", "-F", "999", *graph, "-o", "perf.data", "--"]
    read = ["perf", "script", "-i", "perf.data"]
    groups = [
        ("C with frame pointers, 999 Hz", [str(built / "fp")], [
            Contender("native", []),
            Contender("tprof --stacks fp", traced("--sample-rate", "999", "--stacks", "fp"), tprof_size),
            *([Contender("perf record -g, perf script", perf("-g"), perf_size, read)] if has["perf"] else []),
        ]),
        ("C without frame pointers, 999 Hz", [str(built / "bare")], [
            Contender("native", []),
            Contender("tprof", traced("--sample-rate", "999"), tprof_size),
            *([Contender("perf record --call-graph dwarf, perf script", perf("--call-graph", "dwarf,16384"), perf_size, read)] if has["perf"] else []),
        ]),
        ("Python, 99 Hz", [sys.executable, str(script)], [
            Contender("native", []),
            Contender("tprof", traced("--sample-rate", "99"), tprof_size),
            *([Contender("py-spy record --nonblocking", [has["py-spy"], "record", "--nonblocking", "-r", "99", "-f", "raw", "-o", "out", "--"])] if has["py-spy"] else []),
            *([Contender("py-spy record", [has["py-spy"], "record", "-r", "99", "-f", "raw", "-o", "out", "--"])] if has["py-spy"] else []),
        ]),
    ]
    for title, job, contenders in groups:
        for turn in range(args.rounds):
            for contender in contenders if turn % 2 == 0 else reversed(contenders):
                contender.run(job)
        native = statistics.median(contenders[0].job)
        print(f"\n{title} ({args.rounds} rounds, job alone {native:.3f} s CPU)")
        print(f"{'':46} {'job':>8} {'sampler':>9} {'B/sample':>9} {'samples':>8}")
        for c in contenders:
            job_cost = statistics.median(c.job) / native - 1
            size = statistics.median(c.bytes) / max(1, statistics.median(c.samples)) if c.bytes else None
            shown = f"{size:9.1f}" if size else " " * 9
            count = f"{statistics.median(c.samples):8.0f}" if c.samples else ""
            print(f"{c.name:46} {job_cost:+8.1%} {statistics.median(c.sampler):8.3f}s {shown} {count}")


main()
