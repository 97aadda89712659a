//! Makes the tables of the report `spans`.

use std::cmp::Reverse;

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit, View};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::base::stats::{Spread, quantiles};

use super::sums::{SlowSpan, SpanSums, SumsByName};
use crate::memory::HeldWithin;

const NO_SPANS: &str =
    "the program named none (the crate or module `tprof`, or preload-shim/include/tprof.h)";
const NO_FLOPS: &str =
    "the program stated none of its spans (`tprof::work`, or `flops` of `tprof_abi`)";
const NO_BYTES: &str = "none has an argument `bytes`";
const NO_SELF: &str = "any thread may end these spans: they nest in no other";
const NO_SPREAD: &str = "a single span has no spread";

pub(super) fn body(parts: Vec<(RankContext, SumsByName)>) -> Body {
    let mut all = SumsByName::default();
    for (name, sums) in parts.iter().flat_map(|(_, part)| part) {
        all.entry(name.clone()).or_default().add(sums);
    }
    let stated = ShownColumns::of(&all);
    let mut spans = table("spans", &[], stated);
    rows(&mut spans, all, None);
    let rank = [Column::new("rank", "rank", Unit::Text)];
    let mut by_rank = table("spans_by_rank", &rank, stated).view(View::Data);
    let slowest = slowest(&parts);
    for (at, part) in parts {
        rows(&mut by_rank, part, Some(&at));
    }
    Body { tables: vec![spans, slowest, by_rank], notes: Vec::new() }
}

/// The columns of the text report that are shown: those with a value in at least one span.
#[derive(Clone, Copy)]
struct ShownColumns {
    flops: bool,
    bytes: bool,
    /// Whether there is launched work.
    kernels: bool,
    /// Whether there is a peak of the heap.
    heap: bool,
    /// Whether there is a peak of device memory.
    device: bool,
}

impl ShownColumns {
    fn of(all: &SumsByName) -> ShownColumns {
        let any = |is: fn(&SpanSums) -> bool| all.values().any(is);
        ShownColumns {
            flops: any(|sums| sums.flops_within > 0),
            bytes: any(|sums| sums.moved.1 > 0),
            heap: any(|sums| is_known(&sums.heap)),
            device: any(|sums| is_known(&sums.device)),
            kernels: any(|sums| sums.launched.kernels.get().is_some_and(|count| count > 0)),
        }
    }
}

fn is_known(held: &Option<HeldWithin>) -> bool {
    held.as_ref().is_some_and(|held| held.peak_bytes.get().is_some())
}

/// Returns the most memory that was held, and its rise over the memory held at the span's start.
fn held(held: Option<HeldWithin>) -> [Cell; 2] {
    match held {
        Some(held) => [held.peak_bytes.into(), held.rise_bytes.into()],
        None => [Cell::Empty, Cell::Empty],
    }
}

fn table(key: &'static str, first: &[Column], stated: ShownColumns) -> Table {
    let shown = |is: bool, title: &'static str| if is { title } else { "" };
    let mut columns = first.to_vec();
    columns.extend([
        Column::new("runs", "runs", Unit::Count),
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("self_ns", "self", Unit::Duration),
        Column::data("mean_ns", Unit::Duration),
        Column::new("cpu_ns", "on CPU", Unit::Duration),
        Column::data("ready_ns", Unit::Duration),
        Column::new("waited_ns", "waited", Unit::Duration),
        Column::data("lock_ns", Unit::Duration),
        Column::data("io_ns", Unit::Duration),
        Column::data("sleep_ns", Unit::Duration),
        Column::data("poll_ns", Unit::Duration),
        Column::data("gil_ns", Unit::Duration),
        Column::data("device_ns", Unit::Duration),
        Column::data("other_ns", Unit::Duration),
        Column::new("kernels", shown(stated.kernels, "kernels"), Unit::Count),
        Column::new("busy_ns", shown(stated.kernels, "on GPU"), Unit::Duration),
        Column::new("p50_ns", "p50", Unit::Duration),
        Column::data("p95_ns", Unit::Duration),
        Column::data("p99_ns", Unit::Duration),
        Column::data("deviation_ns", Unit::Duration),
        Column::data("min_ns", Unit::Duration),
        Column::data("max_ns", Unit::Duration),
        Column::new("allocated_bytes", "allocated", Unit::Bytes),
        Column::data("allocations", Unit::Count),
        Column::new("peak_bytes", shown(stated.heap, "heap peak"), Unit::Bytes),
        Column::new("peak_rise_bytes", shown(stated.heap, "rise"), Unit::Bytes),
        Column::new("device_peak_bytes", shown(stated.device, "device peak"), Unit::Bytes),
        Column::new("device_peak_rise_bytes", shown(stated.device, "rise"), Unit::Bytes),
        Column::data("flops", Unit::Count),
        Column::new("flops_per_s", shown(stated.flops, "FLOP/s"), Unit::Number),
        Column::data("bytes", Unit::Bytes),
        Column::new("bytes_per_s", shown(stated.bytes, "bytes/s"), Unit::BytesPerSecond),
        Column::data("category", Unit::Text),
        Column::data("any_thread", Unit::Flag),
        Column::new("name", "span", Unit::Name),
    ]);
    Table::new(key, "Spans of the program", columns)
        .about(
            "self: without spans within, others: with them; on CPU, waited, allocated: of the span's \
             own thread; peak: the most that the process held while one was open, rise: above its start",
        )
        .empty(NO_SPANS)
}

