"""Compares tprof's rows with CUPTI's own records of the same process, field by field."""

import collections

import layouts
from raw import SLACK_NS, Clock

UNIT_COPY = {1: "h2d", 2: "d2h", 8: "d2d", 9: "h2h"}
MEMORY = {1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed", 6: "device_static", 7: "managed_static"}
WAIT = {1: "event", 2: "stream_wait_event", 3: "stream", 4: "context"}
NONE = 0xFFFFFFFF


def timed(records):
    """Returns the records that have times. CUPTI writes zeros if it had no memory for them."""
    return [record for record in records if record.start and record.end >= record.start]


def measured(time):
    return None if time in (0, 2**64 - 1) else time


def kernel_record(record, name):
    return (
        name(record.name), record.deviceId, record.contextId, record.streamId, record.correlationId,
        record.gridX, record.gridY, record.gridZ, record.blockX, record.blockY, record.blockZ,
        record.registersPerThread, record.staticSharedMemory, record.dynamicSharedMemory,
        record.graphId or None, record.graphNodeId or None, record.end - record.start,
    )


def kernel_row(row):
    return (
        row.name, row.device, row.context, row.stream, row.correlation, row.grid_x, row.grid_y, row.grid_z,
        row.block_x, row.block_y, row.block_z, row.registers, row.shared_static_bytes or 0,
        row.shared_dynamic_bytes or 0, row.graph or None, row.graph_node or None, row.duration_ns,
    )


def copy_record(record):
    kind = type(record).__name__
    place = (record.deviceId, record.contextId, record.streamId, record.correlationId)
    graph = (record.graphId or None, record.graphNodeId or None, record.end - record.start)
    if kind == "Memset":
        return ("memset", record.bytes, None, MEMORY.get(record.memoryKind), *place, *graph)
    memory = (MEMORY.get(record.srcKind), MEMORY.get(record.dstKind))
    name = "p2p" if kind == "MemcpyPeer" else UNIT_COPY.get(record.copyKind)
    return (name, record.bytes, *memory, *place, *graph)


def copy_row(row):
    place = (row.device, row.context, row.stream, row.correlation)
    graph = (row.graph or None, row.graph_node or None, row.duration_ns)
    known = lambda memory: None if memory == "unknown" else memory
    kind = None if row.kind == "unknown" else row.kind
    return (kind, row.bytes, known(row.from_memory), known(row.to_memory), *place, *graph)


def difference(records, rows):
    """Describes the rows that only one side has."""
    only = lambda one, other: [f"{n} × {facts}" for facts, n in (one - other).items()]
    left, right = collections.Counter(records), collections.Counter(rows)
    return [f"CUPTI only: {text}" for text in only(left, right)] + [f"tprof only: {text}" for text in only(right, left)]


def judge_names(raw, kernels):
    """Checks {address: name} against the names that tprof wrote, which are demangled: they are matched by correlation,
    and each address must have one name."""
    names = collections.defaultdict(set)
    by_key = collections.defaultdict(set)
    for row in kernels:
        by_key[row.correlation, row.graph_node or None, row.stream, row.duration_ns].add(row.name)
    for record in timed(raw.of_kind(layouts.CONCURRENT_KERNEL, layouts.KERNEL)):
        key = record.correlationId, record.graphNodeId or None, record.streamId, record.end - record.start
        if len(by_key[key]) == 1:
            names[raw.name(record.name)] |= by_key[key]
    return names


def judge_kernels(what, raw, kernels, findings):
    names = judge_names(raw, kernels)
    wrong = [f"{text} became {sorted(found)}" for text, found in names.items() if len(found) > 1]
    # A name that is not C++ stays unchanged.
    wrong += [f"{text} became {sorted(found)}" for text, found in names.items()
              if text and not text.startswith("_Z") and found != {text}]
    name = lambda address: next(iter(names.get(raw.name(address)) or ["?"]))
    records = [kernel_record(r, name) for r in timed(raw.of_kind(layouts.CONCURRENT_KERNEL, layouts.KERNEL))]
    wrong += difference(records, [kernel_row(row) for row in kernels])
    findings.compare(f"{what}: kernels are CUPTI's records", wrong, len(records))


def judge_copies(what, raw, copies, findings):
    records = [copy_record(record) for record in timed(raw.of_kind(1, 2, 22))]
    wrong = difference(records, [copy_row(row) for row in copies])
    findings.compare(f"{what}: copies are CUPTI's records", wrong, len(records))


def judge_calls(what, raw, spans, findings):
    """Each call has one span: it is neither lost nor recorded twice. Records of calls have numbers and no names, so
    numbers and names must belong together one to one. The agent's own calls are not the program's."""
    by_kind = {4: "driver", 5: "runtime"}
    agent = {entry.thread for entry in raw.entries("flushed")}
    records = [(by_kind[kind], record) for buffer in raw.buffers for kind, record in buffer.records
               if kind in by_kind and record.threadId not in agent]
    rows = [row for row in spans if row.kind in ("runtime", "driver") and row.correlation is not None]
    of = lambda kind, record: (kind, record.threadId, record.correlationId, record.end - record.start, record.returnValue)
    of_row = lambda row: (row.kind, row.tid, row.correlation, row.duration_ns, row.status)
    records = [(of(kind, record), record.cbid) for kind, record in records if record.start and record.end >= record.start]
    wrong = difference([key for key, _ in records], map(of_row, rows))
    names, name_of = collections.defaultdict(set), {of_row(row): row.name for row in rows}
    for key, number in records:
        if key in name_of:
            names[key[0], number].add(name_of[key])
    wrong += [f"number {number} became {sorted(found)}" for number, found in names.items() if len(found) > 1]
    findings.compare(f"{what}: calls are CUPTI's records", wrong, len(records))


def judge_waits(what, raw, waits, findings):
    def of(record):
        event = None if record.cudaEventId == NONE or record.type not in (1, 2) else record.cudaEventId
        stream = None if record.streamId == NONE else record.streamId
        return (WAIT.get(record.type, "unknown"), record.contextId, stream, record.correlationId, event,
                record.end - record.start)

    of_row = lambda row: (row.kind, row.context, row.stream, row.correlation,
                          row.event if row.kind in ("event", "stream_wait_event") else None, row.duration_ns)
    records = [of(record) for record in timed(raw.of_kind(38))]
    wrong = difference(records, [of_row(row) for row in waits])
    findings.compare(f"{what}: waits are CUPTI's records", wrong, len(records))


def judge_times(what, raw, run, kernels, findings):
    """Compares when kernels began with the journal's own join of the two clocks."""
    clock, wrong, most = Clock(raw), [], 0
    slack_ns = SLACK_NS + clock.uncertainty_ns()
    rows = {(row.correlation, row.graph_node or None, row.stream, row.duration_ns): row.start_ns for row in kernels}
    compared = 0
    for record in timed(raw.of_kind(layouts.CONCURRENT_KERNEL, layouts.KERNEL)):
        key = record.correlationId, record.graphNodeId or None, record.streamId, record.end - record.start
        at = clock.monotonic(record.start)
        if key in rows and at:
            compared += 1
            off = abs(rows[key] + run["start_ns"] - at[0])
            most = max(most, off)
            if off > at[1] + slack_ns:
                wrong.append(f"correlation {key[0]} is {off:.0f} ns off")
    findings.compare(f"{what}: kernels begin when CUPTI states it", wrong, compared, largest_ns=round(most))


def judge(what, folder, findings):
    """Judges one run with raw buffers: `folder` has raw.cupti, run.json and tables.json.gz."""
    raw, run = folder.raw(), folder.json("run.json")
    if raw is None or run is None or not folder.has("tables.json.gz"):
        return findings.not_checked(f"{what}: rows are CUPTI's records", "there is no recorded run with raw buffers")
    kernels = folder.table("kernels")
    judge_kernels(what, raw, kernels, findings)
    judge_copies(what, raw, folder.table("copies"), findings)
    judge_calls(what, raw, folder.table("spans"), findings)
    judge_waits(what, raw, folder.table("synchronizations"), findings)
    judge_times(what, raw, run, kernels, findings)
