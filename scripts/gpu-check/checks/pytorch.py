"""Compares tprof's records of PyTorch with PyTorch's own figures."""

import checks.blocks
import checks.journal
import checks.older
import checks.rows
import checks.truth
import checks.metrics
import checks.units
import tables

MEMORY_STEP = 2 << 20  # PyTorch and the driver take memory in pieces of 2 MiB
GROWTH_KIB = 64 << 10
MOST_CLOCK_MARKS = 2
OF_DEVICE = ("device", "managed")
OF_LIBRARY = ("library", "virtual", "pool")
POOLS = "backend:cudaMallocAsync"


def with_word(kernels, word):
    return sum(word in row.name for row in kernels)


def judge_takeover(what, folder, findings):
    found = folder.json("takeover.json")
    if found is None:
        return findings.add(f"{what}: torch.profiler within tprof", False, why="the program did not end well")
    kernels, run = folder.table("kernels"), folder.json("run.json")
    cycles = found["cycles"]
    findings.add(f"{what}: torch.profiler has all its cycles", len(cycles) == found["wanted_cycles"], cycles=len(cycles))
    wrong = [f"{one['kernels']} of {found['kernels_of_a_cycle']}" for one in cycles
             if one["kernels"] != found["kernels_of_a_cycle"]]
    findings.compare(f"{what}: torch.profiler has its kernels", wrong, len(cycles))
    findings.compare(f"{what}: torch.profiler's times are plausible",
                     [f"{one['implausible']} are not" for one in cycles if one["implausible"]], len(cycles))
    for time in ("before", "after"):
        count = with_word(kernels, found[time]["word"])
        findings.add(f"{what}: tprof has the kernels {time} torch.profiler", count == found[time]["count"],
                     tprof=count, ran=found[time]["count"])
    within = with_word(kernels, found["within"]["word"])
    noted = run and (run["completeness"]["blind"] or run["completeness"]["losses"])
    findings.add(f"{what}: kernels within torch.profiler are recorded or the gap is noted",
                 within == found["within"]["count"] or bool(noted), tprof=within, ran=found["within"]["count"])
    resident = found["resident_kib"]
    third = max(1, len(resident) // 3)
    growth = resident[-1] - max(resident[:third])
    findings.add(f"{what}: memory does not grow after torch.profiler", growth <= GROWTH_KIB, growth_kib=growth)
    marks = [row for row in folder.table("marks") if "clock" in str(row.get("text") or row.get("name") or row).lower()]
    findings.add(f"{what}: CUPTI's clock stays as it is", len(marks) <= MOST_CLOCK_MARKS, marks=len(marks))
    return None


def live_bytes(allocations):
    """Returns the bytes of the library's own allocations that are left at the end."""
    live = {}
    for row in sorted(allocations, key=lambda row: row.time_ns):
        if row.allocator not in OF_LIBRARY or row.memory not in OF_DEVICE:
            continue
        key = row.device, row.address
        if row.free:
            live.pop(key, None)
        else:
            live[key] = row.bytes or 0
    return sum(live.values())


def judge_pool(check, counters, reserved, edition, findings):
    """Compares the bytes that the pool held, by CUPTI's records, with those that PyTorch reserved."""
    check = f"{check}: what the pool held"
    if edition < 2:
        return findings.not_checked(check, "the archive has no counters, and CUPTI's last records were lost by `_exit`: run the check again")
    most = max((row.value for row in counters if row.name == tables.POOL_HELD), default=None)
    return findings.add(check, most == reserved, counter_bytes=most, reserved_bytes=reserved)


def judge_memory(what, folder, edition, findings):
    for name in folder.folders("memory-"):
        inside = folder.folder(name)
        found, run = inside.json("memory.json"), inside.json("run.json")
        check = f"{what}: device memory is PyTorch's, {name.removeprefix('memory-')}"
        if found is None or run is None:
            findings.not_checked(check, "PyTorch did not run with this allocator")
            continue
        live = live_bytes(inside.table("device_allocations"))
        reserved = found["reserved_bytes"]
        if reserved < found["held_bytes"]:
            findings.not_checked(check, f"the pool states {reserved} bytes, and PyTorch holds {found['held_bytes']}")
            continue
        facts = {"tprof_bytes": live, "reserved_bytes": reserved, "driver_bytes": found["driver_bytes"]}
        if found.get("allocator") == POOLS:
            # The rows are the blocks that the pool gave out; a counter holds what the pool took from the device.
            findings.add(check, live == found["held_bytes"], held_bytes=found["held_bytes"], **facts)
            judge_pool(check, inside.table("counters"), reserved, edition, findings)
        else:
            # The rows hold all memory that PyTorch reserved, and the memory that its libraries took in addition.
            most = max(reserved, found["driver_bytes"]) * 1.05 + (64 << 20)
            findings.add(check, reserved - MEMORY_STEP <= live <= most, **facts)
        nvml = found["nvml_bytes"]
        if nvml is None:
            findings.not_checked(f"{check}: against NVML", "pynvml is not there")
        elif edition < 2:
            why = "its baseline was taken before the first kernel, for which the driver loads a module: run the check again"
            findings.not_checked(f"{check}: against NVML", why)
        else:
            taken = reserved - found["reserved_before_bytes"]
            findings.add(f"{check}: against NVML", abs(nvml - taken) <= 64 << 20, nvml_bytes=nvml, taken_bytes=taken)


def judge_training(what, folder, findings):
    for name in folder.folders("train-"):
        inside, mode = folder.folder(name), name.removeprefix("train-")
        native, traced, run = inside.json("native.json"), inside.json("traced.json"), inside.json("run.json")
        if not native:
            findings.not_checked(f"{what}: {mode}", "it did not end well without tprof")
            continue
        if not traced or not run:
            findings.add(f"{what}: {mode} runs under tprof", False, why="it did not end well under tprof")
            continue
        kernels = len(inside.table("kernels"))
        findings.add(f"{what}: {mode} runs under tprof", kernels > 0, kernels=kernels,
                     step_ratio=round(traced["median_step_s"] / native["median_step_s"], 4))
        checks.truth.judge_losses(f"{what}: {mode} loses nothing", run, findings)


def judge_loader(what, folder, simulated, findings):
    """Judges forked workers. A simulated device computes nothing, so only its kernels are counted."""
    found = folder.json("loader.json")
    if found is None:
        return findings.add(f"{what}: forked workers", False, why="the program did not end well")
    count = with_word(folder.table("kernels"), found["kernel"]["word"])
    right = simulated or found["sum"] == found["wanted"]
    findings.add(f"{what}: forked workers", right and count == found["kernel"]["count"],
                 sum=found["sum"], kernels=count, wanted=found["kernel"]["count"])
    return None


def judge_collectives(what, folder, findings):
    for name in folder.folders("collectives-"):
        inside = folder.folder(name)
        found = inside.json("collectives.json")
        check = f"{what}: collectives, {name.removeprefix('collectives-')}"
        if found is None:
            findings.add(check, False, why="the program did not end well")
            continue
        rows, wrong = inside.table("collectives"), []
        for one in found["collectives"]:
            count = sum(row.name == one["name"] and row.bytes == one["bytes"] for row in rows)
            if count != one["count"]:
                wrong.append(f"{one['name']} of {one['bytes']} bytes: {count} of {one['count']}")
        wrong += [f"{row.name} has no group" for row in rows if row.group_size is None][:1]
        findings.compare(check, wrong, len(found["collectives"]), nccl=found["nccl"])


def judge(bundle, findings):
    names = bundle.folders("torch-")
    steps = {one["name"]: one for one in bundle.json("steps.json") or []}
    if not names:
        why = steps.get("torch", {}).get("skipped") or "no torch with CUDA was there"
        return findings.not_checked("PyTorch: takeover, memory, blocks, training, forked workers, collectives", why)
    simulated = bool((bundle.json("facts.json") or {}).get("simulated"))
    for name in names:
        what, folder = name.replace("-", " ", 1), bundle.folder(name)
        judge_takeover(what, folder.folder("takeover"), findings)
        judge_memory(what, folder, checks.older.edition(bundle), findings)
        for kind in folder.folders("blocks-"):
            checks.blocks.judge(f"{what}: blocks, {kind.removeprefix('blocks-')}", folder.folder(kind), findings)
        checks.units.judge(f"{what}: units", folder.folder("units"), simulated, findings)
        checks.metrics.judge(f"{what}: metrics", folder.folder("metrics"), simulated, findings)
        judge_training(what, folder, findings)
        judge_loader(what, folder.folder("loader"), simulated, findings)
        checks.rows.judge(f"{what}, training", folder.folder("rows"), findings)
        checks.journal.judge(f"{what}, training", folder.folder("rows"), None, findings)
        if not folder.folders("collectives-"):
            findings.not_checked(f"{what}: collectives", "there is one device")
        judge_collectives(what, folder, findings)
    return None
