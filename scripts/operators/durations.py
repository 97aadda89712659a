"""Compares the durations of operators by tprof and by torch.profiler in one run in which both record, so that the
operators are the same.

usage: durations.py PYTHON TPROF JOB    exit status 1 if they differ by more than 3 %

Two runs with the same seed differ for reasons other than the profiler: an operator that gets fresh memory lasts three
times as long, and earlier allocations decide which operator that is. In one run both profilers record each operator,
and the cost of each profiler lies within the other's duration of it: tprof's beginning comes before torch.profiler's
callback, and its end before torch.profiler's end. So an operator's two durations differ by a constant, whatever the
operator contains. The constant is the median over every second operator.

The remaining operators are compared with that constant: the sums for each operator, and the slope of one duration over
the other.
"""

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import linear_regression, median

from traces import events

MOST = 0.03
HERE = Path(__file__).resolve().parent


def by_thread(path):
    """Returns the durations of operators in us, by thread and name, in order of start."""
    found = defaultdict(list)
    for event in events(path):
        if event["cat"] == "cpu_op":
            found[event["tid"], event["name"]].append((float(event["ts"]), -float(event["dur"])))
    return {key: [-duration for _, duration in sorted(each)] for key, each in found.items()}


def record(python, tprof, job, folder):
    """Runs the job with both profilers, and returns the trace of each."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if job == "ddp" else []
    program = [python, *launch, str(HERE / "jobs.py"), job, str(folder / "RANK.json")]
    command = [tprof, "run", "-q", "--operators", "shapes", "--mem", "off", "-o", "run", "--", *program]
    done = subprocess.run(command, env={**os.environ, "JOBS_SIZE": "large"}, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command} failed: {done.stderr[-2000:]}")
    export = [tprof, "export", "--to", "chrome", "-o", "chrome", "run"]
    subprocess.run(export, cwd=folder, capture_output=True, check=True)
    return folder / "chrome/rank-0.trace.json.gz", folder / "0.json"


def main():
    python, tprof, job = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3]
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = map(by_thread, record(python, tprof, job, Path(folder)))
    # tprof records operators on gloo's threads only with old versions of PyTorch.
    pairs = [pair for key in ours.keys() & theirs.keys() if len(ours[key]) == len(theirs[key]) for pair in zip(ours[key], theirs[key])]
    left_out = sum(map(len, ours.values())) - len(pairs)
    known, others = pairs[::2], pairs[1::2]
    constant = median(one - other for one, other in known)
    one, other = sum(one for one, _ in others), sum(other for _, other in others)
    ratio = (one - constant * len(others)) / other - 1
    slope = linear_regression([other for _, other in others], [one for one, _ in others]).slope
    odd = sorted(abs(one - other - constant) for one, other in others)[len(others) * 99 // 100]
    print(
        f"durations of {job}: {len(pairs)} operators, {left_out} left out; {one / 1e3:.1f} ms by tprof, {other / 1e3:.1f} by torch.profiler "
        f"({one / other - 1:+.1%}); {1e3 * constant:.0f} ns less for each: {ratio:+.2%}; slope {slope:.4f}; "
        f"99 of 100 within {odd:.2f} us; load {os.getloadavg()[0]:.1f}"
    )
    if abs(ratio) > MOST or abs(slope - 1) > MOST or left_out > len(pairs) / 10:
        sys.exit(f"  differ by more than {MOST:.0%}")


main()
