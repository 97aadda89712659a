//! Makes the tables of the report `device-memory`.

use std::cmp::Reverse;
use tprof_rank::base::sort_rows::SortRows;

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit, View};
use tprof_facts::units::{bytes, counted};
use tprof_trace::model::Allocator;

use super::category::Category;
use super::driver::{gaps, in_use};
use super::pools::{Level, Pool, PoolMemory};
use super::snapshot_tables::{self, moment};
use super::sources::{sources, without_stacks};
use super::{RankDeviceMemory, block_tables, by_step};

const NO_ALLOCATIONS: &str = "no allocation of device memory was recorded; torch.profiler writes \
                              them with profile_memory=True";
const NO_STACKS: &str = "no stack was recorded with these allocations";
const NO_RESERVED: &str = "this allocator states no total of what it reserves";
const NO_OPERATORS: &str = "no operators were recorded, which separate the phases";
const ARE_SEGMENTS: &str = "these are segments of a caching allocator, which serve any phase that comes \
                        later; blocks within them were not recorded";
const NO_SIZES: &str = "the calls that allocate these blocks don't state their sizes";
const ONLY_HOST_MEMORY: &str =
    "only allocations of host memory were recorded, none of device memory";
const NO_ADDRESSES: &str = "the addresses of blocks, which join frees to allocations, were not \
                            recorded; PyTorch writes them from 1.10 on";

pub(super) fn body(parts: &[(RankContext, RankDeviceMemory)]) -> Body {
    let mut rows: Vec<(&RankContext, &PoolMemory)> = parts
        .iter()
        .flat_map(|(context, part)| part.pools.iter().map(move |row| (context, row)))
        .collect();
    rows.sort_rows_by_key(|(_, row)| {
        // Pinned host memory comes last: the report is about device memory. A framework's blocks
        // come before the segments that they lie in.
        let is_framework = row.pool.allocator == Allocator::Framework;
        (row.pool.device.is_none(), !is_framework, Reverse(row.peak.allocated_bytes))
    });
    let driver =
        gaps(parts.iter().map(|(context, part)| (context, &part.host[..], &part.driver[..])));
    let by = parts.iter().map(|(context, part)| (context, part.sources));
    let [medians, uneven] = by_step::tables(parts);
    let mut tables = vec![
        pools(&rows),
        block_tables::errors(parts),
        block_tables::retries(parts),
        categories(&rows),
        block_tables::holders(parts),
        medians,
        uneven,
        sites(parts),
        in_use(&driver),
        sources(by),
    ];
    if let Some((context, row)) = rows.first().filter(|_| parts.len() == 1) {
        match row.timed {
            true => tables.push(curve(context, row)),
            false => tables.push(curve_by_entry(row)),
        }
        tables.push(by_category(context, row));
    }
    let snapshots = parts
        .iter()
        .filter_map(|(context, part)| Some((context, part.snapshot.as_ref()?)))
        .collect();
    tables.extend(snapshot_tables::tables(&snapshots));
    let mut notes = snapshot_tables::notes(&snapshots);
    if rows.iter().any(|(_, row)| !row.exact) {
        notes.push(
            "without an allocator's own total, blocks that were allocated before recording and never \
             freed are not counted"
                .to_owned(),
        );
    }
    notes.extend(parts.iter().filter_map(|(context, part)| reset_note(context, part)));
    notes.extend(parts.iter().filter_map(|(context, part)| {
        without_stacks(&context.label, part.sources, part.variables)
    }));
    if driver.iter().any(|gap| gap.includes_reserve) {
        notes.push("the driver counts its own reserve as memory in use".to_owned());
    }
    Body { tables, notes }
}

/// Returns the note on memory that resets freed; `None` if there was no reset.
fn reset_note(context: &RankContext, part: &RankDeviceMemory) -> Option<String> {
    let resets = &part.resets;
    if resets.count == 0 {
        return None;
    }
    let sum = |of: fn(&(u64, u64)) -> u64| resets.by_pool.values().map(of).sum::<u64>();
    let unclear = match resets.unclear {
        0 => String::new(),
        n => format!(
            "; of pinned host memory, {} counted as live, since no record says which device they \
             belong to",
            counted(n, "block is", "blocks are")
        ),
    };
    Some(format!(
        "{}: {} freed {} with {}{unclear}",
        context.label,
        counted(resets.count, "device reset", "device resets"),
        counted(sum(|of| of.0), "block", "blocks"),
        bytes(sum(|of| of.1)),
    ))
}

