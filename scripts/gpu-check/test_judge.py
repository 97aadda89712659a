"""Shows that each check of the judge can fail: `test_judge.py BUNDLE`, where BUNDLE has no failures.

For each check, a fault is planted into a copy of the bundle, and the check must then fail. A bundle of simulated
devices lacks evidence that only hardware can provide (PyTorch, times by the device's own clock), so made-up evidence is
added first. That shows that these checks can pass and fail, but proves nothing about a device.
"""

import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import judge
from test_made_up import complete
from test_planting import (
    PROGRAM, bytes_of_first_buffer, drop, entries_of, in_file, keep_only_journal, numbers, other_kind, part_fault,
    part_of_cost, rows_of, set_in, step_fault, twice, with_values,
)

def stall_fault(kernel, **values):
    """Returns a fault: changes all samples of a kernel."""

    def change(whole):
        table = whole["ranks"][0]["tables"]["kernel_stalls"]
        for row in table["rows"]:
            if row[table["columns"].index("kernel")] == kernel:
                for name, value in values.items():
                    row[table["columns"].index(name)] = value

    return in_file("stalls/tables.json.gz", change)


# One or more faults for each check; checks of several programs, parts and ends share code.

spin = lambda row: row["name"] == "spin_streams"
TORCH = "torch-made-up"
LOSS = [{"what": "kernels", "count": 3, "why": "planted"}]
FAULTS = {
    "facts of the machine": set_in("facts.json", "driver", value=None),
    "one kernel on each device": set_in("run-kernel.json", "run_kernel", 0, "verdict", value="part"),
    "PROGRAM: runs the same under tprof": part_fault(PROGRAM, "last error", error=700),
    "PROGRAM: each kernel is counted once": rows_of("kernels", twice, first=spin),
    "PROGRAM: each node of a graph is there at each replay": rows_of(
        "kernels", with_values(graph_node=987654), first=lambda row: row["graph_node"]),
    "PROGRAM: kernels last as long as by the device's own clock": part_fault(PROGRAM, "driver", measured_ns=5),
    "PROGRAM: kernels fill the time between events": part_fault(PROGRAM, "streams", events_ns=1000),
    "PROGRAM: each copy has its kind and bytes": rows_of(
        "copies", with_values(bytes=1), first=lambda row: row["bytes"] == 1234560),
    "PROGRAM: device memory is counted once": rows_of(
        "device_allocations", twice, first=lambda row: row["bytes"] == 3145728),
    "PROGRAM: no kernel begins before its call": rows_of("kernels", with_values(start_ns=-(10**10)), first=spin),
    "PROGRAM: nothing of the device is lost": set_in(f"{PROGRAM}/run.json", "completeness", "losses", value=LOSS),
    "PROGRAM: kernels are CUPTI's records": rows_of("kernels", with_values(registers=99), first=spin),
    "PROGRAM: copies are CUPTI's records": rows_of("copies", with_values(stream=77)),
    "PROGRAM: calls are CUPTI's records": (
        rows_of("spans", with_values(status=9), first=lambda row: row["kind"] == "driver"),
        rows_of("spans", twice, first=lambda row: row["kind"] == "runtime" and row["correlation"] is not None),
        rows_of("spans", drop, first=lambda row: row["kind"] == "runtime" and row["correlation"] is not None),
    ),
    "PROGRAM: waits are CUPTI's records": rows_of("synchronizations", drop),
    "PROGRAM: kernels begin when CUPTI states it": rows_of(
        "kernels", lambda row: [{**row, "start_ns": row["start_ns"] + 10**9}], first=spin),
    "PROGRAM: buffers come back once, as they were lent": entries_of("completed", lambda entry: [entry, entry]),
    "PROGRAM: each request got a buffer": entries_of("requested", lambda entry: [entry, entry[:3] + (0, 0, 0)]),
    "PROGRAM: CUPTI and the layouts find the same records": bytes_of_first_buffer(other_kind),
    "PROGRAM: CUPTI accepts callbacks and kinds": entries_of("enabled", numbers(two=38)),
    "PROGRAM: flushes succeed": entries_of("flushed", numbers(two=999)),
    "PROGRAM: CUPTI drops no record": entries_of("flushed", lambda entry: [entry, (11, *entry[1:3], 5, 0, 0)]),
    "PROGRAM: the journal is whole": entries_of("flushed", lambda entry: [entry, (13, *entry[1:3], 5, 0, 0)]),
    "PROGRAM: CUPTI's clock counts nanoseconds": entries_of("clocks", lambda entry: [entry[:3] + (1, *entry[4:])]),
    "PROGRAM: no call into CUPTI while cuInit runs, but to set up": in_file(
        f"{PROGRAM}/traced.json", lambda truth: truth["cu_init"].__setitem__(1, truth["cu_init"][1] + 10**12)),
    "PROGRAM: what CUPTI does with buffers": lambda bundle: keep_only_journal(f"{bundle}/{PROGRAM}/raw.cupti"),
    "end by HOW: as without tprof": step_fault("kill, traced", status=0),
    "end by HOW: in time": step_fault("kill, traced", seconds=60),
    "end by HOW: kernels are kept": rows_of("kernels", drop, folder="end-kill"),
    "end by HOW: the kernel in flight is recorded or counted": set_in("end-kill/run.json", "completeness", "losses", value=[]),
    "repeats end": step_fault("repeat 1", hung=True, stacks={"1": "planted"}),
    "cost: rate, launch_ns": lambda bundle: part_of_cost(bundle, "rate", launch_ns=0),
    "cost: rate, kernel_ns": lambda bundle: part_of_cost(bundle, "rate", kernel_ns=0),
    "cost: graph rate, node_ns": lambda bundle: part_of_cost(bundle, "graph rate", node_ns=0),
    "cost: the flush thread's time is measured": lambda bundle: part_of_cost(bundle, "host", flush_thread_ns=0),
    "cost: device memory that CUPTI takes": lambda bundle: part_of_cost(bundle, "host", device_free_bytes=1),
    "cost: the run of short kernels is whole": set_in("cost/run.json", "completeness", "losses", value=LOSS),
    "stalls: stall_memory waits for memory": stall_fault("stall_memory", reason_group="math"),
    "stalls: stall_math waits for math": stall_fault("stall_math", samples=0),
    "stalls: stall_dependency waits for dependency": stall_fault("stall_dependency", not_issued=True),
    "stalls: the sampled run is whole": set_in("stalls/run.json", "completeness", "losses", value=LOSS),
    "stalls: cost, KERNEL": in_file("stalls/sampled.json", lambda truth: [
        part.update(ns=0) for part in truth["parts"] if part.get("kernel") == "stall_memory"] and None),
    "recording: CONTENDER": set_in("recording/0-native.json", 0, "step_ns", 0, value=0),
    "recording: CUPTI accepts what the floor asks for": set_in("recording/0-floor.json", 3, "refused", value=["kind 49: 14"]),
    "recording: the floor records, and nothing where nothing is on": (
        in_file("recording/0-floor.json", lambda floor: [one.update(records=0) for one in floor] and None),
        in_file("recording/0-floor.json", lambda floor: [one.update(records=9) for one in floor] and None),
    ),
    "torch made-up: torch.profiler has all its cycles": in_file(
        f"{TORCH}/takeover/takeover.json", lambda found: found["cycles"].pop() and None),
    "torch made-up: torch.profiler has its kernels": set_in(f"{TORCH}/takeover/takeover.json", "cycles", 1, "kernels", value=0),
    "torch made-up: torch.profiler's times are plausible": set_in(
        f"{TORCH}/takeover/takeover.json", "cycles", 1, "implausible", value=2),
    "torch made-up: tprof has the kernels before torch.profiler": rows_of("kernels", drop, folder=f"{TORCH}/takeover"),
    "torch made-up: tprof has the kernels after torch.profiler": rows_of(
        "kernels", drop, folder=f"{TORCH}/takeover", first=lambda row: "tan" in row["name"]),
    "torch made-up: kernels within torch.profiler are recorded or the gap is noted": rows_of(
        "kernels", drop, folder=f"{TORCH}/takeover", first=lambda row: "cos" in row["name"]),
    "torch made-up: memory does not grow after torch.profiler": set_in(
        f"{TORCH}/takeover/takeover.json", "resident_kib", -1, value=10**6),
    "torch made-up: CUPTI's clock stays as it is": in_file(f"{TORCH}/takeover/tables.json.gz", lambda tables: tables["ranks"][0][
        "tables"]["marks"]["rows"].extend([["CUPTI's clock was set"]] * 3)),
    "torch made-up: device memory is PyTorch's, default": rows_of(
        "device_allocations", drop, folder=f"{TORCH}/memory-default"),
    "torch made-up: device memory is PyTorch's, default: against NVML": set_in(
        f"{TORCH}/memory-default/memory.json", "nvml_bytes", value=912 << 20),
    "torch made-up: device memory is PyTorch's, pools": rows_of(
        "device_allocations", drop, folder=f"{TORCH}/memory-pools"),
    "torch made-up: device memory is PyTorch's, pools: what the pool held": (
        rows_of("counters", drop, folder=f"{TORCH}/memory-pools", first=lambda row: row["value"] == 400 << 20),
        in_file(f"{TORCH}/memory-pools/tables.json.gz", lambda whole: whole["ranks"][0]["tables"].pop("counters") and None),
    ),
    "torch made-up: device memory is PyTorch's, pools: against NVML": set_in(
        f"{TORCH}/memory-pools/memory.json", "nvml_bytes", value=912 << 20),
    "torch made-up: blocks, default: each is taken and given back": (
        rows_of("device_allocations", drop, folder=f"{TORCH}/blocks-default", first=lambda row: row["address"] == 4608),
        rows_of("device_allocations", with_values(address=5120), folder=f"{TORCH}/blocks-default", first=lambda row: row["free"]),
        rows_of("device_allocations", with_values(bytes=7), folder=f"{TORCH}/blocks-default", first=lambda row: row["address"] == 4608),
    ),
    "torch made-up: blocks, default: those held at the end": (
        rows_of("device_allocations", drop, folder=f"{TORCH}/blocks-default", first=lambda row: row["free"]),
        rows_of("device_allocations", with_values(bytes=1024), folder=f"{TORCH}/blocks-default", first=lambda row: row["bytes"] == 512),
    ),
    "torch made-up: blocks, default: sums and peaks": (
        set_in(f"{TORCH}/blocks-default/blocks.json", "sums", "allocated_bytes.all.peak", value=512),
        set_in(f"{TORCH}/blocks-default/blocks.json", "sums", "reserved_bytes.all.current", value=0),
    ),
    "torch made-up: blocks, default: their segments": rows_of(
        "device_allocations", with_values(bytes=1), folder=f"{TORCH}/blocks-default", first=lambda row: row["allocator"] == "library"),
    "torch made-up: units: activity": (
        in_file(f"{TORCH}/units/tables.json.gz", lambda whole: [
            row.__setitem__(3, 0.0) for row in whole["ranks"][0]["tables"]["counters"]["rows"] if row[2] == "gpu_tensor_active"] and None),
        rows_of("spans", with_values(name="phase none"), folder=f"{TORCH}/units"),
    ),
    "torch made-up: units: energy": rows_of(
        "counters", with_values(value=0.0), folder=f"{TORCH}/units", first=lambda row: row["name"] == "gpu_energy_joules"),
    "torch made-up: metrics: counters": (
        set_in(f"{TORCH}/metrics/metrics.json", "copied_bytes", value=5 * 10**9),
        in_file(f"{TORCH}/metrics/tables.json.gz", lambda whole: [
            row.__setitem__(3, 0.0) for row in whole["ranks"][0]["tables"]["counters"]["rows"] if row[2] == "gpu_tensor_active"] and None),
        rows_of("spans", with_values(name="phase none"), folder=f"{TORCH}/metrics"),
    ),
    "torch made-up: metrics: clock": in_file(f"{TORCH}/metrics/tables.json.gz", lambda whole: [
        row.__setitem__(0, row[0] + 700_000) for row in whole["ranks"][0]["tables"]["counters"]["rows"]] and None),
    "torch made-up: plain runs under tprof": in_file(
        f"{TORCH}/train-plain/tables.json.gz", lambda tables: tables["ranks"][0]["tables"]["kernels"].update(rows=[])),
    "torch made-up: plain loses nothing": set_in(f"{TORCH}/train-plain/run.json", "completeness", "losses", value=LOSS),
    "torch made-up: forked workers": set_in(f"{TORCH}/loader/loader.json", "sum", value=79.0),
    "torch made-up: collectives, blocking": rows_of("collectives", with_values(bytes=9), folder=f"{TORCH}/collectives-blocking"),
}


