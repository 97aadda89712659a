"""Each check of the judge is seen failing: `test_judge.py BUNDLE`, a bundle without failures.

For each check a fault is planted into a copy of the bundle: the check must then fail. What only
hardware gives (PyTorch, times by the device's own clock) is completed with made-up evidence first:
it shows that these checks can pass and fail, and nothing of a device.
"""

import gzip
import json
import os
import shutil
import struct
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import checks.truth
import judge
import raw
from evidence import Folder

PROGRAM = "truth-12"


# --- changing evidence


def edit_json(path, change):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        value = json.load(file)
    value = change(value) or value
    with opener(path, "wt", encoding="utf-8") as file:
        json.dump(value, file)


def write_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "wt", encoding="utf-8") as file:
        json.dump(value, file)


def rows_of(table, change, folder=PROGRAM, first=None):
    """A fault: `change(row)` on the first row of a table, or on the first for which `first` holds."""

    def plant(bundle):
        def edit(tables):
            for rank in tables["ranks"]:
                columns = rank["tables"][table]["columns"]
                rows = rank["tables"][table]["rows"]
                for at, row in enumerate(rows):
                    named = dict(zip(columns, row))
                    if first is None or first(named):
                        changed = change(named)
                        rows[at : at + 1] = [] if changed is None else [[one[c] for c in columns] for one in changed]
                        return
            raise AssertionError(f"no such row of {table}")

        edit_json(f"{bundle}/{folder}/tables.json.gz", edit)

    return plant


def with_values(**values):
    return lambda row: [{**row, **values}]


def drop(row):
    return None


def twice(row):
    return [row, row]


def entries_of(what, change, only=None, folder=PROGRAM):
    """A fault in the journal: `change` makes of the first entry's numbers others, or None for none."""
    number = next(number for number, name in raw.WHAT.items() if name == what)

    def plant(bundle):
        path = f"{bundle}/{folder}/raw.cupti"
        data, out, done, at = open(path, "rb").read(), b"", False, 0
        while at < len(data):
            head = raw.HEAD.unpack_from(data, at)
            body = data[at + raw.HEAD.size : at + raw.HEAD.size + head[4]]
            at += raw.HEAD.size + head[4]
            if head[1] == raw.JOURNAL:
                kept = b""
                for entry in raw.ENTRY.iter_unpack(body):
                    if entry[0] == number and not done and (only is None or only(entry)):
                        changed = change(entry)
                        done = True
                        kept += b"".join(raw.ENTRY.pack(*one) for one in changed)
                    else:
                        kept += raw.ENTRY.pack(*entry)
                body = kept
            out += raw.HEAD.pack(*head[:4], len(body)) + body
        assert done, f"no entry {what}"
        with open(path, "wb") as file:
            file.write(out)

    return plant


def numbers(*, at=None, one=None, two=None, three=None):
    def change(entry):
        what, thread, at_ns, *rest = entry
        given = [rest[i] if new is None else new for i, new in enumerate((one, two, three))]
        return [(what, thread, at_ns if at is None else at, *given)]

    return change


def bytes_of_first_buffer(change):
    def plant(bundle):
        path = f"{bundle}/{PROGRAM}/raw.cupti"
        data, at = bytearray(open(path, "rb").read()), 0
        while raw.HEAD.unpack_from(data, at)[1] != raw.BUFFER:
            at += raw.HEAD.size + raw.HEAD.unpack_from(data, at)[4]
        change(data, at + raw.HEAD.size, raw.HEAD.unpack_from(data, at)[4])
        with open(path, "wb") as file:
            file.write(data)

    return plant


def other_kind(data, at, length):
    struct.pack_into("=I", data, at, 999)


def in_file(name, change):
    return lambda bundle: edit_json(f"{bundle}/{name}", change)


def set_in(name, *keys, value):
    def change(whole):
        at = whole
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return in_file(name, change)


def step_fault(name, **values):
    def change(steps):
        next(one for one in steps if one["name"].startswith(name)).update(values)

    return in_file("steps.json", change)


def part_fault(folder, part, **values):
    def change(truth):
        next(one for one in truth["parts"] if one["part"] == part).update(values)

    return in_file(f"{folder}/traced.json", change)


# --- what only hardware gives, made up


def table(columns, *rows):
    return {"columns": list(columns), "rows": [list(row) for row in rows]}


def kernel_rows(*words):
    names = [f"void at::native::vectorized_elementwise_kernel<4, {word}_kernel>" for word, n in words for _ in range(n)]
    return {"kernels": table(["name"], *([name] for name in names))}


WHOLE_RUN = {"completeness": {"recorded": 1, "lost": 0, "losses": [], "blind": []}, "start_ns": 0}


def complete(bundle):
    """Completes a bundle of simulated devices with evidence of made-up ones. Of several programs and
    ends, which the same code judges, one stays."""
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


