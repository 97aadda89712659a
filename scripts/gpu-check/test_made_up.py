"""Makes up evidence that only hardware can give. It shows that checks can pass and fail, but proves nothing about a
device."""

import os
import shutil
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import checks.metrics
import checks.pytorch
import checks.truth
import checks.units
import tables
from evidence import Folder
from test_planting import PROGRAM, edit_json, write_json


def table(columns, *rows):
    return {"columns": list(columns), "rows": [list(row) for row in rows]}


def kernel_rows(*words):
    names = [f"void at::native::vectorized_elementwise_kernel<4, {word}_kernel>" for word, n in words for _ in range(n)]
    return {"kernels": table(["name"], *([name] for name in names))}


WHOLE_RUN = {"completeness": {"recorded": 1, "lost": 0, "losses": [], "blind": []}, "start_ns": 0}


def complete(bundle):
    """Adds evidence of made-up devices to a bundle of simulated ones. Several programs and ends are judged by the same
    code, so only one of each is kept."""
    for name in Folder(bundle).folders("truth-") + Folder(bundle).folders("end-"):
        if name not in (PROGRAM, "end-kill"):
            shutil.rmtree(f"{bundle}/{name}")
    edit_json(f"{bundle}/facts.json", lambda facts: facts.update(simulated=False, gpu="Made Up", driver="1.2.3"))
    kernels = Folder(f"{bundle}/{PROGRAM}").table("kernels")

    def measure(truth):
        for part in truth["parts"]:
            if "measured_ns" in part:
                part["measured_ns"] = sum(k.duration_ns for k in kernels if k.name == part["kernel"])
            if "events_ns" in part:
                part["events_ns"] = checks.truth.on_first_stream(kernels, part["kernel"])

    edit_json(f"{bundle}/{PROGRAM}/traced.json", measure)
    for one in ("rate", "host"):
        for number in range(2):
            for of, free in (("native", 10 << 30), ("traced", 9 << 30)):
                edit_json(f"{bundle}/cost/{of}-{number}.json", lambda truth, free=free: [
                    part.update(device_free_bytes=free, flush_thread_ns=5) for part in truth["parts"] if part["part"] == "host"
                ] and None)
    for name in Folder(bundle).folders("end-"):
        edit_json(f"{bundle}/{name}/native.json", lambda truth: truth.update(compiler="nvcc"))
        edit_json(f"{bundle}/{name}/run.json", lambda run: run["completeness"].update(losses=[{"what": "kernels", "count": 1, "why": "made up"}]))
    complete_torch(f"{bundle}/torch-made-up")


