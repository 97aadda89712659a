//! Makes the tables of memory snapshots.

use tprof_document::{Cell, Column, RankContext, Table, Unit, View};

use super::snapshot::{MemorySnapshot, SegmentSums};

const NO_SEGMENTS: &str = "the snapshot holds no segment: the allocator had no device memory";
const NO_REQUESTED: &str = "the snapshot has no requested sizes of its blocks";
const NO_BLOCKS: &str = "the snapshot lists no blocks of these segments";
const NO_HISTORY: &str = "no history; _record_memory_history() before the work records it";
const NO_TIMES: &str = "entries of this snapshot have no times, only an order";

/// Ranks that are memory snapshots.
pub(super) type Parts<'p> = Vec<(&'p RankContext, &'p MemorySnapshot)>;

/// Makes the tables of memory snapshots; empty if no rank is one.
pub(super) fn tables(parts: &Parts<'_>) -> Vec<Table> {
    if parts.is_empty() {
        return Vec::new();
    }
    vec![devices(parts), groups(parts), stacks(parts), actions(parts), settings(parts)]
}

/// Returns the columns for the sums of segments. `cells` returns the cells of a row in the same
/// order.
fn sums() -> Vec<Column> {
    vec![
        Column::new("segments", "segments", Unit::Count),
        Column::new("held_bytes", "held", Unit::Bytes),
        Column::new("in_use_bytes", "in use", Unit::Bytes),
        Column::data("asked_bytes", Unit::Bytes),
        Column::data("live_blocks", Unit::Count),
        Column::data("awaiting_bytes", Unit::Bytes),
        Column::new("free_bytes", "free", Unit::Bytes),
        Column::new("largest_free_bytes", "largest", Unit::Bytes),
        Column::new("stranded_bytes", "stranded", Unit::Bytes),
    ]
}

fn cells(held: &SegmentSums) -> Vec<Cell> {
    let known = |bytes: u64| Cell::known((held.unknown == 0).then_some(bytes), NO_BLOCKS);
    let asked = held.requested.filter(|_| held.unknown == 0);
    vec![
        held.segments.into(),
        held.reserved.into(),
        known(held.allocated),
        Cell::known(asked, NO_REQUESTED),
        known(held.blocks),
        known(held.awaiting),
        known(held.free),
        known(held.largest_free),
        known(held.stranded),
    ]
}

fn devices(parts: &Parts<'_>) -> Table {
    let mut columns =
        vec![Column::new("rank", "rank", Unit::Text), Column::new("device", "device", Unit::Id)];
    columns.extend(sums());
    let mut table = Table::new("snapshot", "The allocator when the snapshot was taken", columns)
        .about("stranded: free in segments of which other blocks are in use")
        .empty(NO_SEGMENTS);
    for (at, snapshot) in parts {
        for (device, held) in snapshot.by_device() {
            let mut row = vec![at.label.as_str().into(), Cell::applies(device)];
            row.extend(cells(&held));
            table.row(row);
        }
    }
    table
}

fn groups(parts: &Parts<'_>) -> Table {
    let mut columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device", "device", Unit::Id),
        Column::new("private_pool", "pool", Unit::Text),
        Column::new("stream", "stream", Unit::Id),
        Column::new("segment_type", "type", Unit::Text),
        Column::data("expandable", Unit::Flag),
    ];
    columns.extend(sums());
    let mut table = Table::new("segments", "Segments by pool and stream", columns)
        .about("pool 0.0: the default one; others are of CUDA graphs or of the program")
        .empty(NO_SEGMENTS);
    for (at, snapshot) in parts {
        for (group, held) in &snapshot.groups {
            let mut row = vec![
                at.label.as_str().into(),
                Cell::applies(group.device),
                Cell::applies(group.pool.map(|(major, minor)| format!("{major}.{minor}"))),
                group.stream.into(),
                group.kind.as_str().into(),
                Cell::applies(group.expandable),
            ];
            row.extend(cells(held));
            table.row(row);
        }
    }
    table
}

fn stacks(parts: &Parts<'_>) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device", "device", Unit::Id),
        Column::new("live_bytes", "in use", Unit::Bytes),
        Column::new("live_blocks", "blocks", Unit::Count),
        Column::new("stack", "allocated by", Unit::Name),
    ];
    let mut table = Table::new("live_stacks", "Stacks of blocks in use", columns)
        .about("innermost frame first")
        .empty("no block was in use when the snapshot was taken");
    for (at, snapshot) in parts {
        for row in &snapshot.stacks {
            let stack = (!row.stack.is_empty()).then(|| row.stack.join(" < "));
            table.row(vec![
                at.label.as_str().into(),
                Cell::applies(row.device),
                row.bytes.into(),
                row.blocks.into(),
                Cell::known(stack, "the snapshot has no stack of these blocks"),
            ]);
        }
    }
    table
}

fn actions(parts: &Parts<'_>) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device", "device", Unit::Id),
        Column::new("action", "action", Unit::Text),
        Column::new("entries", "entries", Unit::Count),
        Column::new("bytes", "bytes", Unit::Bytes),
    ];
    let mut table =
        Table::new("history", "Entries of the history", columns).view(View::Data).empty(NO_HISTORY);
    for (at, snapshot) in parts {
        for ((device, action), (entries, bytes)) in &snapshot.actions {
            table.row(vec![
                at.label.as_str().into(),
                Cell::applies(*device),
                action.as_str().into(),
                (*entries).into(),
                (*bytes).into(),
            ]);
        }
    }
    table
}

fn settings(parts: &Parts<'_>) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("setting", "setting", Unit::Text),
        Column::new("value", "value", Unit::Text),
    ];
    let mut table = Table::new("allocator_settings", "Settings of the allocator", columns)
        .empty("the snapshot has no settings (an older PyTorch)");
    for (at, snapshot) in parts {
        for (key, value) in &snapshot.settings {
            table.row(vec![at.label.as_str().into(), key.as_str().into(), value.as_str().into()]);
        }
    }
    table
}

/// Returns a moment on the run's clock; missing if the snapshot has only positions in a sequence.
pub(super) fn moment(at: &RankContext, timed: bool, time_ns: u64) -> Cell {
    Cell::known(timed.then(|| at.clock.since_start(time_ns)), NO_TIMES)
}

/// Returns notes on these snapshots, each a sentence.
pub(super) fn notes(parts: &Parts<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    for (at, snapshot) in parts {
        if snapshot.groups.is_empty() && snapshot.actions.is_empty() {
            notes.push(format!(
                "{}: the memory snapshot is empty, which is not zero usage: PyTorch used no GPU \
                 in that process, or recorded nothing",
                at.label
            ));
        } else if !snapshot.timed && !snapshot.actions.is_empty() {
            notes.push(format!("{}: {NO_TIMES}", at.label));
        }
    }
    notes
}
