"""Compares samples of a device's counters (`--gpu-metrics`) with work of which it is known what it does: copies that move so many bytes, products
on tensor cores, and a kernel on one multiprocessor, whose beginnings also show how well the samples' times agree with those of kernels."""

import statistics

SMS, TENSOR = "gpu_sm_active", "gpu_tensor_active"
READ, WRITTEN = "gpu_dram_read_bytes_per_second", "gpu_dram_written_bytes_per_second"
COUNTERS = (SMS, TENSOR, READ, WRITTEN)
PHASES = ("memory", "tensor", "latency")
# Work that is shorter has no sample of 500 us within it.
LONG_NS = 1_500_000
# Samples are 0.5 ms apart, and times may be off by as much.
MOST_OFF_NS = 500_000


def samples(counters, name):
    """Yields beginning, end and value of each sample of a counter. A value is valid from its row to the next; one that is null
    says that nothing is known."""
    rows = sorted((row for row in counters if row.name == name), key=lambda row: row.time_ns)
    return [(row.time_ns, after.time_ns, row.value) for row, after in zip(rows, rows[1:]) if row.value is not None]


def within(all_samples, work):
    """Returns the mean over the samples that lie within pieces of work, or None."""
    area = length = at = 0
    for piece in work:
        began_ns, ended_ns = piece.start_ns, piece.start_ns + piece.duration_ns
        while at < len(all_samples) and all_samples[at][0] < began_ns:
            at += 1
        while at < len(all_samples) and all_samples[at][1] <= ended_ns:
            from_ns, to_ns, value = all_samples[at]
            area, length, at = area + value * (to_ns - from_ns), length + to_ns - from_ns, at + 1
    return area / length if length else None


def offsets(all_samples, work, busy):
    """Returns, for each piece of work after an idle time, by how much later it begins by the samples than by its record, ns: the
    first sample with activity has as much of it as it has of the work."""
    found, at = [], 0
    for piece in work:
        while at < len(all_samples) and all_samples[at][1] <= piece.start_ns - 2 * MOST_OFF_NS:
            at += 1
        near = [one for one in all_samples[at:at + 8] if one[0] < piece.start_ns + 2 * MOST_OFF_NS]
        first = next((one for one in near if one[2] > 0.05 * busy), None)
        if first and near[0][2] <= 0.05 * busy:
            from_ns, to_ns, value = first
            found.append(to_ns - min(value / busy, 1) * (to_ns - from_ns) - piece.start_ns)
    return found


def judge(what, folder, simulated, findings):
    truth = folder.json("metrics.json")
    if truth is None:
        return findings.not_checked(what, "the program did not run, or the archive is of an older check")
    if simulated:
        return findings.not_checked(what, "the devices are simulated, and don't depend on the program")
    spans = {row.name: row for row in folder.table("spans")}
    phases = {name: spans.get(f"phase {name}") for name in PHASES}
    if None in phases.values():
        return findings.add(f"{what}: counters", False, why="a phase has no range", phases=[name for name in PHASES if phases[name]])
    counters = folder.table("counters")
    of = {name: samples(counters, name) for name in COUNTERS}
    if not all(of.values()):
        return findings.not_checked(what, "the counters were not sampled: `tprof doctor` says why")

    def pieces(table, phase):
        began_ns, ended_ns = phases[phase].start_ns, phases[phase].start_ns + phases[phase].duration_ns
        rows = [row for row in folder.table(table) if began_ns <= row.start_ns < ended_ns and row.duration_ns >= LONG_NS]
        return sorted(rows, key=lambda row: row.start_ns)

    work = {"memory": pieces("copies", "memory"), "tensor": pieces("kernels", "tensor"), "latency": pieces("kernels", "latency")}
    means = {phase: {name: within(of[name], work[phase]) for name in COUNTERS} for phase in PHASES}
    if any(value is None for one in means.values() for value in one.values()):
        return findings.add(f"{what}: counters", False, why="no sample lies within the work of a phase", pieces={name: len(one) for name, one in work.items()})
    memory, tensor, latency = (means[name] for name in PHASES)
    moved = statistics.median(2 * truth["copied_bytes"] / (piece.duration_ns / 1e9) for piece in work["memory"])
    ratio = (memory[READ] + memory[WRITTEN]) / moved
    right = (0.8 < ratio < 1.25 and tensor[TENSOR] > max(0.3, 2 * memory[TENSOR]) and 0 < latency[SMS] < 0.2
             and latency[READ] + latency[WRITTEN] < 0.1 * moved)
    findings.add(f"{what}: counters", right, bytes_by_truth=round(ratio, 3),
                 **{phase: {name: round(value, 4) for name, value in one.items()} for phase, one in means.items()})
    off = offsets(of[SMS], work["latency"], latency[SMS])
    if not off:
        return findings.not_checked(f"{what}: clock", "no kernel began after an idle time")
    median = statistics.median(off)
    return findings.add(f"{what}: clock", abs(median) < MOST_OFF_NS, kernels=len(off), median_ns=round(median),
                        largest_ns=round(max(off, key=abs)))
