"""Measures `tprof import`: CPU time per megabyte of JSON, and memory, over three decades of sizes."""

import gzip
import os
import subprocess
from pathlib import Path

from measure import Run

# Approximate bytes of one synthetic step; see tests/src/synthetic.rs.
STEP_BYTES = 95_000
# Targets in ms per megabyte: 400 MB of JSON per CPU second, and 200 MB from .gz.
PLAIN_MS, GZIPPED_MS = 2.5, 5.0
# The size whose cost is compared with the targets; smaller ones measure the start of a process.
JUDGED_MB = 100


def maker(root):
    """Builds the program that writes synthetic traces, and returns its path."""
    build = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "tprof-tests", "--bin", "make-traces"]
    subprocess.run(build, cwd=root, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "release/make-traces"


def cost(tprof, path, rounds):
    """Returns the least CPU milliseconds per megabyte of a trace, and the peak memory in MiB."""
    runs = [Run([tprof, "import", path, "--quiet", "-o", "{folder}/run"], timeout=300) for _ in range(rounds)]
    failed = [run for run in runs if run.status != 0]
    if failed:
        raise RuntimeError(f"import failed: {failed[0].output}")
    return min(run.cpu for run in runs) * 1e3, max(run.peak_kib for run in runs) / 1024


def measure(bench, root, folder):
    make = maker(root)
    for megabytes in (1, 10, 100) if bench.quick else (1, 10, 100, 1000):
        path = folder / f"{megabytes}.json"
        subprocess.run([make, "kineto", str(megabytes * 1_000_000 // STEP_BYTES + 1), path], check=True)
        size = path.stat().st_size / 1e6
        judged = megabytes == JUDGED_MB
        rounds = 3 if megabytes <= 100 else 1
        cpu, peak = cost(bench.tprof, path, rounds)
        bench.row(f"import, {megabytes} MB of JSON", cpu / size, "ms/MB", PLAIN_MS if judged else None, basis="cpu")
        bench.row("  peak memory", peak, "MiB", None)
        if judged:
            zipped = folder / f"{megabytes}.json.gz"
            zipped.write_bytes(gzip.compress(path.read_bytes(), 6))
            cpu, peak = cost(bench.tprof, zipped, rounds)
            bench.row(f"import, {megabytes} MB of JSON as .gz", cpu / size, "ms/MB", GZIPPED_MS, basis="cpu")
            bench.row("  peak memory", peak, "MiB", None)
            zipped.unlink()
        path.unlink()