def each_fault():
    """Yields (check, fault)."""
    for check, faults in FAULTS.items():
        for fault in faults if isinstance(faults, tuple) else (faults,):
            yield check, fault


def general(check):
    """Returns the check's name without the program, part or end."""
    for program in ("truth-12", "truth-13", "truth-13-static", "truth-13-threads", "torch made-up, training"):
        check = check.replace(f"{program}: ", "PROGRAM: ")
    if check.startswith("PROGRAM: device memory is counted once"):
        return "PROGRAM: device memory is counted once"
    if check.startswith(("recording: native", "recording: floor: ", "recording: tprof")):
        return "recording: CONTENDER"
    if check.startswith("stalls: cost, "):
        return "stalls: cost, KERNEL"
    if check.startswith("end by "):
        return "end by HOW" + check[check.index(":") :]
    return check


def contents(folder):
    """Returns {path: (a stamp that changes with each writing, bytes)}."""
    found = {}
    for at, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(at, name)
            with open(path, "rb") as file:
                found[path] = os.stat(path).st_mtime_ns, file.read()
    return found


def restore(folder, saved):
    for path, (mtime_ns, data) in saved.items():
        if os.stat(path).st_mtime_ns != mtime_ns:
            with open(path, "wb") as file:
                file.write(data)