pub(super) fn allocator(pool: Pool) -> &'static str {
    match (pool.device, pool.allocator) {
        (None, Allocator::Registered) => "registered",
        (None, _) => "host",
        (_, Allocator::Virtual) => "virtual",
        (_, Allocator::Imported) => "imported",
        (_, Allocator::Registered) => "registered",
        (_, Allocator::Library) => "device",
        (_, Allocator::Framework) => "framework",
        (_, Allocator::Pool) => "pool",
    }
}

fn pools(rows: &[(&RankContext, &PoolMemory)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device", "device", Unit::Id),
        Column::new("allocator", "allocator", Unit::Text),
        Column::new("peak_bytes", "peak", Unit::Bytes),
        Column::new("peak_at_ns", "at", Unit::Time),
        Column::new("peak_reserved_bytes", "reserved", Unit::Bytes),
        Column::new("last_bytes", "at end", Unit::Bytes),
        Column::new("allocations", "blocks", Unit::Count),
        Column::data("frees", Unit::Count),
        Column::data("reset_frees", Unit::Count),
        Column::data("reset_bytes", Unit::Bytes),
        Column::data("taken_bytes", Unit::Bytes),
        Column::data("unused_at_peak_bytes", Unit::Bytes),
        Column::data("exact", Unit::Flag),
    ];
    let mut table = Table::new("pools", "Device memory", columns)
        .about("reserved: most memory that the allocator reserved, free blocks included")
        .empty(NO_ALLOCATIONS);
    for (context, row) in rows {
        let sized = |bytes: u64| Cell::known(row.is_sized.then_some(bytes), NO_SIZES);
        let unused =
            |level: &Level| Some(level.reserved_bytes?.saturating_sub(level.allocated_bytes));
        table.row(vec![
            context.label.as_str().into(),
            Cell::applies(row.pool.device),
            allocator(row.pool).into(),
            sized(row.peak.allocated_bytes),
            moment(context, row.timed, row.peak.time_ns),
            Cell::known(row.peak_reserved_bytes, NO_RESERVED),
            sized(row.last.allocated_bytes),
            row.allocations.into(),
            row.frees.into(),
            row.reset_frees.into(),
            row.reset_bytes.into(),
            sized(row.taken_bytes),
            Cell::known(unused(&row.peak), NO_RESERVED),
            row.exact.into(),
        ]);
    }
    table
}

fn sites(parts: &[(RankContext, RankDeviceMemory)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device", "device", Unit::Id),
        Column::new("allocator", "allocator", Unit::Text),
        Column::new("peak_bytes", "at peak", Unit::Bytes),
        Column::new("live_bytes", "at end", Unit::Bytes),
        Column::data("taken_bytes", Unit::Bytes),
        Column::new("allocations", "blocks", Unit::Count),
        Column::new("stack", "allocated by", Unit::Name),
    ];
    let any = parts.iter().any(|(_, part)| !part.pools.is_empty());
    let mut table = Table::new("sites", "Stacks that allocated device memory", columns)
        .about("host stacks, innermost frame first")
        .empty(if any { NO_STACKS } else { NO_ALLOCATIONS });
    for (context, part) in parts {
        for site in &part.sites {
            table.row(vec![
                context.label.as_str().into(),
                Cell::applies(site.pool.device),
                allocator(site.pool).into(),
                site.peak_bytes.into(),
                site.live_bytes.into(),
                site.bytes.into(),
                site.allocations.into(),
                site.stack.join(" < ").into(),
            ]);
        }
    }
    table
}

/// Returns the reason why no pool has categories.
fn no_categories(rows: &[(&RankContext, &PoolMemory)]) -> &'static str {
    match rows.iter().any(|(_, row)| row.pool.device.is_some()) {
        _ if rows.is_empty() => NO_ALLOCATIONS,
        false => ONLY_HOST_MEMORY,
        true if rows.iter().any(|(_, row)| row.has_categories) => {
            "no device memory was held at the peak"
        }
        true => {
            let of_device = rows.iter().filter(|(_, row)| row.pool.device.is_some());
            let mut whys = of_device.map(|(_, row)| without_categories(row));
            let first = whys.next().unwrap_or(NO_ALLOCATIONS);
            whys.find(|_| first == ARE_SEGMENTS).unwrap_or(first)
        }
    }
}

