"""Compares tprof's records of `truth` with the program's own counts."""

import collections

import checks.older
from raw import SLACK_NS, Clock

TIME_TOLERANCE = 0.02
# A kernel's record also covers its launch on the device and its end: microseconds.
AROUND_NS = 20_000
# Kinds of losses that have nothing to do with a device: stacks, samples and heap events.
OF_HOST = {
    "stacks", "whole stacks", "names of functions", "names of Python functions", "symbols",
    "Python frames", "Python frames of CPU samples", "Python frames in stacks of allocations",
    "CPU samples", "CPU samples for a moment", "CPU samples of native code", "kernel frames, and where threads wait",
    "records of perf events", "times of threads", "milliseconds on a core", "last moments of processes",
    "allocations", "events", "frees", "frees of sampled blocks", "heap events",
}


def parts_of(truth):
    return [part for part in (truth or {}).get("parts", []) if "skipped" not in part and "failed" not in part]


def failure(truth):
    """Returns the reason why the program reports no truth, or None."""
    if truth is None:
        return "the program did not end well without tprof"
    for part in truth["parts"]:
        if "failed" in part:
            return f"{part['failed']} returned {part['error']} without tprof"
    return None


def same_parts(native, traced):
    """Whether both runs did the same: parts, skipped parts, results. Times may differ."""
    of = lambda truth: [(part["part"], part.get("count"), part.get("skipped"), part.get("failed"), part.get("error"))
                        for part in truth["parts"]]
    return of(native) == of(traced)


def judge_kernels(what, parts, kernels, findings):
    counts = collections.Counter(row.name.partition("(")[0] for row in kernels)
    wanted = {part["kernel"]: part["count"] for part in parts if "kernel" in part}
    wrong = [f"{name}: {counts[name]} of {count}" for name, count in wanted.items() if counts[name] != count]
    wrong += [f"{name}: {n} that never ran" for name, n in counts.items() if name not in wanted]
    findings.compare(f"{what}: each kernel is counted once", wrong, sum(wanted.values()))
    nodes = collections.Counter(row.graph_node for row in kernels if row.name.startswith("spin_graph"))
    for part in parts:
        # There is either one record per node or one for the whole graph. The column `graph_node` says which.
        if part["part"] == "graph" and None not in nodes:
            wrong = [f"node {node}: {n}" for node, n in nodes.items() if n != part["replays"]]
            wrong += [f"{len(nodes)} of {part['nodes']} nodes"] if len(nodes) != part["nodes"] else []
            findings.compare(f"{what}: each node of a graph is there at each replay", wrong, part["nodes"])


def judge_times(what, parts, kernels, simulated, findings):
    total, longest = collections.Counter(), collections.Counter()
    for row in kernels:
        name = row.name.partition("(")[0]
        total[name] += row.duration_ns
        longest[name] = max(longest[name], row.duration_ns)
    wrong, compared, unmeasured = [], 0, 0
    for part in parts:
        if "measured_ns" not in part:
            continue
        if part["measured_ns"] == 0:
            unmeasured += 1
            continue
        compared += 1
        found, least = total[part["kernel"]], part["measured_ns"]
        if not least <= found + AROUND_NS <= least * (1 + TIME_TOLERANCE) + (part["count"] + 1) * AROUND_NS:
            wrong.append(f"{part['kernel']}: {found} ns, its own clock has {least}")
    check = f"{what}: kernels last as long as by the device's own clock"
    if unmeasured and not compared:
        findings.not_checked(check, "the kernels wrote no times: this device computes nothing")
    else:
        findings.compare(check, wrong, compared)
    judge_events(what, parts, kernels, simulated, findings)


def on_first_stream(kernels, name):
    """Returns the time of kernels on the stream of the first launch, which is the one with the events."""
    launched = sorted((row for row in kernels if row.name.startswith(name)), key=lambda row: row.correlation)
    return sum(row.duration_ns for row in launched if row.stream == launched[0].stream)


def judge_events(what, parts, kernels, simulated, findings):
    """Compares the kernels of one stream between two events with the events' times. A simulated stream is a thread of a
    busy machine, and may stand still between them."""
    wrong, compared = [], 0
    for part in parts:
        if "events_ns" not in part:
            continue
        compared += 1
        first = on_first_stream(kernels, part["kernel"])
        gaps = part["launches_between_events"] * AROUND_NS
        most = float("inf") if simulated else first * (1 + TIME_TOLERANCE) + gaps
        if not first * (1 - TIME_TOLERANCE) <= part["events_ns"] <= most:
            wrong.append(f"{part['kernel']}: {first} ns on a stream, {part['events_ns']} between two events")
    findings.compare(f"{what}: kernels fill the time between events", wrong, compared)


