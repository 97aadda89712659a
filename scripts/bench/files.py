"""Measures what a call on a file costs beside the system call: while such calls aren't recorded, while they are, and
under strace, where it is installed."""

import shutil
import statistics
import subprocess
from pathlib import Path

from gpu import lost, run

SOURCE = Path(__file__).resolve().parent / "programs/file_reads.c"
READS = 4_000_000


def measure(bench, folder):
    folder = folder / "files"
    folder.mkdir()
    program = folder / "file_reads"
    subprocess.run(["gcc", "-O2", "-o", program, SOURCE], check=True)
    traced = [bench.tprof, "run", "--quiet", "--force"]
    recorded = [*traced, "-o", folder / "run-on", "--", program, READS]
    ways = {
        "plain": [program, READS],
        "off": [*traced, "--io", "off", "-o", folder / "run-off", "--", program, READS],
        "on": recorded,
    }
    strace = shutil.which("strace")
    if strace:
        ways["strace"] = [strace, "-f", "-o", "/dev/null", "-e", "trace=read", program, READS // 100]
    found = {way: [] for way in ways}
    for _ in range(bench.rounds(7, 3)):
        for way, argv in ways.items():
            found[way].append(run(folder, argv)["call_ns"])
    missing = lost(folder / "run-on")
    median = {way: statistics.median(all_ns) for way, all_ns in found.items()}
    bench.row("read(2) of a byte, recorded", median["on"] - median["plain"], "ns", 40, basis="cpu")
    bench.row("  while such calls aren't recorded", median["off"] - median["plain"], "ns", 5, basis="cpu")
    bench.row("  records lost", missing, "records", 0)
    if strace:
        bench.row("  strace", median["strace"] - median["plain"], "ns", None, basis="cpu")
    bench.row("  the read itself", median["plain"], "ns", None, basis="cpu")
