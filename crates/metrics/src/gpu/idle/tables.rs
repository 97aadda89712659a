//! Makes the tables of the report `idle`.

use std::cmp::Reverse;

use tprof_document::over_ranks::{RankShare, over_ranks};
use tprof_document::{Body, Cell, Column, RankContext, Table, Unit, View};
use tprof_rank::base::names::short;
use tprof_rank::base::sort_rows::SortRows;

use super::{Cause, LongGap, RankIdle, StreamIdle};
use crate::gpu::breakdown::NO_WORK;
use crate::gpu::outside;

/// Maximum number of gaps that the table `longest` shows, over all ranks.
const MOST_GAPS: usize = 100;

pub(super) fn body(parts: &[(RankContext, RankIdle)]) -> Body {
    let mut tables = vec![streams(parts), longest(parts), lengths(parts)];
    // The shares of several ranks are compared only if several ranks have streams.
    if parts.iter().filter(|(_, part)| !part.streams.is_empty()).count() > 1 {
        tables.insert(0, causes_over_ranks(parts));
    }
    Body { tables, notes: outside::note(parts.iter().map(|(_, part)| part.outside)) }
}

/// Returns the share of a stream's idle time that has the cause with this index in [`Cause::ALL`].
fn share(row: &StreamIdle, cause: usize) -> Option<f64> {
    (row.total_ns() != 0).then(|| row.idle_ns[cause] as f64 / row.total_ns() as f64)
}

/// Returns the reason why a table of gaps has no rows. A device may have idle time although none of
/// its streams has a gap: each stream may have only one kernel, or the device may be idle only
/// before and after all work.
fn no_gap(parts: &[(RankContext, RankIdle)]) -> &'static str {
    match parts.iter().all(|(_, part)| part.streams.is_empty()) {
        true => NO_WORK,
        false => "no stream was idle between two of its own kernels and copies",
    }
}

fn device_column(parts: &[(RankContext, RankIdle)]) -> Column {
    let streams = parts.iter().flat_map(|(_, part)| &part.streams);
    Column::device(streams.map(|row| Some(row.stream.device)))
}

fn streams(parts: &[(RankContext, RankIdle)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        device_column(parts),
        Column::data("context", Unit::Id),
        Column::new("stream", "stream", Unit::Id),
        Column::new("busy_ns", "busy", Unit::Duration),
        Column::new("idle_ns", "idle", Unit::Duration),
        Column::new("host_wait_share", "host wait", Unit::Share),
        Column::new("kernel_wait_share", "kernel wait", Unit::Share),
        Column::new("other_share", "other", Unit::Share),
        Column::new("unknown_share", "unknown", Unit::Share),
        Column::data("host_wait_ns", Unit::Duration),
        Column::data("kernel_wait_ns", Unit::Duration),
        Column::data("other_ns", Unit::Duration),
        Column::data("unknown_ns", Unit::Duration),
    ];
    let mut table = Table::new("idle", "Idle time by stream", columns)
        .about(
            "between a stream's own kernels and copies, in the steps. host wait: the next launch began after the \
             stream fell idle; kernel wait: launched before, work began within 30 us; other: began \
             later; unknown: its launch was not recorded",
        )
        .empty(NO_WORK);
    let mut rows: Vec<(&RankContext, &StreamIdle)> =
        parts.iter().flat_map(|(at, part)| part.streams.iter().map(move |row| (at, row))).collect();
    rows.sort_rows_by_key(|(_, row)| Reverse(row.busy_ns));
    for (at, row) in rows {
        let mut cells = vec![
            at.label.as_str().into(),
            row.stream.device.into(),
            row.stream.context.into(),
            row.stream.stream.into(),
            row.busy_ns.into(),
            row.total_ns().into(),
        ];
        cells.extend((0..Cause::ALL.len()).map(|cause| Cell::applies(share(row, cause))));
        cells.extend(row.idle_ns.map(Cell::from));
        table.row(cells);
    }
    table
}

