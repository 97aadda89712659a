"""Judges the cost of recording: rounds without tprof and with it, one after the other. No limit is set: the check is
only there to report the figures."""

import statistics

import checks.truth

FEWEST = 2
FIGURES = {"rate": ("launch_ns", "kernel_ns"), "graph rate": ("node_ns",)}


def values(rounds, part, key):
    found = [one[key] for truth in rounds for one in truth["parts"] if one["part"] == part and key in one]
    return found if len(found) == len(rounds) else []


def judge(bundle, findings):
    folder = bundle.folder("cost")
    native = [truth for n in range(50) if (truth := folder.json(f"native-{n}.json"))]
    traced = [truth for n in range(50) if (truth := folder.json(f"traced-{n}.json"))]
    for part, keys in FIGURES.items():
        for key in keys:
            check = f"cost: {part}, {key}"
            one, other = values(native, part, key), values(traced, part, key)
            if min(len(one), len(other)) < FEWEST:
                findings.not_checked(check, f"there are {len(one)} rounds without tprof and {len(other)} with it")
                continue
            middle, with_tprof = statistics.median(one), statistics.median(other)
            findings.add(check, min(one + other) > 0, native=middle, traced=with_tprof,
                         ratio=round(with_tprof / max(middle, 1), 3), rounds=[sorted(one), sorted(other)])
    judge_host(native, traced, findings)
    run = folder.json("run.json")
    if run:
        overhead = {}
        for row in folder.table("spans"):
            if row.kind == "overhead":
                overhead[row.name] = overhead.get(row.name, 0) + row.duration_ns
        checks.truth.judge_losses("cost: the run of short kernels is whole", run, findings, overhead_ns=overhead)


def judge_host(native, traced, findings):
    free = lambda rounds: values(rounds, "host", "device_free_bytes")
    cpu = values(traced, "host", "flush_thread_ns")
    if cpu and native:
        findings.add("cost: the flush thread's time is measured", max(cpu) > 0 or not any(free(native)), ns=max(cpu))
    if any(free(native)) and any(free(traced)):
        taken = statistics.median(free(native)) - statistics.median(free(traced))
        findings.add("cost: device memory that CUPTI takes", abs(taken) < 4 << 30, bytes=taken)
    else:
        findings.not_checked("cost: device memory that CUPTI takes", "the device's free memory is not known")
