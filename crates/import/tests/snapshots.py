"""Writes the memory snapshots of tests/corpus, in the documented form of PyTorch's files.

python3 crates/import/tests/snapshots.py crates/import/tests/corpus
"""

import pickle
import sys
from pathlib import Path

MIB = 1 << 20
PYTHON = [
    {"name": "forward", "filename": "/home/u/model.py", "line": 12},
    {"name": "train", "filename": "/home/u/train.py", "line": 40},
]
NATIVE = {"name": "at::empty_cuda(c10::ArrayRef<long>)", "filename": "??", "line": 0}
ALLOC, GRAD = [NATIVE, *PYTHON], [{"name": "step", "filename": "/home/u/train.py", "line": 51}]


def segment(device, address, blocks, newer, pool=(0, 0), expandable=False, stream=0):
    """Returns a segment of blocks, each given as (bytes, requested bytes or None if free, frames)."""
    rows, at = [], address
    for size, asked, frames in blocks:
        row = {
            "size": size,
            "requested_size": asked or 0,
            "state": "inactive" if asked is None else "active_allocated",
            "frames": frames,
        }
        if newer:
            row["address"] = at
        rows.append(row)
        at += size
    held = sum(row["size"] for row in rows if row["state"] != "inactive")
    result = {
        "device": device,
        "address": address,
        "total_size": at - address,
        "allocated_size": held,
        "active_size": held,
        "requested_size": sum(row["requested_size"] for row in rows),
        "stream": stream,
        "segment_type": "large",
        "frames": ALLOC,
        "blocks": rows,
    }
    if newer:
        result |= {"segment_pool_id": pool, "is_expandable": expandable}
    return result


def entry(action, address, size, time_us=None, frames=ALLOC):
    """Returns an entry of the history."""
    where = "device_free" if action == "oom" else "addr"
    row = {"action": action, where: address, "size": size, "stream": 0, "frames": frames}
    if time_us is not None:
        row |= {"time_us": time_us, "compile_context": "N/A", "user_metadata": ""}
    return row


def history(base, newer):
    """Returns a history: a (40 MiB) and b (10 MiB) are allocated, a is freed, c (50 MiB) needs another
    segment, and one more request runs out of memory.
    """
    steps = [
        ("segment_alloc", base, 60 * MIB),
        ("alloc", base, 40 * MIB),
        ("alloc", base + 40 * MIB, 10 * MIB),
        ("free_requested", base, 40 * MIB),
        ("free_completed", base, 40 * MIB),
        ("segment_alloc", base + (1 << 30), 50 * MIB),
        ("alloc", base + (1 << 30), 50 * MIB),
        ("oom", 7 * MIB, 900 * MIB),
        ("snapshot", 0, 0),
    ]
    start = 1_748_000_000_000_000
    return [
        entry(*step, start + 1000 * at if newer else None, GRAD if at == 6 else ALLOC)
        for at, step in enumerate(steps)
    ]


def snapshot(newer):
    base = 0x7F3A_0000_0000
    first = [(40 * MIB, None, []), (10 * MIB, 10 * MIB, ALLOC), (10 * MIB, None, [])]
    second = [(50 * MIB, 50 * MIB, GRAD)]
    result = {
        "segments": [
            segment(0, base, first, newer),
            segment(0, base + (1 << 30), second, newer, (0, 3), True, 7),
            segment(1, base + (2 << 30), [(2 * MIB, MIB, ALLOC), (MIB, None, [])], newer),
        ],
        "device_traces": [history(base, newer), []],
    }
    if newer:
        result |= {
            "allocator_settings": {"expandable_segments": True, "max_split_size": -1},
            "external_annotations": [],
            "host_segments": [],
            "host_traces": [entry("alloc", 0x1000, 4096, 1_748_000_000_000_500)],
        }
    return result


def main():
    folder = Path(sys.argv[1])
    empty = {"segments": [], "device_traces": [], "allocator_settings": {}}
    empty |= {"external_annotations": [], "host_segments": [], "host_traces": []}
    files = {
        "snapshot-older.pickle": (snapshot(newer=False), 2),
        "snapshot-newer.pickle": (snapshot(newer=True), 4),
        "snapshot-empty.pickle": (empty, 5),
    }
    for name, (value, protocol) in files.items():
        (folder / name).write_bytes(pickle.dumps(value, protocol=protocol))


if __name__ == "__main__":
    main()