def complete_units(at):
    """Makes up a device that is idle, then bound by memory, then by tensor cores, for two seconds each."""
    values = {checks.units.SMS: (0.0, 0.9, 0.95), "gpu_sm_occupancy": (0.0, 0.7, 0.2), checks.units.TENSOR: (0.0, 0.0, 0.8),
              checks.units.DRAM: (0.0, 0.85, 0.3), checks.units.ENERGY: (100.0, 400.0, 650.0)}
    rows, joules, second = [], 7e6, 10**9
    for tenth in range(61):
        phase = min(tenth // 20, 2)
        rows += [[tenth * second // 10, 0, name, joules if name == checks.units.ENERGY else of[phase]] for name, of in values.items()]
        joules += values[checks.units.ENERGY][phase] / 10
    spans = [[f"phase {name}", at * 2 * second, 2 * second] for at, name in enumerate(checks.units.PHASES)]
    write_json(f"{at}/units.json", {"phases": checks.units.PHASES, "seconds": 2})
    write_json(f"{at}/tables.json.gz", {"ranks": [{"tables": {
        "spans": table(["name", "start_ns", "duration_ns"], *spans), "counters": table(["time_ns", "device", "name", "value"], *rows)}}]})


def complete_metrics(at):
    """Makes up a device whose counters are sampled every 0.5 ms while it copies, multiplies, and spins on one multiprocessor. Each piece of
    work takes 5 ms, and between two of the last phase the device is idle for 5 ms."""
    ms, half = 10**6, 500_000
    names = checks.metrics.COUNTERS
    values = {"memory": (0.8, 0.0, 2e12, 2e12), "tensor": (0.95, 0.8, 2e11, 1e11), "latency": (0.01, 0.0, 0.0, 0.0)}
    spans, copies, kernels, rows = [], [], [], []
    for at_phase, (phase, of) in enumerate(values.items()):
        began = at_phase * 100 * ms
        spans.append([f"phase {phase}", began, 100 * ms])
        step = 10 * ms if phase == "latency" else 5 * ms
        work = copies if phase == "memory" else kernels
        work += [[began + place * step, 5 * ms] for place in range(100 * ms // step)]
        for place in range(200):
            is_busy = phase != "latency" or place % 20 < 10
            rows += [[began + place * half, 0, name, value if is_busy else 0.0] for name, value in zip(names, of)]
    rows += [[300 * ms, 0, name, None] for name in names]
    write_json(f"{at}/metrics.json", {"copied_bytes": 10 * 10**9, "phases": checks.metrics.PHASES, "seconds": 0.1})
    write_json(f"{at}/tables.json.gz", {"ranks": [{"tables": {
        "spans": table(["name", "start_ns", "duration_ns"], *spans), "copies": table(["start_ns", "duration_ns"], *copies),
        "kernels": table(["start_ns", "duration_ns"], *kernels), "counters": table(["time_ns", "device", "name", "value"], *rows)}}]})


def complete_torch(at):
    write_json(f"{at}/takeover/takeover.json", {
        "before": {"word": "sin", "count": 5}, "within": {"word": "cos", "count": 30}, "after": {"word": "tan", "count": 7},
        "cycles": [{"kernels": 6, "implausible": 0}] * 3, "kernels_of_a_cycle": 6, "wanted_cycles": 3,
        "resident_kib": [1000, 1000, 1000, 1100],
    })
    rows = kernel_rows(("sin", 5), ("cos", 30), ("tan", 7)) | {"marks": table(["text"])}
    write_json(f"{at}/takeover/tables.json.gz", {"ranks": [{"tables": rows}]})
    write_json(f"{at}/takeover/run.json", WHOLE_RUN)
    taken = table(["time_ns", "allocator", "memory", "device", "address", "free", "bytes"],
                  [1, "library", "device", 0, 4096, False, 400 << 20], [2, "library", "device", 0, 8192, False, 5],
                  [3, "library", "device", 0, 8192, True, None])
    write_json(f"{at}/memory-default/memory.json", {
        "held_bytes": 393 << 20, "reserved_bytes": 400 << 20, "reserved_before_bytes": 2 << 20, "driver_bytes": 410 << 20, "nvml_bytes": 398 << 20,
    })
    write_json(f"{at}/memory-default/tables.json.gz", {"ranks": [{"tables": {"device_allocations": taken}}]})
    write_json(f"{at}/memory-default/run.json", WHOLE_RUN)
    # A pool reserves more of the device than the blocks that it hands out.
    given = table(taken["columns"], [1, "pool", "device", 0, 4096, False, 393 << 20])
    held = table(["name", "value"], [tables.POOL_HELD, 32 << 20], [tables.POOL_HELD, 400 << 20])
    write_json(f"{at}/memory-pools/memory.json", {
        "allocator": checks.pytorch.POOLS, "held_bytes": 393 << 20, "reserved_bytes": 400 << 20, "reserved_before_bytes": 32 << 20,
        "driver_bytes": 410 << 20, "nvml_bytes": 370 << 20,
    })
    write_json(f"{at}/memory-pools/tables.json.gz", {"ranks": [{"tables": {"device_allocations": given, "counters": held}}]})
    write_json(f"{at}/memory-pools/run.json", WHOLE_RUN)
    segment = {"device": 0, "address": 4096, "total_size": 2 << 20, "is_expandable": False, "blocks": [
        {"size": 512, "state": "active_allocated"}, {"size": (2 << 20) - 512, "state": "inactive"}]}
    trace = [{"action": "segment_alloc", "addr": 4096, "size": 2 << 20}, {"action": "alloc", "addr": 4096, "size": 4},
             {"action": "alloc", "addr": 4608, "size": 8}, {"action": "free_requested", "addr": 4608, "size": 8},
             {"action": "free_completed", "addr": 4608, "size": 8}]
    sums = {"allocated_bytes.all.current": 512, "allocated_bytes.all.peak": 1024,
            "reserved_bytes.all.current": 2 << 20, "reserved_bytes.all.peak": 2 << 20}
    write_json(f"{at}/blocks-default/blocks.json", {"segments": [segment], "device_traces": [trace], "sums": sums})
    rows = table(["time_ns", "allocator", "device", "address", "free", "bytes", "total_allocated_bytes", "total_reserved_bytes"],
                 [1, "library", 0, 4096, False, 2 << 20, None, None], [2, "framework", 0, 4096, False, 512, 512, 2 << 20],
                 [3, "framework", 0, 4608, False, 512, 1024, 2 << 20], [4, "framework", 0, 4608, True, 512, 512, 2 << 20])
    write_json(f"{at}/blocks-default/tables.json.gz", {"ranks": [{"tables": {"device_allocations": rows}}]})
    write_json(f"{at}/blocks-default/run.json", WHOLE_RUN)
    for of in ("native", "traced"):
        write_json(f"{at}/train-plain/{of}.json", {"median_step_s": 0.01})
    write_json(f"{at}/train-plain/run.json", WHOLE_RUN)
    write_json(f"{at}/train-plain/tables.json.gz", {"ranks": [{"tables": kernel_rows(("gemm", 9))}]})
    complete_units(f"{at}/units")
    complete_metrics(f"{at}/metrics")
    write_json(f"{at}/loader/loader.json", {"sum": 80.0, "wanted": 80.0, "kernel": {"word": "cos", "count": 20}})
    write_json(f"{at}/loader/tables.json.gz", {"ranks": [{"tables": kernel_rows(("cos", 20))}]})
    shutil.copytree(f"{at}/../{PROGRAM}", f"{at}/rows")
    write_json(f"{at}/collectives-blocking/collectives.json", {
        "nccl": "2.27.7", "collectives": [{"name": "all_reduce", "count": 2, "bytes": 8}],
    })
    rows = table(["name", "bytes", "group_size"], ["all_reduce", 8, 2], ["all_reduce", 8, 2])
    write_json(f"{at}/collectives-blocking/tables.json.gz", {"ranks": [{"tables": {"collectives": rows}}]})
