"""Compares how long operators last: by tprof in some runs of a job, and by torch.profiler in others of the same seed.

usage: durations.py PYTHON TPROF JOB [ROUNDS]    exit status 1 where they differ by more than 3 %

A round runs the job (JOBS_SIZE=large) with tprof, with torch.profiler, and with torch.profiler again. Operators of a name
and of sizes have a first decile over all runs of a profiler, which other work on the machine disturbs less than a median; it
is summed over all operators. What the two groups of torch.profiler's runs differ by is the noise: where it is more than
3 % the job is not judged.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from traces import events

MOST = 0.03
HERE = Path(__file__).resolve().parent


class Group:
    """Runs of one profiler."""

    def __init__(self):
        self.durations, self.runs = defaultdict(list), 0

    def add(self, path):
        self.runs += 1
        for event in events(path):
            if event["cat"] == "cpu_op":
                sizes = json.dumps(event.get("args", {}).get("Input Dims", []))
                self.durations[event["name"], sizes].append(float(event["dur"]))

    def total(self, keys):
        """Microseconds of the operators of one run."""
        return sum(len(each) * decile(each) for each in (self.durations[key] for key in keys)) / self.runs


def decile(durations):
    return sorted(durations)[len(durations) // 10]


def run(words, job, folder, trace=None):
    python = words.pop()
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if job == "ddp" else []
    command = [*words, python, *launch, str(HERE / "jobs.py"), job, *([str(trace)] if trace else [])]
    env = {**os.environ, "JOBS_SIZE": "large"}
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command} failed: {done.stderr[-2000:]}")


def by_tprof(tprof, python, job, folder):
    record = [tprof, "run", "-q", "--force", "--operators", "shapes", "--mem", "off", "-o", "run", "--", python]
    run(record, job, folder)
    export = [tprof, "export", "--to", "chrome", "--force", "-o", "chrome", "run"]
    subprocess.run(export, cwd=folder, capture_output=True, check=True)
    return folder / "chrome/rank-0.trace.json.gz"


def by_torch(python, job, folder):
    run([python], job, folder, folder / "RANK.json")
    return folder / "0.json"


def main():
    python, tprof, job = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    ours, theirs, again = Group(), Group(), Group()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for _ in range(rounds):
            ours.add(by_tprof(tprof, python, job, folder))
            for group in (theirs, again):
                group.add(by_torch(python, job, folder))
    keys = ours.durations.keys() & theirs.durations.keys() & again.durations.keys()
    one, other, noise = (group.total(keys) for group in (ours, theirs, again))
    ratio, noise = 2 * one / (other + noise), noise / other
    load = os.getloadavg()[0]
    print(f"{job}: {one / 1e3:.1f} ms by tprof, {other / 1e3:.1f} by torch.profiler: {ratio - 1:+.1%}; torch.profiler against itself {noise - 1:+.1%}; load {load:.1f}")
    if abs(noise - 1) > MOST:
        print("  not judged: the noise is more than 3 %")
    elif abs(ratio - 1) > MOST:
        sys.exit("  differ by more than 3 %")


main()