/// Returns the reason why one pool has no categories.
fn without_categories(row: &PoolMemory) -> &'static str {
    if !row.is_placed {
        NO_ADDRESSES
    } else if row.is_segments {
        ARE_SEGMENTS
    } else {
        NO_OPERATORS
    }
}

fn categories(rows: &[(&RankContext, &PoolMemory)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device", "device", Unit::Id),
        Column::new("category", "what", Unit::Text),
        Column::new("peak_bytes", "at peak", Unit::Bytes),
        Column::new("share", "share", Unit::Share),
        Column::new("meaning", "which is", Unit::Text),
    ];
    let mut table = Table::new("categories", "Device memory at the peak, by purpose", columns)
        .about("by the phases in which a block was allocated and freed")
        .empty(no_categories(rows));
    for (context, row) in
        rows.iter().filter(|(_, row)| row.has_categories && row.pool.device.is_some())
    {
        let total: u64 = row.peak.by_category.iter().sum();
        let mut by_category: Vec<(Category, u64)> =
            Category::ALL.into_iter().zip(row.peak.by_category).collect();
        by_category.retain(|(_, bytes)| *bytes > 0);
        by_category.sort_rows_by_key(|(_, bytes)| Reverse(*bytes));
        for (category, bytes) in by_category {
            table.row(vec![
                context.label.as_str().into(),
                Cell::applies(row.pool.device),
                category.name().into(),
                bytes.into(),
                (bytes as f64 / total as f64).into(),
                category.about().into(),
            ]);
        }
    }
    table
}

fn curve(context: &RankContext, row: &PoolMemory) -> Table {
    let columns = vec![
        Column::new("time_ns", "time", Unit::Time),
        Column::new("allocated_bytes", "allocated", Unit::Bytes),
        Column::new("reserved_bytes", "reserved", Unit::Bytes),
    ];
    let device = row.pool.device.map_or("the host".to_owned(), |device| format!("device {device}"));
    let mut table = Table::new("curve", format!("Memory of {device} over time"), columns)
        .view(View::Curve)
        .empty(NO_ALLOCATIONS);
    for level in &row.curve {
        table.row(vec![
            context.clock.since_start(level.time_ns).into(),
            level.allocated_bytes.into(),
            Cell::known(level.reserved_bytes, NO_RESERVED),
        ]);
    }
    table
}

/// Makes the curve of a history without times, over the positions of its entries.
fn curve_by_entry(row: &PoolMemory) -> Table {
    let columns = vec![
        Column::new("entry", "entry", Unit::Id),
        Column::new("allocated_bytes", "allocated", Unit::Bytes),
        Column::new("reserved_bytes", "reserved", Unit::Bytes),
    ];
    let device = row.pool.device.map_or("the host".to_owned(), |device| format!("device {device}"));
    let title = format!("Memory of {device} over the entries of the history");
    let mut table =
        Table::new("curve_by_entry", title, columns).view(View::Data).empty(NO_ALLOCATIONS);
    for level in &row.curve {
        table.row(vec![
            level.time_ns.into(),
            level.allocated_bytes.into(),
            Cell::known(level.reserved_bytes, NO_RESERVED),
        ]);
    }
    table
}

fn by_category(context: &RankContext, row: &PoolMemory) -> Table {
    let keys = [
        "parameter_bytes",
        "gradient_bytes",
        "optimizer_bytes",
        "activation_bytes",
        "temporary_bytes",
        "input_bytes",
        "unknown_bytes",
    ];
    let mut columns = vec![Column::new("time_ns", "time", Unit::Time)];
    columns.extend(keys.map(|key| Column::new(key, key, Unit::Bytes)));
    let mut table = Table::new("by_category", "Memory over time by category", columns)
        .view(View::Data)
        .empty(without_categories(row));
    for level in row.curve.iter().filter(|_| row.has_categories && row.timed) {
        let mut cells: Vec<Cell> = vec![context.clock.since_start(level.time_ns).into()];
        cells.extend(level.by_category.map(Cell::from));
        table.row(cells);
    }
    table
}
