"""Reads the file that `TPROF_CUPTI_RECORD=FILE` makes tprof write: CUPTI's buffers, the texts that they name, and
the journal of the calls between CUPTI and the agent. Uses none of tprof's own tables.

`raw.py FILE` prints a summary.
"""

import bisect
import collections
import struct
import sys

import layouts

HEAD = struct.Struct("=8sIIII")  # magic, kind of block, pid, CUPTI's version, length
ENTRY = struct.Struct("=IIQQQQ")  # what, thread, CLOCK_MONOTONIC ns, three numbers
BUFFER, TEXT, JOURNAL = 1, 2, 3
WHAT = {
    1: "began", 2: "set up", 3: "registered", 4: "enabled", 5: "chosen", 6: "client", 7: "requested", 8: "completed",
    9: "flushed", 10: "clocks", 11: "dropped", 12: "read", 13: "lost",
}

Entry = collections.namedtuple("Entry", "what thread at_ns one two three")
# Tolerance beyond the uncertainty of a pair of readings, because the clocks drift between two pairs.
SLACK_NS = 100_000
BURST_NS = 1_000_000
MAX_LIMIT_REACHED = 12  # CUPTI_ERROR_MAX_LIMIT_REACHED: the buffer has no further record


class Unreadable(Exception):
    """The file doesn't have the expected format."""


class Buffer:
    """A buffer as CUPTI delivered it: `records` of (kind, struct), and the number of `unread` bytes behind the
    last."""

    def __init__(self, data, sizes):
        self.bytes = len(data)
        self.records, at = [], 0
        while at + 4 <= len(data):
            kind = struct.unpack_from("=I", data, at)[0]
            size = sizes.get(layouts.CONCURRENT_KERNEL if kind == layouts.KERNEL else kind)
            of = layouts.STRUCTS.get(kind)
            if size is None or at + size > len(data):
                break
            # A record may be shorter than the struct only by the struct's padding.
            whole = data[at : at + size].ljust(max(size, layouts.ctypes.sizeof(of)), b"\0")
            self.records.append((kind, of.from_buffer_copy(whole)))
            at += size
        self.unread = len(data) - at


class Raw:
    """One process's part of a file."""

    def __init__(self, pid, version):
        self.pid, self.version = pid, version
        self.buffers, self.texts, self.journal = [], {}, []

    def of_kind(self, *kinds):
        return [record for buffer in self.buffers for kind, record in buffer.records if kind in kinds]

    def entries(self, *what):
        return [entry for entry in self.journal if entry.what in what]

    def name(self, address):
        return self.texts.get(address)


def read(path):
    """Returns {pid: Raw}."""
    with open(path, "rb") as file:
        data = file.read()
    found, at = {}, 0
    while at < len(data):
        if at + HEAD.size > len(data):
            raise Unreadable(f"{path} ends within a block")
        magic, kind, pid, version, length = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size : at + HEAD.size + length]
        if magic != b"TPROFRAW" or len(body) != length:
            raise Unreadable(f"{path} has no whole block at byte {at}")
        raw = found.setdefault(pid, Raw(pid, version))
        if kind == BUFFER:
            raw.buffers.append(Buffer(body, layouts.sizes_of(version)))
        elif kind == TEXT:
            if length < 8:
                raise Unreadable(f"{path} has a text without an address at byte {at}")
            raw.texts[struct.unpack_from("=Q", body)[0]] = body[8:].decode(errors="replace")
        elif kind == JOURNAL:
            if length % ENTRY.size:
                raise Unreadable(f"{path} has half an entry of the journal at byte {at}")
            for what, *rest in ENTRY.iter_unpack(body):
                raw.journal.append(Entry(WHAT.get(what, f"unknown {what}"), *rest))
        at += HEAD.size + length
    return found


class Clock:
    """Converts CUPTI's clock to CLOCK_MONOTONIC, with the journal's pairs of readings."""

    def __init__(self, raw):
        # For each time, the narrowest of the neighbouring pairs is used.
        joins = [(e.one, e.at_ns + e.two / 2, e.two) for e in raw.entries("clocks") if e.three == 0]
        self.joins = sorted(joins)
        self.times = [foreign for foreign, _, _ in self.joins]

    def monotonic(self, foreign):
        """Returns (CLOCK_MONOTONIC ns, its uncertainty), or None."""
        if not self.joins:
            return None
        at = bisect.bisect(self.times, foreign)
        near = self.joins[max(0, at - 8) : at + 8]
        best = min(near, key=lambda join: join[2] + abs(join[0] - foreign) * 1e-5)
        return foreign - best[0] + best[1], best[2] + abs(best[0] - foreign) * 1e-4

    def uncertainty_ns(self):
        """Returns the width of the narrowest pair in the worst burst of readings, which is the largest error of a
        join by tprof."""
        worst = narrowest = 0
        for before, join in zip([None, *self.joins], self.joins):
            if before is None or join[0] - before[0] > BURST_NS:
                worst, narrowest = max(worst, narrowest), join[2]
            narrowest = min(narrowest, join[2])
        return max(worst, narrowest)


def main():
    for pid, raw in read(sys.argv[1]).items():
        kinds = collections.Counter(layouts.STRUCTS[k].__name__ for b in raw.buffers for k, _ in b.records)
        events = collections.Counter(entry.what for entry in raw.journal)
        print(f"process {pid}, CUPTI {raw.version}: {len(raw.buffers)} buffers, {dict(kinds)}")
        print(f"journal: {dict(events)}; unread bytes: {sum(b.unread for b in raw.buffers)}")


if __name__ == "__main__":
    main()
