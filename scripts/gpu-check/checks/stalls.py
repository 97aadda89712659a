"""Judges samples of kernels' instructions: kernels of which it is known why their warps wait, by their dominant reason."""

import checks.truth

# Kernels, with the group of reasons that holds their warps up.
KERNELS = {"stall_memory": "memory", "stall_math": "math", "stall_dependency": "dependency"}
# Groups in which a warp is not held up.
NO_STALL = ("issued", "ready")
# Samples that a kernel has at least. It runs for seconds, and a device takes thousands a second.
FEWEST = 10


def groups(rows, kernel):
    """Returns {group: samples} of a kernel."""
    found = {}
    for row in rows:
        if row.kernel == kernel and not row.not_issued:
            found[row.reason_group] = found.get(row.reason_group, 0) + row.samples
    return found


def each_ms(folder, name, kernel):
    """Returns the time of one run of a kernel as the program measured it, in ms, or None."""
    truth = folder.json(f"{name}.json") or {"parts": []}
    parts = [one for one in truth["parts"] if one.get("kernel") == kernel and one.get("count")]
    return parts[0]["ns"] / parts[0]["count"] / 1e6 if parts else None


def judge(bundle, findings):
    folder = bundle.folder("stalls")
    run = folder.json("run.json")
    if run is None or folder.json("sampled.json") is None:
        return findings.not_checked("stalls", "the program did not run, or the archive is of an older check")
    whys = [blind["why"] for blind in run["completeness"]["blind"] if blind["what"].startswith("stalls of GPU kernels")]
    rows = folder.table("kernel_stalls")
    if whys and not rows:
        return findings.not_checked("stalls", f"kernels could not be sampled here: {whys[0]}")
    for kernel, wanted in KERNELS.items():
        found = groups(rows, kernel)
        held = {group: samples for group, samples in found.items() if group not in NO_STALL}
        dominant = max(held, key=held.get, default=None)
        reasons = {}
        for row in rows:
            if row.kernel == kernel and not row.not_issued:
                reasons[row.reason] = reasons.get(row.reason, 0) + row.samples
        findings.add(f"stalls: {kernel} waits for {wanted}", sum(found.values()) >= FEWEST and dominant == wanted,
                     samples=sum(found.values()), dominant=dominant, reasons=dict(sorted(reasons.items(), key=lambda one: -one[1])[:6]))
    checks.truth.judge_losses("stalls: the sampled run is whole", run, findings, not_sampled=whys)
    for kernel in KERNELS:
        times = {name: each_ms(of, name, kernel) for name, of in (
            ("native", bundle.folder("stalls-native")), ("plain", bundle.folder("stalls-plain")), ("sampled", folder))}
        if None in times.values():
            findings.not_checked(f"stalls: cost, {kernel}", "a run without samples is missing")
        else:
            findings.add(f"stalls: cost, {kernel}", min(times.values()) > 0,
                         **{f"{name}_ms": round(ms, 4) for name, ms in times.items()},
                         sampled_to_plain=round(times["sampled"] / max(times["plain"], 1e-9), 3))