/// Adds a row for each name to the table, longest total first.
fn rows(table: &mut Table, of: SumsByName, at: Option<&RankContext>) {
    let mut of: Vec<((String, bool), SpanSums)> = of.into_iter().collect();
    of.sort_rows_by_key(|(_, sums)| Reverse(sums.total_ns));
    for ((name, any_thread), sums) in of {
        let mut cells: Vec<Cell> = at.iter().map(|at| at.label.as_str().into()).collect();
        cells.extend(row(name, any_thread, sums));
        table.row(cells);
    }
}

fn row(name: String, any_thread: bool, mut sums: SpanSums) -> Vec<Cell> {
    let whole = |ns: f64| Cell::from(ns.round() as u64);
    let spread = Spread::of(&sums.durations);
    let [p50, p95, p99] = quantiles(&mut sums.durations, [0.5, 0.95, 0.99]);
    let seconds = sums.total_ns as f64 / 1e9;
    let rate = (sums.flops_within > 0 && seconds > 0.0).then(|| sums.flops_within as f64 / seconds);
    let (bytes, lasted_ns) = sums.moved;
    let moved = (lasted_ns > 0).then(|| bytes as f64 / (lasted_ns as f64 / 1e9));
    let mut cells: Vec<Cell> = vec![
        sums.durations.len().into(),
        sums.total_ns.into(),
        Cell::known((!any_thread).then_some(sums.self_ns), NO_SELF),
        Cell::applies(spread.as_ref().map(|spread| spread.mean.round() as u64)),
        sums.time.cpu_ns.into(),
        sums.time.ready_ns.into(),
        sums.time.waited_ns.into(),
    ];
    cells.extend(sums.time.waits_ns.map(Cell::from));
    cells.extend([
        sums.launched.kernels.into(),
        sums.launched.device_ns.into(),
        whole(p50),
        whole(p95),
        whole(p99),
        match &spread {
            Some(spread) => Cell::known(spread.deviation.map(|ns| ns.round() as u64), NO_SPREAD),
            None => Cell::Empty,
        },
        Cell::applies(spread.as_ref().map(|spread| spread.min)),
        Cell::applies(spread.as_ref().map(|spread| spread.max)),
        sums.allocated.bytes.into(),
        sums.allocated.allocations.into(),
    ]);
    cells.extend(held(sums.heap));
    cells.extend(held(sums.device));
    cells.extend([
        Cell::known((sums.flops > 0).then_some(sums.flops), NO_FLOPS),
        Cell::known(rate, NO_FLOPS),
        Cell::known((sums.moved.1 > 0).then_some(sums.moved.0), NO_BYTES),
        Cell::known(moved, NO_BYTES),
        Cell::applies(sums.category.as_deref()),
        any_thread.into(),
        name.into(),
    ]);
    cells
}

fn slowest(parts: &[(RankContext, SumsByName)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("duration_ns", "time", Unit::Duration),
        Column::data("start_ns", Unit::Time),
        Column::new("from_time", "--from-time", Unit::Text),
        Column::new("to_time", "--to-time", Unit::Text),
        Column::data("cpu_ns", Unit::Duration),
        Column::new("waited_ns", "waited", Unit::Duration),
        Column::data("allocated_bytes", Unit::Bytes),
        Column::data("allocations", Unit::Count),
        Column::data("peak_bytes", Unit::Bytes),
        Column::data("peak_rise_bytes", Unit::Bytes),
        Column::data("device_peak_bytes", Unit::Bytes),
        Column::data("device_peak_rise_bytes", Unit::Bytes),
        Column::data("pid", Unit::Id),
        Column::new("tid", "thread", Unit::Id),
        Column::new("name", "span", Unit::Name),
    ];
    let mut table = Table::new("slowest_spans", "Slowest spans", columns)
        .about(
            "the slowest of each name and rank; `tprof export RUN --to timeline` takes the times, \
             since the run began",
        )
        .empty(NO_SPANS);
    let mut all: Vec<(&RankContext, &str, &SlowSpan)> = Vec::new();
    for (at, part) in parts {
        for ((name, _), sums) in part {
            all.extend(sums.slowest.iter().map(|one| (at, name.as_str(), one)));
        }
    }
    all.sort_by_key(|(_, _, one)| (Reverse(one.duration_ns), one.start_ns));
    // Options such as `--from-time` accept times in this form, exact to a microsecond.
    let typed = |us: u64| format!("{}.{:06}s", us / 1_000_000, us % 1_000_000);
    for (at, name, one) in all {
        let end_ns = one.start_ns.saturating_add(one.duration_ns);
        let mut cells: Vec<Cell> = vec![
            at.label.as_str().into(),
            one.duration_ns.into(),
            one.start_ns.into(),
            typed(one.start_ns / 1000).into(),
            typed(end_ns.div_ceil(1000)).into(),
            one.time.cpu_ns.clone().into(),
            one.time.waited_ns.clone().into(),
            one.allocated.bytes.clone().into(),
            one.allocated.allocations.clone().into(),
        ];
        cells.extend(held(Some(one.heap.clone())));
        cells.extend(held(Some(one.device.clone())));
        cells.extend([one.pid.into(), one.tid.into(), name.into()]);
        table.row(cells);
    }
    table
}
