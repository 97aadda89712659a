"""Faults of the check and of tprof that later ones don't have: an archive shows those of the ones that made it.

What is judged from an archive's own evidence by the layouts of today (CUPTI's buffers) is no matter of age. Of the
rest, exactly what an older one is known to do is not checked, with the reason; all else fails as ever.
"""

import collections

# Edition of the evidence that this check gathers. In edition 2, memory.py takes its baseline after a kernel, tables
# have counters, and tprof knows CUPTI's event records, matches memory by size, and keeps what comes before `_exit`.
EDITION = 2
EVENT, MEMORY = 36, 49
NEAR_NS = 1_000_000


def edition(bundle):
    """Of the check that made a bundle."""
    return (bundle.json("facts.json") or {}).get("edition", 1)


class Evidence:
    """Whether a fault is one that edition 1 is known for, by CUPTI's records of the same process."""

    def __init__(self, of, raw):
        self.raw = raw if of < 2 else None

    def are_only_events(self, losses):
        """Whether all that is lost is CUPTI's records of events, which were of an unknown kind."""
        events = len(self.raw.of_kind(EVENT)) if self.raw else 0
        found = [(loss["what"], loss["why"], loss["count"]) for loss in losses]
        return bool(events) and found == [("GPU records", "they are of kinds unknown to this tprof", events)]

    def is_twice(self, rows, size):
        """Whether a block is there twice because CUPTI's record of a mapping, which had its address less than a
        millisecond before, was taken for the hook's call, whose size was not compared."""
        taken = [row for row in rows if not row.free and row.bytes == size and row.memory == "device"]
        sources = collections.Counter(row.correlation is not None for row in taken)
        if self.raw is None or sources != {True: 1, False: 1} or taken[0].address != taken[1].address:
            return False
        there = [record for record in self.raw.of_kind(MEMORY)
                 if record.address == taken[0].address and record.memoryOperationType == 1]
        own = [record.timestamp for record in there if record.bytes == size]
        return len(own) == 1 and any(0 < own[0] - record.timestamp < NEAR_NS for record in there if record.bytes != size)