/// Makes the table that compares ranks: for each cause, its share of the idle time of all streams
/// of a rank.
fn causes_over_ranks(parts: &[(RankContext, RankIdle)]) -> Table {
    let shares_of = |(index, cause): (usize, Cause)| {
        let share = |(rank, part): &'_ (RankContext, RankIdle)| {
            let total: i64 = part.streams.iter().map(StreamIdle::total_ns).sum();
            let of_cause: i64 = part.streams.iter().map(|row| row.idle_ns[index]).sum();
            (total != 0).then(|| (of_cause as f64 / total as f64, rank.label.clone()))
        };
        (cause.name(), parts.iter().filter_map(share).collect::<Vec<_>>())
    };
    let found: Vec<(&'static str, Vec<(f64, String)>)> =
        Cause::ALL.into_iter().enumerate().map(shares_of).collect();
    let rows: Vec<RankShare<'_>> = found
        .iter()
        .map(|(name, shares)| RankShare {
            name,
            shares: shares.iter().map(|(share, rank)| (*share, rank.as_str())).collect(),
        })
        .collect();
    over_ranks("over_ranks", "Idle time of streams by cause, over ranks", &rows)
}

fn longest(parts: &[(RankContext, RankIdle)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        device_column(parts),
        Column::new("stream", "stream", Unit::Id),
        Column::new("start_ns", "start", Unit::Time),
        Column::new("length_ns", "idle", Unit::Duration),
        Column::new("cause", "cause", Unit::Text),
        Column::data("next", Unit::Name),
        Column::new("next_short", "next", Unit::Name),
    ];
    let mut table = Table::new("longest", "Longest gaps", columns).empty(no_gap(parts));
    let mut gaps: Vec<(&RankContext, &LongGap)> =
        parts.iter().flat_map(|(at, part)| part.longest.iter().map(move |gap| (at, gap))).collect();
    gaps.sort_by_key(|(_, gap)| Reverse(gap.length_ns));
    for (at, gap) in gaps.into_iter().take(MOST_GAPS) {
        table.row(vec![
            at.label.as_str().into(),
            gap.stream.device.into(),
            gap.stream.stream.into(),
            at.clock.since_start(gap.start_ns).into(),
            gap.length_ns.into(),
            gap.cause.name().into(),
            gap.next.as_str().into(),
            short(&gap.next).into(),
        ]);
    }
    table
}

/// Makes the table that describes how long gaps are, by stream and cause.
fn lengths(parts: &[(RankContext, RankIdle)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::data("device", Unit::Id),
        Column::new("stream", "stream", Unit::Id),
        Column::new("cause", "cause", Unit::Text),
        Column::new("gaps", "gaps", Unit::Count),
        Column::new("mean_ns", "mean", Unit::Duration),
        Column::data("deviation_ns", Unit::Duration),
        Column::data("min_ns", Unit::Duration),
        Column::data("lower_quartile_ns", Unit::Duration),
        Column::new("median_ns", "median", Unit::Duration),
        Column::data("upper_quartile_ns", Unit::Duration),
        Column::new("max_ns", "max", Unit::Duration),
    ];
    let mut table =
        Table::new("gap_lengths", "Lengths of gaps", columns).view(View::Data).empty(no_gap(parts));
    for (at, part) in parts {
        for row in &part.streams {
            for (cause, found) in Cause::ALL.into_iter().zip(&row.gaps) {
                let Some(found) = found else { continue };
                table.row(vec![
                    at.label.as_str().into(),
                    row.stream.device.into(),
                    row.stream.stream.into(),
                    cause.name().into(),
                    found.count.into(),
                    found.mean.into(),
                    Cell::applies(found.deviation),
                    found.min.into(),
                    found.lower_quartile.into(),
                    found.median.into(),
                    found.upper_quartile.into(),
                    found.max.into(),
                ]);
            }
        }
    }
    table
}