def subject_of(check):
    """Returns the part of the judge that makes this check."""
    if check.startswith("PROGRAM"):
        return PROGRAM
    of = {"cost": "cost", "stal": "stalls", "end ": "ends", "repe": "ends", "torc": "PyTorch", "reco": "recording"}
    return of.get(check[:4], "machine")


def main():
    with tempfile.TemporaryDirectory() as work:
        source = sys.argv[1]
        good = f"{work}/good"
        shutil.copytree(source if os.path.isdir(source) else judge.unpacked(source, f"{work}/archive"), good)
        complete(good)
        findings = judge.judge(good).list
        failed = [one for one in findings if one["passed"] is False]
        assert not failed, f"fails without a fault: {failed}"
        passing = {general(one["check"]) for one in findings if one["passed"]}
        without = passing - set(FAULTS)
        assert not without, f"checks without a fault: {sorted(without)}"
        for check, plant in each_fault():
            assert check in passing, f"{check} does not pass without a fault"
            saved = contents(good)
            plant(good)
            failed = [one for one in judge.judge(good, subject_of(check)).list if one["passed"] is False and general(one["check"]) == check]
            assert failed, f"{check} does not fail on its fault"
            restore(good, saved)
        print(f"each check failed on its fault: {sum(1 for _ in each_fault())}")


if __name__ == "__main__":
    main()
