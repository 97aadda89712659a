"""Judges the cost of recording per step, by part: medians of each round against the same round's run without tprof. No
limit is set: the check is only there to report the figures."""

import math
import re
import statistics

NATIVE, FLOOR = "native", "floor"
NOTHING, BASE, ALL = f"{FLOOR}: loaded, nothing on", f"{FLOOR}: kernels and copies", f"{FLOOR}: all that tprof asks for"
# The options of the runs under tprof, by the run's name. The first records everything.
TPROF = "tprof"
PARTS = {
    TPROF: [],
    "tprof, paused": ["--paused"],
    "tprof, calls by hooks": ["--cuda-calls", "hooks"],
    "tprof, no operators": ["--operators", "off"],
    "tprof, no allocations": ["--mem", "off"],
    "tprof, no CPU samples": ["--activities", "gpu,mem,comm,nvtx"],
    "tprof, only the GPU": ["--activities", "gpu", "--mem", "off", "--operators", "off"],
    "tprof, no GPU": ["--activities", "cpu,mem,comm,nvtx"],
}
FEWEST = 2


def file_of(number, name):
    """Returns the name of the file of one run of the job, made of the round and of what it ran under."""
    return f"{number}-{re.sub('[ ,]+', '-', name)}.json"


def interval(values):
    """Returns the 95 % interval of a median by order statistics, or None for fewer than six values, which have none."""
    count, outside, rank = len(values), 0.0, 0
    while rank < count // 2 and (outside := outside + math.comb(count, rank) / 2**count) <= 0.025:
        rank += 1
    return None if rank == 0 else (sorted(values)[rank - 1], sorted(values)[count - rank])


def rounds_of(folder):
    """Returns {round: {name: stretch}} of the runs that ended."""
    found = {}
    for number in range(200):
        for name in (NATIVE, FLOOR, *PARTS):
            for stretch in folder.json(file_of(number, name)) or []:
                called = stretch["name"] if name == FLOOR else name
                found.setdefault(number, {})[called] = stretch
    return found


def place(name):
    """Returns the place of a name in the table: names that record less come first."""
    parts, floors = list(PARTS), [NOTHING, BASE]
    if name in parts:
        return 3, parts.index(name), name
    if name.startswith(ALL):
        return 2, 0, name
    return int(name != NATIVE), floors.index(name) if name in floors else len(floors), name


def median_ms(stretch):
    return statistics.median(stretch["step_ns"]) / 1e6


def against(rounds, name, other):
    """Returns (median difference in ms, its interval) between two names in the same rounds, or None."""
    both = [(of[name], of[other]) for of in rounds.values() if name in of and other in of]
    if len(both) < FEWEST:
        return None
    differences = [median_ms(one) - median_ms(base) for one, base in both]
    return statistics.median(differences), interval(differences)


def in_words(difference):
    if difference is None:
        return "-"
    middle, between = difference
    return f"{middle:+.3f}" + (f" ({between[0]:+.3f} to {between[1]:+.3f})" if between else " (too few rounds)")


def recorded(name, rounds, facts):
    """Returns the (records, bytes) per step that CUPTI delivered, or None if they were not counted."""
    if name in facts["parts"]:
        kinds = facts["parts"][name].values()
        return sum(of[0] for of in kinds) / facts["steps"], sum(of[1] for of in kinds) / facts["steps"]
    counted = [of[name] for of in rounds.values() if "records" in of.get(name, {})]
    if not counted:
        return None
    per_step = lambda key: statistics.median(one[key] / len(one["step_ns"]) for one in counted)
    return per_step("records"), per_step("bytes")


def judge(bundle, findings):
    folder = bundle.folder("recording")
    facts, rounds = folder.json("records.json"), rounds_of(folder)
    if facts is None or len(rounds) < FEWEST:
        return findings.not_checked("recording: what it costs a step", "the job did not run, or in fewer than two rounds")
    names = sorted({name for of in rounds.values() for name in of}, key=place)
    job = "an eager transformer" if facts["work"] == "eager" else "540 copies within the device, without PyTorch"
    table = [("ms a step, " + job, "median", "to native, 95 %", "to all of tprof, or the least floor", "records", "bytes")]
    for name in names:
        steps = [one for of in rounds.values() if name in of for one in of[name]["step_ns"]]
        own = TPROF if name in PARTS and name != TPROF else BASE if name.startswith(FLOOR) and name != BASE else None
        to_native, counts = against(rounds, name, NATIVE) if name != NATIVE else None, recorded(name, rounds, facts)
        numbers = [f"{round(value):,}" for value in counts] if counts else ["-", "-"]
        middle = statistics.median(median_ms(of[name]) for of in rounds.values() if name in of)
        table.append((name, f"{middle:.3f}", in_words(to_native), in_words(own and against(rounds, name, own)), *numbers))
        findings.add(f"recording: {name}", min(steps) > 0, median_ms=round(middle, 4), rounds=sum(name in of for of in rounds.values()),
                     to_native_ms=to_native and round(to_native[0], 4), records_a_step=counts and round(counts[0]))
    judge_floor(rounds, findings)
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    findings.tables.append([re.sub(" +$", "", "  ".join(cell.ljust(width) for cell, width in zip(row, widths))) for row in table])
    return None


def judge_floor(rounds, findings):
    """Fails if a floor did not record what its name says."""
    floors = [(name, one) for of in rounds.values() for name, one in of.items() if name.startswith(FLOOR)]
    if not floors:
        return findings.not_checked("recording: the floor records", "it did not run: the step `recording, floor` states why")
    refused = [f"{name}: {one['refused'][0]}" for name, one in floors if one["refused"]]
    silent = [name for name, one in floors if (one["records"] > 0) != (name != NOTHING)]
    findings.compare("recording: CUPTI accepts what the floor asks for", refused, len(floors))
    findings.compare("recording: the floor records, and nothing where nothing is on", silent, len(floors),
                     dropped=sum(one["dropped"] for _, one in floors))
    return None
