"""Judges the protocol between CUPTI and the agent, from the journal of their calls."""

import layouts
from raw import MAX_LIMIT_REACHED

BEST_RATE = 1e-3
STEP_NS = 1_000_000


def judge_buffers(what, raw, findings):
    """A buffer is lent before it comes back, comes back once, and has no more bytes than it can hold."""
    lent, wrong, full = {}, [], 0
    for entry in raw.entries("requested", "completed"):
        if entry.what == "requested":
            lent[entry.one] = entry.two
        elif entry.one not in lent:
            wrong.append(f"thread {entry.thread} returned {entry.one:#x}, which was not lent")
        else:
            full += 1
            if entry.two > lent.pop(entry.one):
                wrong.append(f"{entry.two} bytes in a smaller buffer")
    findings.compare(f"{what}: buffers come back once, as they were lent", wrong, full, still_lent=len(lent))
    requests = raw.entries("requested")
    refused = [f"at {entry.at_ns}" for entry in requests if entry.one == 0]
    findings.compare(f"{what}: each request got a buffer", refused, len(requests))


def judge_records(what, raw, findings):
    """CUPTI's reader and ours walk each buffer alike, and the lengths of records are those of the headers."""
    reads, wrong = raw.entries("read"), []
    for entry, buffer in zip(reads, raw.buffers):
        if entry.two != len(buffer.records) or buffer.unread and entry.three == MAX_LIMIT_REACHED:
            wrong.append(f"CUPTI walks {entry.two} records, the layouts {len(buffer.records)}, {buffer.unread} bytes unread")
    if len(reads) != len(raw.buffers):
        wrong.append(f"{len(reads)} reads of {len(raw.buffers)} buffers")
    findings.compare(f"{what}: CUPTI and the layouts find the same records", wrong, len(reads))


def judge_results(what, raw, findings):
    """Judges which kinds were enabled, and which calls failed."""
    enabled = raw.entries("enabled")
    refused = [f"kind {entry.one}: {entry.two}" for entry in enabled if entry.two]
    refused += [f"registration: {entry.one}" for entry in raw.entries("registered") if entry.one]
    findings.compare(f"{what}: CUPTI accepts callbacks and kinds", refused, len(enabled))
    flushes = raw.entries("flushed")
    failed = [f"flush {entry.one}: {entry.two}" for entry in flushes if entry.two]
    took = sorted(entry.three for entry in flushes)
    at = lambda share: took[min(len(took) - 1, int(share * len(took)))] if took else None
    findings.compare(f"{what}: flushes succeed", failed, len(flushes), p50_ns=at(0.5), p99_ns=at(0.99), max_ns=at(1))
    dropped = sum(entry.one for entry in raw.entries("dropped"))
    findings.add(f"{what}: CUPTI drops no record", dropped == 0, dropped=dropped)
    lost = sum(entry.one for entry in raw.entries("lost"))
    findings.add(f"{what}: the journal is whole", bool(raw.journal) and lost == 0, entries=len(raw.journal), lost=lost)


def judge_clock(what, raw, findings):
    """CUPTI's clock counts nanoseconds, and never jumps."""
    joins = [(e.at_ns + e.two / 2, e.one, e.two) for e in raw.entries("clocks") if e.three == 0]
    if len(joins) < 2 or joins[-1][0] - joins[0][0] < 20_000_000:
        return findings.not_checked(f"{what}: CUPTI's clock counts nanoseconds", "the run is shorter than 20 ms")
    host, device = joins[-1][0] - joins[0][0], joins[-1][1] - joins[0][1]
    steps = 0
    for one, other in zip(joins, joins[1:]):
        # A reading that was interrupted has no value.
        if max(one[2], other[2]) < STEP_NS and abs(other[1] - one[1] - other[0] + one[0]) > STEP_NS:
            steps += 1
    rate = device / host
    findings.add(f"{what}: CUPTI's clock counts nanoseconds", abs(rate - 1) <= BEST_RATE and steps == 0,
                 rate=round(rate, 6), steps=steps)


def judge_beginning(what, raw, truth, findings):
    """After the set-up, which runs within cuInit, no call into CUPTI is made until cuInit has returned (a driver that
    takes seconds may hold its locks)."""
    check = f"{what}: no call into CUPTI while cuInit runs, but to set up"
    ends = (truth or {}).get("cu_init")
    set_up = raw.entries("set up")
    if not ends or not set_up:
        return findings.not_checked(check, "the program or the journal states no time")
    inside = [entry for entry in raw.entries("flushed", "clocks", "dropped")
              if set_up[0].at_ns < entry.at_ns < ends[1]]
    first = next((entry for entry in raw.entries("flushed")), None)
    return findings.add(check, not inside, calls=len(inside), cu_init_ns=ends[1] - ends[0],
                        first_flush_after_ns=first and first.at_ns - ends[1])


def beliefs(what, raw, findings):
    """Notes facts that the stand-ins assume: which threads ask for buffers and return them, how many devices there are,
    which record comes first. It only fails if there are no records."""
    asking = {entry.thread for entry in raw.entries("requested")}
    returning = {entry.thread for entry in raw.entries("completed")}
    kinds = [layouts.STRUCTS[kind].__name__ for buffer in raw.buffers for kind, _ in buffer.records]
    lent = len(raw.entries("requested")) - len(raw.entries("completed"))
    facts = {"threads_that_ask": len(asking), "threads_that_return": len(returning), "never_returned": lent}
    facts |= {"device_records": kinds.count("Device"), "context_records": kinds.count("Context")}
    findings.add(f"{what}: what CUPTI does with buffers", bool(kinds), version=raw.version, **facts)


def judge(what, folder, truth, findings):
    """Judges one run with raw buffers."""
    raw = folder.raw()
    if raw is None:
        return findings.not_checked(f"{what}: journal", "there are no raw buffers")
    judge_buffers(what, raw, findings)
    judge_records(what, raw, findings)
    judge_results(what, raw, findings)
    judge_clock(what, raw, findings)
    judge_beginning(what, raw, truth, findings)
    beliefs(what, raw, findings)
    return None
