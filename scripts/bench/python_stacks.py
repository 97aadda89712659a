"""Measures Python's functions in stacks of allocations, beside memray if this Python has it.
See docs/notes/overhead-history.md.

A round allocates and frees one block. The figure is the CPU time of the thread beyond the native run: medians over
rounds in which all contenders ran in turn.
"""

import re
import statistics
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "programs/python_stacks.py"
ROUNDS = 20_000
# Number of Python frames, and whether Python's lock is held.
SHAPES = [(7, "held"), (42, "held"), (7, "given-up"), (42, "given-up")]


def round_ns(before, folder, *arguments):
    command = [str(word) for word in [*before, PROGRAM, *arguments]]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    printed = re.search(r"^round_ns=([\d.]+)$", done.stdout, re.M)
    if done.returncode != 0 or not printed:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-400:]}")
    return float(printed[1])


def measure(bench, folder):
    folder = folder / "python-stacks"
    folder.mkdir()
    python = sys.executable

    def traced(*options):
        return [bench.tprof, "run", "--quiet", "--force", "--activities", "mem", "-o", folder / "run", *options, "--", python]

    contenders = {
        "exact, native stacks alone": traced("--mem", "exact"),
        "exact, --stacks python": traced("--mem", "exact", "--stacks", "python"),
        "sampled (the default), --stacks python": traced("--stacks", "python"),
    }
    has_memray = subprocess.run([python, "-m", "memray", "--version"], capture_output=True, check=False).returncode == 0
    peers = {"memray": [], "memray --native": ["--native"]} if has_memray else {}
    for name, options in peers.items():
        contenders[name] = [python, "-m", "memray", "run", "--quiet", "--force", *options, "-o", folder / "memray.bin"]
    if not has_memray:
        bench.notes.append("memray is not installed for this Python (pip install memray): its rows are missing")
    bench.notes.append(f"Python {sys.version.split()[0]}")
    for frames, lock in SHAPES:
        # memray does not see functions that ctypes finds by name.
        taking = {name: before for name, before in contenders.items() if lock == "held" or name not in peers}
        added = {name: [] for name in taking}
        plain = []
        for _ in range(bench.rounds(7, 3)):
            plain.append(round_ns([python], folder, frames, lock, ROUNDS))
            for name, before in taking.items():
                added[name].append(round_ns(before, folder, frames, lock, ROUNDS) - plain[-1])
        held = "lock held" if lock == "held" else "lock given up"
        bench.row(f"{frames} Python frames, {held}: native", statistics.median(plain), "ns/round", None, basis="cpu")
        for name, values in added.items():
            bench.row(f"  {name}: added", statistics.median(values), "ns/round", None, basis="cpu")
