"""Recognizes, in archives that older editions of this check made, faults that these editions or their tprof are known
for.

An archive contains CUPTI's raw buffers, and faults that show in these don't depend on the edition. A known fault of an
older edition is reported as not checked, with the reason. Every other fault is a failure.
"""

import collections

# Edition of the evidence that this check gathers. Since edition 2, memory.py takes its baseline after a kernel, tables
# have counters, and tprof knows CUPTI's event records, matches memory by size, and keeps events from before `_exit`.
EDITION = 2
EVENT, MEMORY = 36, 49
NEAR_NS = 1_000_000


def edition(bundle):
    """Returns the edition of the check that made a bundle."""
    return (bundle.json("facts.json") or {}).get("edition", 1)


class Evidence:
    """Recognizes the faults that edition 1 is known for, with CUPTI's records of the same process."""

    def __init__(self, of, raw):
        self.raw = raw if of < 2 else None

    def are_only_events(self, losses):
        """Whether all losses are CUPTI's records of events, which edition 1 counted as an unknown kind."""
        events = len(self.raw.of_kind(EVENT)) if self.raw else 0
        found = [(loss["what"], loss["why"], loss["count"]) for loss in losses]
        return bool(events) and found == [("GPU records", "they are of kinds unknown to this tprof", events)]

    def is_twice(self, rows, size):
        """Whether a block is there twice because tprof took the hook's call for CUPTI's record of a mapping that had
        the block's address less than a millisecond before. Edition 1 did not compare the sizes."""
        taken = [row for row in rows if not row.free and row.bytes == size and row.memory == "device"]
        sources = collections.Counter(row.correlation is not None for row in taken)
        if self.raw is None or sources != {True: 1, False: 1} or taken[0].address != taken[1].address:
            return False
        there = [record for record in self.raw.of_kind(MEMORY)
                 if record.address == taken[0].address and record.memoryOperationType == 1]
        own = [record.timestamp for record in there if record.bytes == size]
        return len(own) == 1 and any(0 < own[0] - record.timestamp < NEAR_NS for record in there if record.bytes != size)
