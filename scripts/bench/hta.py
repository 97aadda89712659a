"""Measures reports on a real trace, beside Holistic Trace Analysis: CPU seconds of `tprof report all` on the trace as
PyTorch wrote it (.json.gz), import included, and of HTA's load and the same analyses.

HTA runs in the Python that TPROF_BENCH_HTA names (HolisticTraceAnalysis 0.5.0, pandas 2.3.3). The trace is in the
folder that TPROF_SHARED_DATA names, or in one beside the repository. If either is missing, its rows say so in place of
a number.
"""

import os
import re
import subprocess
from pathlib import Path

from measure import Run
from scale import kinds

TRACE = "kineto/large_v100/rank-1.json.gz"
ROUNDS = 3
# Largest CPU time of all reports as a share of HTA's load, and as a share of HTA's load and analyses together.
OF_LOAD, OF_ALL = 1 / 10, 1 / 40

# Prints CPU seconds of the load and of the analyses, children included.
HTA = """
import logging, os, sys, tempfile, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
cpu = lambda: sum(os.times()[:4])
began = cpu()
a = TraceAnalysis(trace_files={1: sys.argv[1]})
print(f"load={cpu() - began}", file=sys.stderr)
ranks = [1]
a.get_temporal_breakdown(visualize=False)
a.get_idle_time_breakdown(ranks=ranks, visualize=False, show_idle_interval_stats=True)
a.get_gpu_kernel_breakdown(visualize=False)
a.get_comm_comp_overlap(visualize=False)
a.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False)
a.get_memory_bw_summary(ranks=ranks)
a.get_queue_length_summary(ranks=ranks)
from hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis
CudaKernelAnalysis.visualize_aten_op_kernels_and_overhead = classmethod(lambda *_: None)
a.get_aten_op_kernels_and_delay(ranks=ranks)
a.get_frequent_cuda_kernel_sequences(operator_name="aten::linear", output_dir=tempfile.mkdtemp(), rank=1)
a.critical_path_analysis(rank=1, annotation="ProfilerStep", instance_id=0)
print(f"all={cpu() - began}", file=sys.stderr)
"""


def trace(root):
    folder = Path(os.environ.get("TPROF_SHARED_DATA", root.parent / "shared/data"))
    return folder / TRACE if (folder / TRACE).exists() else None


def least(argv, what):
    runs = [Run(argv, timeout=600) for _ in range(ROUNDS)]
    failed = [run for run in runs if run.status != 0]
    if failed:
        raise RuntimeError(f"{what} failed: {failed[0].output}")
    return min(runs, key=lambda run: run.cpu)


def measure(bench, root, folder):
    path = trace(root)
    if path is None:
        print("bench: reports: no trace: set TPROF_SHARED_DATA", flush=True)
        return
    run = folder / "large_v100"
    together = least([bench.tprof, "report", "all", path], "report all").cpu
    imported = least([bench.tprof, "import", path, "--quiet", "-o", "{folder}/run"], "import").cpu
    subprocess.run([bench.tprof, "import", path, "--quiet", "-o", run], check=True)
    reports = {kind: least([bench.tprof, "report", kind, run], kind).cpu for kind in kinds(bench.tprof)}
    load, everything = None, None
    if python := os.environ.get("TPROF_BENCH_HTA"):
        output = least([python, "-c", HTA, path], "HTA").output
        load, everything = (float(re.search(rf"^{key}=(\S+)$", output, re.M)[1]) for key in ("load", "all"))
    else:
        print("bench: reports: no HTA: set TPROF_BENCH_HTA", flush=True)
    bench.row("report all on large_v100.json.gz; target: a tenth of HTA's load", together, "s", load and load * OF_LOAD, basis="cpu")
    bench.row("  the same; target: a fortieth of HTA's load and analyses", together, "s", everything and everything * OF_ALL, basis="cpu")
    bench.row("  import alone", imported, "s", None)
    bench.row("  each kind in a process of its own, and the import", imported + sum(reports.values()), "s", None)
    slowest = max(reports, key=reports.get)
    bench.row(f"  the dearest kind alone, {slowest}", reports[slowest], "s", None)
    if load is not None:
        bench.row("  HTA's load", load, "s", None)
        bench.row("  HTA's load and analyses", everything, "s", None)
