"""Asks tprof, perf and py-spy where the same programs spend their CPU time.

    python3 scripts/bench/agree.py [--tprof PATH] [--rate HZ] [--rounds N]

The programs are the tests' own: each function takes a known share of its thread's own CPU time, and other work on the
machine doesn't change the shares. The share of a function is counted over the whole process tree: samples of running
threads with the function anywhere on the stack, divided by the samples within any of these functions (starting Python
takes time as well). The shares are medians over the rounds. Profilers that are not installed are left out and listed.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAMS = ROOT / "tests/programs"
# victim_deep only calls victim_sixth, so it has the same share and adds nothing to the total.
C = {"victim_half": 1 / 2, "victim_third": 1 / 3, "victim_sixth": 1 / 6, "victim_deep": 1 / 6}
WITHIN = {"victim_deep"}
PYTHON = {"victim_interpreted": 2 / 3, "victim_native": 1 / 3}


def run(argv, folder):
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, argv))} failed:\n{done.stderr[-600:]}")
    return done.stdout


def shares(weight_of, functions):
    """Returns each function's share of the weight of all functions."""
    weights = {f: weight_of(f) for f in functions}
    whole = sum(weight for f, weight in weights.items() if f not in WITHIN)
    return {f: weight / whole for f, weight in weights.items()}


def on_stacks(stacks, functions):
    """Returns the functions' shares of weighted stacks, which are pairs of functions and weight."""
    return shares(lambda f: sum(weight for stack, weight in stacks if f in stack), functions)


def of_tprof(tprof, rate, table, name):
    def ask(job, functions, folder):
        run([tprof, "run", "-q", "-o", "r", "--activities", "cpu", "--sample-rate", str(rate), "--", *job], folder)
        rows = json.loads(run([tprof, "report", "cpu", "--json", "r"], folder))["tables"][table]
        return shares(lambda f: sum(row["total_ns"] for row in rows if row[name].split(".")[-1] == f), functions)

    return ask


def of_perf(rate):
    def ask(job, functions, folder):
        graph = ["--call-graph", "dwarf,16384"]
        run(["perf", "record", "-q", "-e", "cpu-clock", "-F", str(rate), *graph, "-o", "p", "--", *job], folder)
        text = run(["perf", "script", "-i", "p", "-F", "ip,sym"], folder)
        stacks = [{line.split()[-1] for line in block.splitlines() if line.strip()} for block in text.split("\n\n")]
        return on_stacks([(stack, 1) for stack in stacks], functions)

    return ask


def of_py_spy(rate):
    def ask(job, functions, folder):
        run(["py-spy", "record", "-r", str(rate), "-f", "raw", "--subprocesses", "-o", "y", "--", *job], folder)
        stacks = []
        for line in (folder / "y").read_text().splitlines():
            stack, weight = line.rsplit(" ", 1)
            stacks.append(({frame.split(" (")[0].split(".")[-1] for frame in stack.split(";")}, int(weight)))
        return on_stacks(stacks, functions)

    return ask


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tprof", default=str(ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/tprof"))
    parser.add_argument("--rate", type=int, default=499)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    built = Path(tempfile.mkdtemp(prefix="bench-agree-"))
    program = built / "cpu_shares"
    subprocess.run(["gcc", "-O2", "-g", "-pthread", "-I", PROGRAMS, PROGRAMS / "cpu_shares.c", "-o", program], check=True)
    script = [sys.executable, str(PROGRAMS / "cpu_shares.py")]
    tprof = Path(args.tprof).resolve()
    found = lambda name, ask: [(name, ask)] if shutil.which(name) else []
    groups = [
        ("C, two threads and two processes, a recursion 150 deep", [str(program)], C,
         [("tprof", of_tprof(tprof, args.rate, "functions", "function")), *found("perf", of_perf(args.rate))]),
        ("Python, two threads and a forked child", script, PYTHON,
         [("tprof", of_tprof(tprof, args.rate, "python", "name")), *found("py-spy", of_py_spy(args.rate))]),
    ]
    for title, job, known, askers in groups:
        shares = {name: {f: [] for f in known} for name, _ in askers}
        for _ in range(args.rounds):
            for name, ask in askers:
                folder = Path(tempfile.mkdtemp(prefix="run-", dir=built))
                for function, share in ask(job, list(known), folder).items():
                    shares[name][function].append(share)
                shutil.rmtree(folder)
        print(f"\n{title}: {args.rate} Hz, medians of {args.rounds}")
        print("".join([f"{'':20}{'true':>8}", *(f"{name:>8}" for name, _ in askers)]))
        for function, share in known.items():
            cells = (f"{statistics.median(shares[name][function]):8.1%}" for name, _ in askers)
            print("".join([f"{function:20}{share:8.1%}", *cells]))
    for name in ("perf", "py-spy"):
        if not shutil.which(name):
            print(f"\n{name} is not installed here")
    shutil.rmtree(built)


main()
