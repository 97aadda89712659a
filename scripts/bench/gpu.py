"""Measures what the recording of GPUs costs the host. Stand-ins for CUDA's libraries accept the calls and make records,
so it needs no GPU and says nothing about one. See docs/notes/overhead-history.md.

Nanoseconds are CPU time of the measured thread, so that other work on the machine matters less. Figures are medians
over rounds.
"""

import json
import os
import re
import resource
import statistics
import subprocess
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
CALLS = 1_000_000
KERNELS = 2_000_000
# Kernels per second. Each has a launch, so there are a million records per second.
RATE = 500_000


def compile_all(folder):
    """Compiles the stand-ins and the programs that use them."""

    def compile(output, source, *options):
        command = ["gcc", "-O2", "-o", folder / output, PROGRAMS / source, *options]
        subprocess.run([str(word) for word in command], check=True)

    shared = ["-shared", "-fPIC"]
    compile("libcudart.so.12", "gpu_cudart.c", *shared, "-Wl,-soname,libcudart.so.12")
    compile("libcuda.so.1", "gpu_cupti.c", "-DDRIVER", *shared, "-ldl", "-Wl,-soname,libcuda.so.1")
    compile("libcupti.so.12", "gpu_cupti.c", *shared, "-Wl,-soname,libcupti.so.12")
    compile("calls", "gpu_calls.c", folder / "libcudart.so.12")
    compile("libcublasLt.so.12", "gpu_cublaslt.c", *shared, "-Wl,-soname,libcublasLt.so.12")
    compile("matmuls", "gpu_matmuls.c", folder / "libcublasLt.so.12")
    compile("libc10.so", "gpu_c10.cpp", *shared, "-Wl,-soname,libc10.so")
    compile("blocks", "gpu_blocks.cpp", folder / "libc10.so", folder / "libcudart.so.12")
    compile("records", "gpu_records.c", folder / "libcuda.so.1", folder / "libcupti.so.12")


def run(folder, argv):
    """Returns the figures that a program prints about itself, and the CPU seconds of it and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([str(word) for word in argv], env=env, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} failed: {done.stderr[-400:]}")
    printed = {name: float(value) for name, value in re.findall(r"^(\w+)=([\d.]+)$", done.stdout, re.M)}
    printed["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return printed


def lost(path):
    """Returns the sum of all losses that a run reports."""
    info = json.loads((path / "run.json").read_text(encoding="utf-8"))
    return sum(max(1, loss["count"]) for loss in info["completeness"]["losses"])


def measure(bench, folder):
    folder = folder / "gpu"
    folder.mkdir()
    compile_all(folder)
    tprof = [bench.tprof, "run", "--quiet", "--force", "--activities", "gpu", "-o"]
    by_hooks = [*tprof[:-1], "--cuda-calls", "hooks", "-o", folder / "run-hooks", "--", folder / "calls", CALLS, "driver"]
    paused = [*tprof[:-1], "--paused", "-o", folder / "run-paused", "--", folder / "calls", CALLS]
    native, hooked, idle, left, agent, sent, sizes, made, missing = [], [], [], [], [], [], [], [], 0
    multiplied, alone, given, taken = [], [], [], []
    for _ in range(bench.rounds(7, 3)):
        native.append(run(folder, [folder / "calls", CALLS])["call_ns"])
        hooked.append(run(folder, [*tprof, folder / "run-calls", "--", folder / "calls", CALLS])["call_ns"])
        idle.append(run(folder, paused)["call_ns"])
        left.append(run(folder, by_hooks)["call_ns"])
        alone.append(run(folder, [folder / "matmuls", CALLS])["call_ns"])
        multiplied.append(run(folder, [*tprof, folder / "run-matmuls", "--", folder / "matmuls", CALLS])["call_ns"])
        given.append(run(folder, [folder / "blocks", CALLS])["call_ns"])
        taken.append(run(folder, [*tprof, folder / "run-blocks", "--", folder / "blocks", CALLS])["call_ns"])
        printed = run(folder, [*tprof, folder / "run-records", "--", folder / "records", KERNELS])
        agent.append(printed["record_ns"])
        sent.append(printed["cpu_s"] * 1e9 / (2 * KERNELS))
        sizes.append((folder / "run-records/rank-0.tprof").stat().st_size / KERNELS)
        printed = run(folder, [*tprof, folder / "run-rate", "--", folder / "records", KERNELS, RATE])
        made.append(printed["made_per_s"] / 1e6)
        missing += int(printed["lost"]) + lost(folder / "run-rate")
    median = statistics.median
    bench.row("call of CUDA through the hook", median(hooked) - median(native), "ns", 150, basis="cpu")
    bench.row("  while recording is off", median(idle) - median(native), "ns", 5, basis="cpu")
    bench.row("  that CUPTI leaves to the hooks", median(left) - median(native), "ns", 60, basis="cpu")
    bench.row("cublasLtMatmul through the hook", median(multiplied) - median(alone), "ns", 150, basis="cpu")
    bench.row("block of device memory through the hook, no stack", median(taken) - median(given), "ns", 100, basis="cpu")
    bench.row("record of CUPTI's in the agent", median(agent), "ns", 100, basis="cpu")
    bench.row("  with making and collecting it", median(sent), "ns", None, basis="cpu")
    bench.row("kernel with its launch, in the trace", median(sizes), "bytes", 32)
    bench.row("records made a second, 4 million of them", median(made), "million", 0.99, at_least=True, basis="wall")
    bench.row("  lost of these, in all rounds", missing, "records", 0)
