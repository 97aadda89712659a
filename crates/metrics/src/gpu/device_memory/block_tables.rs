//! Makes the tables of blocks: what held them at the peak, and requests without memory for them.

use tprof_document::{Cell, Column, RankContext, Table, Unit};
use tprof_facts::modules::ModuleName;
use tprof_rank::RankTrace;

use super::RankDeviceMemory;
use super::blocks::{Holder, blocks, holders as by_code};
use super::pools::{Pool, PoolMemory};
use super::snapshot_tables::moment;
use crate::host::code_line;

const NO_BLOCKS: &str =
    "no block of a framework's allocator or of a pool, with an address, was held";
const NO_LINE: &str = "these blocks have no stack with a line";
const NO_STACK: &str = "no stack with a line was recorded with the request";
const NO_ERRORS: &str =
    "no request failed for lack of device memory, as far as allocators report it";
const NO_SEGMENTS: &str =
    "the segments that the allocator held were not all recorded with their blocks";
const NO_RETRIES: &str = "no call for device memory failed at first and succeeded when it was \
                          made again, as far as calls were recorded";
const NO_ASKED: &str = "the call was recorded without its size";
const NO_TOTAL: &str = "the request was recorded without this number";

/// A holder, with the names of its code.
pub(super) struct NamedHolder {
    operator: Option<String>,
    module: Option<String>,
    holder: Holder,
}

/// Returns what held the blocks at the peak of each pool.
pub(super) fn holders_at_peaks(
    rank: &RankTrace<'_>,
    pools: &[PoolMemory],
) -> Vec<(Pool, Vec<NamedHolder>)> {
    let blocks = blocks(rank);
    let named = |holder: Holder| NamedHolder {
        operator: holder.code.operator.map(|name| rank.name(name).to_owned()),
        module: holder.code.module.map(|name| match ModuleName::of(rank.name(name)) {
            Some(module) => module.path.to_owned(),
            None => rank.name(name).to_owned(),
        }),
        holder,
    };
    let of_pool = |memory: &PoolMemory| {
        let peak_ns = memory.peak.time_ns;
        let held = blocks.iter().filter(|block| block.pool == memory.pool);
        let held = by_code(held.filter(|block| block.is_held_at(peak_ns)));
        (memory.pool, held.into_iter().map(named).collect())
    };
    pools.iter().map(of_pool).collect()
}

/// Makes the table of what held the blocks at the peak.
pub(super) fn holders(parts: &[(RankContext, RankDeviceMemory)]) -> Table {
    let mut columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device", "device", Unit::Id),
        Column::new("bytes", "at peak", Unit::Bytes),
        Column::new("blocks", "blocks", Unit::Count),
        Column::new("operator", "operator", Unit::Name),
        Column::new("module", "module", Unit::Name),
    ];
    columns.extend(code_line::columns("line"));
    let mut table = Table::new("holders", "What held the blocks at the peak", columns)
        .about("by the operator, module and line that a block was allocated for")
        .empty(NO_BLOCKS);
    for (at, part) in parts {
        for (pool, held) in &part.holders {
            for NamedHolder { operator, module, holder } in held {
                let mut row = vec![
                    at.label.as_str().into(),
                    Cell::applies(pool.device),
                    holder.bytes.into(),
                    holder.blocks.into(),
                    Cell::applies(operator.as_deref()),
                    Cell::applies(module.as_deref()),
                ];
                row.extend(code_line::cells(holder.code.line.as_ref(), NO_LINE));
                table.row(row);
            }
        }
    }
    table
}

/// Makes the table of requests that failed for lack of memory.
pub(super) fn errors(parts: &[(RankContext, RankDeviceMemory)]) -> Table {
    let mut columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device", "device", Unit::Id),
        Column::new("at_ns", "at", Unit::Time),
        Column::data("entry", Unit::Id),
        Column::new("asked_bytes", "asked for", Unit::Bytes),
        Column::new("allocated_bytes", "allocated", Unit::Bytes),
        Column::new("reserved_bytes", "reserved", Unit::Bytes),
        Column::new("free_bytes", "device had", Unit::Bytes),
        Column::data("free_in_segments_bytes", Unit::Bytes),
        Column::new("largest_piece_bytes", "largest piece", Unit::Bytes),
        Column::new("would_fit", "fits", Unit::Text),
    ];
    columns.extend(code_line::columns("asked by"));
    let mut table = Table::new("errors", "Requests without memory for them", columns)
        .about("fits: whether as much was free within the allocator's segments")
        .empty(NO_ERRORS);
    for (at, part) in parts {
        let is_timed = part.snapshot.as_ref().is_none_or(|snapshot| snapshot.timed);
        for error in &part.errors {
            let time = error.time_ns.map_or(Cell::missing("no times were recorded"), |time_ns| {
                moment(at, is_timed, time_ns)
            });
            let mut row = vec![
                at.label.as_str().into(),
                Cell::applies(error.device),
                time,
                error.order.into(),
                error.asked.into(),
                Cell::known(error.allocated, NO_TOTAL),
                Cell::known(error.reserved, NO_TOTAL),
                Cell::known(error.device_free, NO_TOTAL),
                Cell::known(error.pieces.map(|pieces| pieces.bytes), NO_SEGMENTS),
                Cell::known(error.pieces.map(|pieces| pieces.largest), NO_SEGMENTS),
                Cell::known(error.pieces.map(|of| of.fit(error.asked).words()), NO_SEGMENTS),
            ];
            row.extend(code_line::cells(error.line.as_ref(), NO_STACK));
            table.row(row);
        }
    }
    table
}

/// Makes the table of requests that failed at first.
pub(super) fn retries(parts: &[(RankContext, RankDeviceMemory)]) -> Table {
    let mut columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device", "device", Unit::Id),
        Column::new("at_ns", "at", Unit::Time),
        Column::new("duration_ns", "took", Unit::Duration),
        Column::new("failures", "failures", Unit::Count),
        Column::new("asked_bytes", "asked for", Unit::Bytes),
        Column::new("freed_bytes", "gave back", Unit::Bytes),
        Column::data("frees", Unit::Count),
    ];
    columns.extend(code_line::columns("asked by"));
    let mut table =
        Table::new("retries", "Near misses: calls that failed and were made again", columns)
            .about("until then the thread gave back memory, usually of its allocator's cache")
            .empty(NO_RETRIES);
    for (at, retry) in
        parts.iter().flat_map(|(at, part)| part.retries.iter().map(move |of| (at, of)))
    {
        let mut row = vec![
            at.label.as_str().into(),
            Cell::known(retry.device, "the memory that the call took was not recorded"),
            at.clock.since_start(retry.time_ns).into(),
            retry.duration_ns.into(),
            retry.failures.into(),
            Cell::known(retry.asked, NO_ASKED),
            retry.freed_bytes.into(),
            retry.frees.into(),
        ];
        row.extend(code_line::cells(retry.line.as_ref(), NO_STACK));
        table.row(row);
    }
    table
}