def judge_copies(what, parts, copies, findings):
    counts = collections.Counter((row.kind, row.bytes) for row in copies)
    wanted = {(copy["kind"], copy["bytes"]): copy["count"] for part in parts for copy in part.get("copies", [])}
    wrong = [f"{kind} of {size}: {counts[kind, size]} of {count}" for (kind, size), count in wanted.items()
             if counts[kind, size] != count]
    findings.compare(f"{what}: each copy has its kind and bytes", wrong, sum(wanted.values()))


def judge_allocations(what, parts, allocations, older, findings):
    """Each allocation has one row: it is neither lost nor counted twice, by the hooks and by CUPTI. NVIDIA doesn't
    document whether CUPTI records the memory of cuMemCreate, so if no hook can see it, the result is noted without a
    verdict."""
    for part in parts:
        if "allocations" not in part:
            continue
        taken = collections.Counter(row.bytes for row in allocations if not row.free and row.memory != "pinned")
        wrong = [f"{one['bytes']} bytes: {taken[one['bytes']]} times" for one in part["allocations"]
                 if taken[one["bytes"]] != 1]
        check = f"{what}: device memory is counted once: {part['part']}"
        only_cupti = "found_by" in part and ("static" in what or part["found_by"] == "dlsym")
        if only_cupti and all(taken[one["bytes"]] == 0 for one in part["allocations"]):
            findings.not_checked(check, "no hook records these calls, and CUPTI recorded no memory of cuMemCreate")
        elif wrong and all(older.is_twice(allocations, one["bytes"]) for one in part["allocations"]):
            findings.not_checked(check, f"{wrong[0]} by a tprof that matched memory without its size: run the check again")
        else:
            findings.compare(check, wrong, len(part["allocations"]))


def judge_order(what, uncertainty_ns, kernels, spans, findings):
    """No work begins before its call, except by the uncertainty of the clocks' join."""
    begin = {}
    for row in spans:
        if row.kind in ("runtime", "driver") and row.correlation is not None:
            begin[row.correlation] = min(row.start_ns, begin.get(row.correlation, row.start_ns))
    delays = sorted(row.start_ns - begin[row.correlation] for row in kernels if row.correlation in begin)
    wrong = [f"{delay} ns" for delay in delays if delay < -uncertainty_ns]
    at = lambda share: delays[min(len(delays) - 1, int(share * len(delays)))] if delays else None
    findings.compare(f"{what}: no kernel begins before its call", wrong, len(delays),
                     delays_ns=[at(0), at(0.1), at(0.5), at(0.9), at(1)])


def judge_losses(check, run, findings, **facts):
    """No events of the device may be lost. Losses known to be the host's don't count; any other name does."""
    completeness = run["completeness"]
    losses = [loss for loss in completeness["losses"] if loss["what"] not in OF_HOST]
    blind = [one for one in completeness["blind"] if one["what"] not in OF_HOST]
    findings.add(check, not losses and not blind, losses=losses[:3], blind=blind[:3], **facts)


def judge(what, folder, simulated, edition, findings):
    """Judges one program that ran without tprof and with it, in a check of this edition. Returns False if the program
    can't run here at all."""
    native, traced = folder.json("native.json"), folder.json("traced.json")
    run = folder.json("run.json")
    why = failure(native)
    if why:
        findings.not_checked(f"{what}: runs", why)
        return False
    if traced is None or run is None:
        findings.add(f"{what}: runs the same under tprof", False, why="it did not end well under tprof")
        return False
    findings.add(f"{what}: runs the same under tprof", same_parts(native, traced), device=native["devices"])
    for part in native["parts"]:
        if "skipped" in part:
            findings.not_checked(f"{what}: {part['part']}", part["skipped"])
    parts, kernels = parts_of(traced), folder.table("kernels")
    judge_kernels(what, parts, kernels, findings)
    judge_times(what, parts, kernels, simulated, findings)
    judge_copies(what, parts, folder.table("copies"), findings)
    recorded = folder.raw()
    older = checks.older.Evidence(edition, recorded)
    judge_allocations(what, parts, folder.table("device_allocations"), older, findings)
    uncertainty_ns = SLACK_NS + (Clock(recorded).uncertainty_ns() if recorded else 0)
    judge_order(what, uncertainty_ns, kernels, folder.table("spans"), findings)
    check, losses = f"{what}: nothing of the device is lost", run["completeness"]["losses"]
    if older.are_only_events(losses) and not run["completeness"]["blind"]:
        findings.not_checked(check, f"{losses[0]['count']} records of events were unknown to the tprof of then: run the check again")
    else:
        judge_losses(check, run, findings)
    return True
