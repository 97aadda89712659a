"""Measures what recording of GPUs costs, on stand-ins that do nothing but call and make
records: no GPU is needed, and none is measured. See docs/overhead.md.

    python3 scripts/bench/gpu.py [--tprof PATH] [--rounds N] [--json FILE]

Nanoseconds are CPU time of the thread concerned, so that other work on the machine
matters less; medians over rounds.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CALLS = 1_000_000
KERNELS = 2_000_000
# Kernels a second, each with its launch: a million records.
RATE = 500_000


def compile_all(folder):
    """The stand-ins and the programs on them."""

    def compile(output, source, *options):
        command = ["gcc", "-O2", "-o", folder / output, HERE / "programs" / source, *options]
        subprocess.run([str(word) for word in command], check=True)

    shared = ["-shared", "-fPIC"]
    compile("libcudart.so.12", "gpu_cudart.c", *shared, "-Wl,-soname,libcudart.so.12")
    compile("libcuda.so.1", "gpu_cupti.c", "-DDRIVER", *shared, "-ldl", "-Wl,-soname,libcuda.so.1")
    compile("libcupti.so.12", "gpu_cupti.c", *shared, "-Wl,-soname,libcupti.so.12")
    compile("calls", "gpu_calls.c", folder / "libcudart.so.12")
    compile("records", "gpu_records.c", folder / "libcuda.so.1", folder / "libcupti.so.12")


def run(folder, argv):
    """What a program says of itself, and the CPU seconds of it and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([str(word) for word in argv], env=env, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{argv[0]} failed: {done.stderr[-400:]}")
    said = {name: float(value) for name, value in re.findall(r"^(\w+)=([\d.]+)$", done.stdout, re.M)}
    said["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return said


def losses(path):
    """Everything that a run says it lost, by what; none if nothing was."""
    info = json.loads((path / "run.json").read_text(encoding="utf-8"))
    return {loss["what"]: loss["count"] for loss in info["completeness"]["losses"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tprof", default=ROOT / "target/release/tprof")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-gpu-"))
    compile_all(folder)
    tprof = [args.tprof, "run", "--quiet", "--force", "--activities", "gpu", "-o"]
    native, hooked, agent, sent, sizes, lost, refused = [], [], [], [], [], {}, 0
    for at in range(args.rounds):
        native.append(run(folder, [folder / "calls", CALLS])["call_ns"])
        hooked.append(run(folder, [*tprof, folder / "run-calls", "--", folder / "calls", CALLS])["call_ns"])
        said = run(folder, [*tprof, folder / "run-records", "--", folder / "records", KERNELS])
        agent.append(said["record_ns"])
        sent.append(said["cpu_s"] * 1e9 / (2 * KERNELS))
        sizes.append((folder / "run-records/rank-0.tprof").stat().st_size / KERNELS)
        said = run(folder, [*tprof, folder / "run-rate", "--", folder / "records", KERNELS, RATE])
        refused += int(said["lost"])
        for what, count in losses(folder / "run-rate").items():
            lost[what] = lost.get(what, 0) + count
    median = statistics.median
    found = {
        "hook_ns_per_call": median(hooked) - median(native),
        "agent_ns_per_record": median(agent),
        "all_cpu_ns_per_record": median(sent),
        "trace_bytes_per_kernel_with_launch": median(sizes),
        "lost_at_a_million_records_a_second": lost | ({"no buffer": refused} if refused else {}),
    }
    print(json.dumps(found, indent=1))
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    subprocess.run(["rm", "-rf", str(folder)], check=False)


if __name__ == "__main__":
    main()
