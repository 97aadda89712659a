"""Compares what a device says that its units did in phases of which that is known: idle, bound by memory, bound by tensor
cores. The bounds are wide: they find mixed-up or stuck metrics, not inexact ones."""

SMS, TENSOR, DRAM, ENERGY = "gpu_sm_active", "gpu_tensor_active", "gpu_dram_bandwidth_utilization", "gpu_energy_joules"
COUNTERS = (SMS, "gpu_sm_occupancy", TENSOR, DRAM, ENERGY)
PHASES = ("idle", "memory", "tensor")


def mean(counters, name, phase):
    """Returns the mean of a counter over the samples that lie within a phase, or None. A value is valid from its row to
    the next."""
    rows = sorted((row for row in counters if row.name == name), key=lambda row: row.time_ns)
    began_ns, ended_ns = phase.start_ns, phase.start_ns + phase.duration_ns
    parts = [(row.value, after.time_ns - row.time_ns) for row, after in zip(rows, rows[1:])
             if began_ns <= row.time_ns and after.time_ns <= ended_ns]
    length_ns = sum(part_ns for _, part_ns in parts)
    return sum(value * part_ns for value, part_ns in parts) / length_ns if length_ns else None


def watts(counters, phase):
    """Returns the mean power by the counter of energy, between its first and last reading in a phase, or None."""
    began_ns, ended_ns = phase.start_ns, phase.start_ns + phase.duration_ns
    inside = sorted((row.time_ns, row.value) for row in counters if row.name == ENERGY and began_ns <= row.time_ns <= ended_ns)
    if len(inside) < 2:
        return None
    (first_ns, first), (last_ns, last) = inside[0], inside[-1]
    return (last - first) / ((last_ns - first_ns) / 1e9)


def judge(what, folder, simulated, findings):
    if folder.json("units.json") is None:
        return findings.not_checked(what, "the program did not run, or the archive is of an older check")
    if simulated:
        return findings.not_checked(what, "the devices are simulated, and don't depend on the program")
    spans = {row.name: row for row in folder.table("spans")}
    phases = {name: spans.get(f"phase {name}") for name in PHASES}
    if None in phases.values():
        return findings.add(f"{what}: activity", False, why="a phase has no range", phases=[name for name in PHASES if phases[name]])
    devices = {row.device for row in folder.table("counters") if row.name in COUNTERS}
    counters = [row for row in folder.table("counters") if row.device == min(devices)] if devices else []
    means = {name: {of: mean(counters, of, phases[name]) for of in COUNTERS if of != ENERGY} for name in PHASES}
    powers = {name: watts(counters, phases[name]) for name in PHASES}
    if None in powers.values():
        findings.not_checked(f"{what}: energy", "the device has no counter of energy that was read twice in each phase")
    else:
        findings.add(f"{what}: energy", 0 < powers["idle"] < min(powers["memory"], powers["tensor"]),
                     **{name: round(power, 1) for name, power in powers.items()})
    if any(value is None for one in means.values() for value in one.values()):
        return findings.not_checked(f"{what}: activity", "the device does not tell what its units do: `tprof doctor` says why")
    idle, memory, tensor = (means[name] for name in PHASES)
    right = (idle[SMS] < 0.1 and memory[SMS] > 0.3 and tensor[SMS] > 0.3
             and memory[DRAM] > max(0.3, 2 * idle[DRAM]) and tensor[TENSOR] > max(0.2, 2 * memory[TENSOR]))
    return findings.add(f"{what}: activity", right, **{name: {of: round(value, 3) for of, value in one.items()} for name, one in means.items()})
