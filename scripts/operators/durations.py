"""Compares how long operators last: by tprof in some runs of a job, and by torch.profiler in others of the same seed.

usage: durations.py PYTHON TPROF JOB [ROUNDS]    exit status 1 where they differ by more than 3 %

A round runs the job (JOBS_SIZE=large) with tprof, with torch.profiler, and with torch.profiler again. An operator's own time is
its duration without those directly within it. Operators of a name, of sizes, and with so many within them have a first decile
of it over all runs of a profiler, which other work on the machine disturbs less than a median; it is summed over all operators.

What recording costs lies within the operators around, not within an operator's own callbacks. So

- operators with none within are compared as they are;
- the own time of the others is compared after the difference of both profilers' costs was added for each operator within. That
  difference is the weighted median over one half of the groups, and the comparison is of the other half.

What torch.profiler's two groups of runs differ by is the noise: where it is more than 3 % nothing is judged.
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
# Times are rounded to nanoseconds, these are us.
ROUNDED = 0.002
HERE = Path(__file__).resolve().parent


class Runs:
    """Runs of one profiler: own times of operators by name, sizes and number of operators within, us."""

    def __init__(self):
        self.own, self.runs = defaultdict(list), 0

    def add(self, path):
        self.runs += 1
        threads = defaultdict(list)
        for event in events(path):
            threads[event["tid"]].append(event)
        for found in threads.values():
            for event, inner, own in nested(found):
                if event["cat"] == "cpu_op":
                    sizes = json.dumps(event.get("args", {}).get("Input Dims", []))
                    self.own[event["name"], sizes, inner].append(own)

    def count(self, key):
        """Operators of a run."""
        return len(self.own[key]) / self.runs

    def decile(self, key):
        own = sorted(self.own[key])
        return own[len(own) // 10]

    def total(self, keys, each=0.0):
        """Own time of the operators of one run, with so much more for each operator within."""
        return sum(self.count(key) * (self.decile(key) + each * key[2]) for key in keys)


def nested(found):
    """Each event of a thread, how many lie directly within it, and its own time."""
    rows = [[event, 0, float(event["dur"])] for event in found]
    rows.sort(key=lambda row: (float(row[0]["ts"]), -row[2]))
    around = []
    for row in rows:
        begin, duration = float(row[0]["ts"]), row[2]
        while around and around[-1][0] + ROUNDED < begin + duration:
            around.pop()
        if around:
            outer = around[-1][1]
            outer[1] += 1
            outer[2] -= duration
        around.append((begin + duration, row))
    return rows


def weighted_median(values):
    """Of pairs of a value and its weight."""
    values = sorted(values)
    half, so_far = sum(weight for _, weight in values) / 2, 0.0
    for value, weight in values:
        so_far += weight
        if so_far >= half:
            return value
    return 0.0


def run(words, job, folder, trace=None):
    python = words.pop()
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if job == "ddp" else []
    command = [*words, python, *launch, str(HERE / "jobs.py"), job, *([str(trace)] if trace else [])]
    env = {**os.environ, "JOBS_SIZE": os.environ.get("JOBS_SIZE", "large")}
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


def judge(what, ours, theirs, noise):
    """Prints a comparison; whether it is of more than the noise, and of more than 3 %."""
    if theirs <= 0:
        print(f"  {what}: none")
        return False
    ratio, noise = 2 * ours / (theirs + noise) - 1, noise / theirs - 1
    judged = "" if abs(noise) <= MOST else ", not judged"
    print(f"  {what}: {ours / 1e3:.2f} ms by tprof, {theirs / 1e3:.2f} by torch.profiler: {ratio:+.1%}; torch.profiler to itself {noise:+.1%}{judged}")
    return not judged and abs(ratio) > MOST


def main():
    python, tprof, job = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    ours, theirs, again = Runs(), Runs(), Runs()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for _ in range(rounds):
            ours.add(by_tprof(tprof, python, job, folder))
            for group in (theirs, again):
                group.add(by_torch(python, job, folder))
    keys = sorted(ours.own.keys() & theirs.own.keys() & again.own.keys())
    print(f"durations of {job}, load {os.getloadavg()[0]:.1f}")
    leaves, outer = [key for key in keys if key[2] == 0], [key for key in keys if key[2] > 0]
    differ = judge("operators with none within", *(group.total(leaves) for group in (ours, theirs, again)))
    judge("own time of the others, as it is", *(group.total(outer) for group in (ours, theirs, again)))

    def dearer(key):
        return ((theirs.decile(key) + again.decile(key)) / 2 - ours.decile(key)) / key[2], ours.count(key) * key[2]

    known, others = outer[::2], outer[1::2]
    each = weighted_median([dearer(key) for key in known])
    print(f"  torch.profiler costs {1e3 * each:.0f} ns more for each operator within")
    totals = (ours.total(others, each), theirs.total(others), again.total(others))
    differ |= judge("own time of one half of them, with that added", *totals)
    if differ:
        sys.exit(f"  differ by more than {MOST:.0%}")


main()
