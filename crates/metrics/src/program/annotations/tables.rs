//! Makes the tables of `annotations`.

use std::cmp::Reverse;

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::base::stats::Spread;

use super::effects::{DeviceImage, RangeEffects};
use super::{NamedRanges, modules};
use crate::gpu::breakdown::NO_WORK;

const NO_RANGES: &str = "no annotations or NVTX ranges were recorded (record_function(), \
                         torch.cuda.nvtx.range())";
const NO_IMAGES: &str = "the trace has no annotations on device streams (torch.profiler writes \
                         them since PyTorch 2.1)";

/// Makes the tables, with one row for each name and rank.
pub(super) fn body(parts: &[(RankContext, NamedRanges)]) -> Body {
    let modules = modules::table(parts.iter().map(|(at, ranges)| modules::ModulesOfRank {
        at,
        modules: &ranges.modules,
        has_work: ranges.has_work,
    }));
    Body { tables: vec![ranges(parts), modules, images(parts)], notes: Vec::new() }
}

fn ranges(parts: &[(RankContext, NamedRanges)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("runs", "runs", Unit::Count),
        Column::new("host_ns", "on host", Unit::Duration),
        Column::new("busy_ns", "on GPU", Unit::Duration),
        Column::data("sum_ns", Unit::Duration),
        Column::new("kernels", "kernels", Unit::Count),
        Column::data("kernels_of_other_threads", Unit::Count),
        Column::new("range", "range", Unit::Name),
    ];
    let mut table = Table::new("annotations", "GPU time of ranges", columns)
        .about("on GPU: GPU time of work launched inside the range, nested ranges included")
        .empty(NO_RANGES);
    let mut rows: Vec<(&RankContext, bool, &String, &RangeEffects)> = Vec::new();
    for (at, ranges) in parts {
        rows.extend(ranges.caused.iter().map(|(name, row)| (at, ranges.has_work, name, row)));
    }
    rows.sort_rows_by_key(|(.., row)| Reverse((row.busy_ns, row.host_ns)));
    for (at, has_work, name, row) in rows {
        let of_device = |value: u64| Cell::known(has_work.then_some(value), NO_WORK);
        table.row(vec![
            at.label.as_str().into(),
            row.runs.into(),
            row.host_ns.into(),
            of_device(row.busy_ns),
            of_device(row.sum_ns),
            of_device(row.kernels),
            of_device(row.kernels_of_other_threads),
            name.as_str().into(),
        ]);
    }
    table
}

fn images(parts: &[(RankContext, NamedRanges)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("spans", "spans", Unit::Count),
        Column::new("sum_ns", "total", Unit::Duration),
        Column::data("mean_ns", Unit::Duration),
        Column::data("min_ns", Unit::Duration),
        Column::data("max_ns", Unit::Duration),
        Column::data("deviation_ns", Unit::Duration),
        Column::new("kernels", "kernels", Unit::Count),
        Column::new("kernel_ns", "in kernels", Unit::Duration),
        Column::new("range", "range", Unit::Name),
    ];
    let mut table = Table::new("device_annotations", "Ranges on streams", columns)
        .about(
            "total: from a range's first kernel on a stream to its last, gaps included; kernels: \
             those directly in the range",
        )
        .empty(NO_IMAGES);
    let mut rows: Vec<(&RankContext, &String, &DeviceImage, Spread)> = parts
        .iter()
        .flat_map(|(at, ranges)| ranges.images.iter().map(move |(name, row)| (at, name, row)))
        .filter_map(|(at, name, row)| Some((at, name, row, Spread::of(&row.times_ns)?)))
        .collect();
    rows.sort_rows_by_key(|(_, _, row, _)| Reverse(row.times_ns.iter().sum::<u64>()));
    for (at, name, row, times) in rows {
        let whole = |nanoseconds: f64| nanoseconds.round() as u64;
        table.row(vec![
            at.label.as_str().into(),
            times.count.into(),
            row.times_ns.iter().sum::<u64>().into(),
            whole(times.mean).into(),
            times.min.into(),
            times.max.into(),
            Cell::known(times.deviation.map(whole), "a single span has no spread"),
            row.kernels.into(),
            row.kernel_ns.into(),
            name.as_str().into(),
        ]);
    }
    table
}