def complete_torch(at):
    write_json(f"{at}/takeover/takeover.json", {
        "before": {"word": "sin", "count": 5}, "within": {"word": "cos", "count": 30}, "after": {"word": "tan", "count": 7},
        "cycles": [{"kernels": 6, "implausible": 0}] * 3, "kernels_of_a_cycle": 6, "wanted_cycles": 3,
        "resident_kib": [1000, 1000, 1000, 1100],
    })
    tables = kernel_rows(("sin", 5), ("cos", 30), ("tan", 7)) | {"marks": table(["text"])}
    write_json(f"{at}/takeover/tables.json.gz", {"ranks": [{"tables": tables}]})
    write_json(f"{at}/takeover/run.json", WHOLE_RUN)
    taken = table(["time_ns", "allocator", "memory", "device", "address", "free", "bytes"],
                  [1, "library", "device", 0, 4096, False, 400 << 20], [2, "library", "device", 0, 8192, False, 5],
                  [3, "library", "device", 0, 8192, True, None])
    write_json(f"{at}/memory-default/memory.json", {
        "reserved_bytes": 400 << 20, "reserved_before_bytes": 2 << 20, "driver_bytes": 410 << 20, "nvml_bytes": 398 << 20,
    })
    write_json(f"{at}/memory-default/tables.json.gz", {"ranks": [{"tables": {"device_allocations": taken}}]})
    write_json(f"{at}/memory-default/run.json", WHOLE_RUN)
    for of in ("native", "traced"):
        write_json(f"{at}/train-plain/{of}.json", {"median_step_s": 0.01})
    write_json(f"{at}/train-plain/run.json", WHOLE_RUN)
    write_json(f"{at}/train-plain/tables.json.gz", {"ranks": [{"tables": kernel_rows(("gemm", 9))}]})
    write_json(f"{at}/loader/loader.json", {"sum": 80.0, "wanted": 80.0, "kernel": {"word": "exp2", "count": 20}})
    write_json(f"{at}/loader/tables.json.gz", {"ranks": [{"tables": kernel_rows(("exp2", 20))}]})
    shutil.copytree(f"{at}/../{PROGRAM}", f"{at}/rows")
    write_json(f"{at}/collectives-blocking/collectives.json", {
        "nccl": "2.27.7", "collectives": [{"name": "all_reduce", "count": 2, "bytes": 8}],
    })
    rows = table(["name", "bytes", "group_size"], ["all_reduce", 8, 2], ["all_reduce", 8, 2])
    write_json(f"{at}/collectives-blocking/tables.json.gz", {"ranks": [{"tables": {"collectives": rows}}]})


# --- a fault for each check; checks of several programs, parts and ends have the same code

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
    "PROGRAM: calls are CUPTI's records": rows_of(
        "spans", with_values(status=9), first=lambda row: row["kind"] == "driver"),
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
    "torch made-up: plain runs under tprof": in_file(
        f"{TORCH}/train-plain/tables.json.gz", lambda tables: tables["ranks"][0]["tables"]["kernels"].update(rows=[])),
    "torch made-up: plain loses nothing": set_in(f"{TORCH}/train-plain/run.json", "completeness", "losses", value=LOSS),
    "torch made-up: forked workers": set_in(f"{TORCH}/loader/loader.json", "sum", value=79.0),
    "torch made-up: collectives, blocking": rows_of("collectives", with_values(bytes=9), folder=f"{TORCH}/collectives-blocking"),
}


def keep_only_journal(path):
    data, out, at = open(path, "rb").read(), b"", 0
    while at < len(data):
        head = raw.HEAD.unpack_from(data, at)
        end = at + raw.HEAD.size + head[4]
        out += data[at:end] if head[1] == raw.JOURNAL else b""
        at = end
    with open(path, "wb") as file:
        file.write(out)


def part_of_cost(bundle, part, **values):
    for number in range(2):
        edit_json(f"{bundle}/cost/traced-{number}.json", lambda truth: [
            one.update(values) for one in truth["parts"] if one["part"] == part] and None)


def general(check):
    """The check's name without the program, part or end."""
    for program in ("truth-12", "truth-13", "truth-13-static", "truth-13-threads", "torch made-up, training"):
        check = check.replace(f"{program}: ", "PROGRAM: ")
    if check.startswith("PROGRAM: device memory is counted once"):
        return "PROGRAM: device memory is counted once"
    if check.startswith("end by "):
        return "end by HOW" + check[check.index(":") :]
    return check


def contents(folder):
    """{path: (what changes with each writing, bytes)}"""
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
    """The part of the judge that has this check."""
    if check.startswith("PROGRAM"):
        return PROGRAM
    of = {"cost": "cost", "end ": "ends", "repe": "ends", "torc": "PyTorch"}
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
        for check, plant in FAULTS.items():
            assert check in passing, f"{check} does not pass without a fault"
            saved = contents(good)
            plant(good)
            failed = [one for one in judge.judge(good, subject_of(check)).list if one["passed"] is False and general(one["check"]) == check]
            assert failed, f"{check} does not fail on its fault"
            restore(good, saved)
        print(f"each check failed on its fault: {len(FAULTS)}")


if __name__ == "__main__":
    main()
