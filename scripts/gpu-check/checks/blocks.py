"""Compares the blocks of device memory that tprof recorded with those that PyTorch's allocator lists, one by one."""

TAKEN = {"alloc": False, "free_requested": True}


def of_snapshot(segments):
    """Returns {(device, address): bytes} of the segments and of the blocks in use."""
    places, blocks = {}, {}
    for segment in segments:
        if not segment.get("is_expandable"):
            places[segment["device"], segment["address"]] = segment["total_size"]
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                blocks[segment["device"], address] = block["size"]
            address += block["size"]
    return places, blocks


def live(rows):
    """Returns {(device, address): bytes} of what is held after these changes."""
    held = {}
    for row in rows:
        if row.free:
            held.pop((row.device, row.address), None)
        else:
            held[row.device, row.address] = row.bytes
    return held


def different(listed, recorded):
    """Describes the places that differ."""
    text = lambda of, place: "none" if of.get(place) is None else f"{of[place]} bytes"
    return [f"device {place[0]}, {place[1]:#x}: {text(listed, place)} by PyTorch, {text(recorded, place)} by tprof"
            for place in sorted({*listed, *recorded}) if listed.get(place) != recorded.get(place)]


def judge_changes(check, traces, rows, findings):
    """Compares each change in its order. PyTorch's history has the bytes that were asked for, which the allocator
    rounds up."""
    wrong, compared = [], 0
    for device, trace in enumerate(traces):
        listed = [entry for entry in trace if entry["action"] in TAKEN]
        of_device = [row for row in rows if row.device == device]
        compared += len(listed)
        if len(listed) != len(of_device):
            wrong.append(f"device {device}: {len(listed)} by PyTorch, {len(of_device)} by tprof")
        for number, (entry, row) in enumerate(zip(listed, of_device)):
            is_same = (TAKEN[entry["action"]], entry["addr"]) == (row.free, row.address)
            if not is_same or row.bytes < entry["size"]:
                wrong.append(f"device {device}, change {number}: {entry} by PyTorch, {dict(row)} by tprof")
    findings.compare(f"{check}: each is taken and given back", wrong, compared)


def judge_sums(check, sums, rows, findings):
    """Compares the allocator's own sums with those that came with the blocks."""
    wrong = []
    for what in ("allocated", "reserved"):
        values = [row[f"total_{what}_bytes"] for row in rows]
        for when, value in (("current", values[-1:]), ("peak", [max(values, default=None)])):
            listed = sums[f"{what}_bytes.all.{when}"]
            if value != [listed]:
                wrong.append(f"{what}, {when}: {listed} by PyTorch, {value} by tprof")
    findings.compare(f"{check}: sums and peaks", wrong, len(sums), **sums)


def judge(what, folder, findings):
    """Judges one run: `folder` has blocks.json of the program, run.json and tables.json.gz."""
    found, run = folder.json("blocks.json"), folder.json("run.json")
    if found is None or run is None or not folder.has("tables.json.gz"):
        return findings.not_checked(what, "PyTorch did not run with this allocator")
    changes = sorted(folder.table("device_allocations"), key=lambda row: row.time_ns)
    rows = [row for row in changes if row.allocator == "framework" and row.device is not None]
    segments, blocks = of_snapshot(found["segments"])
    judge_changes(what, found["device_traces"], rows, findings)
    findings.compare(f"{what}: those held at the end", different(blocks, live(rows)), len(blocks))
    judge_sums(what, found["sums"], rows, findings)
    # The libraries that PyTorch uses have memory of their own.
    taken = live([row for row in changes if row.allocator == "library" and row.device is not None])
    taken = {place: bytes for place, bytes in taken.items() if place in segments}
    if segments:
        findings.compare(f"{what}: their segments", different(segments, taken), len(segments))
    else:
        findings.not_checked(f"{what}: their segments", "expandable segments have no address that a hook sees")
    return None
