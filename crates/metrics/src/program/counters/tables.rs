//! Makes the tables of `counters`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use tprof_rank::base::sort_rows::SortRows;

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit, View};
use tprof_facts::units;

use super::{Gauge, GaugeKey, RankCounters};

const NO_GAUGES: &str = "no counters were recorded";
const NO_RANGES: &str = "no hardware counters were recorded (torch.profiler: \
                         _ExperimentalConfig(profiler_metrics=…))";
const NO_STEPS: &str = "no counter was read in a step";
const NO_LAUNCH: &str = "its launch is unknown, or lies in no operator";

/// Makes the report's body from all ranks.
pub(super) fn body(parts: &[(RankContext, RankCounters)]) -> Body {
    let in_bytes = |key: &GaugeKey| key.0.ends_with("_bytes");
    let mut bytes = gauges("byte_counters", "Counters in bytes", Unit::Bytes);
    let mut numbers = gauges("counters", "Counters", Unit::Number);
    for (at, part) in parts {
        for (key, gauge) in &part.gauges {
            let table = if in_bytes(key) { &mut bytes } else { &mut numbers };
            table.row(gauge_row(at, key, gauge));
        }
    }
    let notes = parts
        .iter()
        .filter_map(|(at, part)| part.unmatched.as_ref().map(|why| format!("{}: {why}", at.label)));
    let notes = notes.chain(parts.iter().flat_map(not_finite)).collect();
    let mut tables = vec![by_operator(parts), ranges(parts)];
    // The tables of gauges follow those of ranges if there are ranges; otherwise they come first,
    // because the tables of ranges are empty.
    let has_ranges = parts.iter().any(|(_, part)| !part.ranges.is_empty());
    let place = if has_ranges { tables.len() } else { 0 };
    let of_gauges = [numbers, bytes].into_iter().filter(|table| !table.rows.is_empty());
    let mut of_gauges: Vec<Table> = of_gauges.collect();
    if of_gauges.is_empty() {
        of_gauges.push(gauges("counters", "Counters", Unit::Number));
    }
    tables.splice(place..place, of_gauges);
    tables.push(by_step(parts));
    Body { tables, notes }
}

/// Returns a note for each counter with readings that the statistics leave out.
fn not_finite((at, part): &(RankContext, RankCounters)) -> impl Iterator<Item = String> {
    part.not_finite.iter().map(|((name, ..), count)| {
        let count = units::count(*count);
        format!(
            "{}: {name} was infinite or not a number {count} times, which its row leaves out",
            at.label
        )
    })
}

fn gauges(key: &'static str, title: &str, unit: Unit) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::data("pid", Unit::Id),
        Column::new("device", "device", Unit::Id),
        Column::new("samples", "samples", Unit::Count),
        Column::new("min", "min", unit),
        Column::new("mean", "mean", unit),
        Column::new("max", "max", unit),
        Column::new("last", "last", unit),
        Column::new("counter", "counter", Unit::Name),
    ];
    Table::new(key, title, columns).empty(NO_GAUGES)
}

fn gauge_row(at: &RankContext, (name, pid, device): &GaugeKey, gauge: &Gauge) -> Vec<Cell> {
    vec![
        at.label.as_str().into(),
        Cell::applies(*pid),
        Cell::applies(*device),
        gauge.samples.into(),
        gauge.min.into(),
        gauge.mean.into(),
        gauge.max.into(),
        gauge.last.into(),
        name.as_str().into(),
    ]
}

/// Makes the table of counters by step, for programs.
fn by_step(parts: &[(RankContext, RankCounters)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::data("pid", Unit::Id),
        Column::new("device", "device", Unit::Id),
        Column::new("samples", "samples", Unit::Count),
        Column::new("min", "min", Unit::Number),
        Column::new("mean", "mean", Unit::Number),
        Column::new("max", "max", Unit::Number),
        Column::new("last", "last", Unit::Number),
        Column::new("counter", "counter", Unit::Name),
        Column::new("step", "step", Unit::Id),
    ];
    let mut table = Table::new("counters_by_step", "Counters by step", columns)
        .view(View::Data)
        .empty(NO_STEPS);
    for (at, part) in parts {
        for ((key, step), gauge) in &part.by_step {
            let mut row = gauge_row(at, key, gauge);
            row.push((*step).into());
            table.row(row);
        }
    }
    table
}

fn by_operator(parts: &[(RankContext, RankCounters)]) -> Table {
    let columns = vec![
        Column::new("ranges", "ranges", Unit::Count),
        Column::new("total", "total", Unit::Number),
        Column::new("mean", "mean", Unit::Number),
        Column::data("operator", Unit::Text),
        Column::data("counter", Unit::Text),
        Column::new("name", "operator: counter", Unit::Name),
    ];
    let mut table = Table::new("hardware_counters", "Hardware counters by operator", columns)
        .about("by the innermost operator around the launch")
        .empty(NO_RANGES);
    let mut sums: BTreeMap<(&str, &str), (u64, f64)> = BTreeMap::new();
    for range in parts.iter().flat_map(|(_, part)| &part.ranges) {
        let operator = range.operators.as_ref().map_or("", |(_, innermost)| innermost);
        for (counter, value) in &range.values {
            let sum = sums.entry((operator, counter)).or_default();
            sum.0 += 1;
            sum.1 += value;
        }
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    // Sort by counter, and for each counter by total, highest first.
    rows.sort_rows_by(|a, b| (a.0.1.cmp(b.0.1)).then(b.1.1.total_cmp(&a.1.1)).then(a.0.cmp(&b.0)));
    for ((operator, counter), (ranges, total)) in rows {
        let known = (!operator.is_empty()).then_some(operator);
        table.row(vec![
            ranges.into(),
            total.into(),
            (total / ranges as f64).into(),
            Cell::known(known, NO_LAUNCH),
            counter.into(),
            format!("{}: {counter}", known.unwrap_or("?")).into(),
        ]);
    }
    table
}

/// Makes the table of all values of all ranges, for programs.
fn ranges(parts: &[(RankContext, RankCounters)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("start_ns", "start", Unit::Time),
        Column::new("duration_ns", "time", Unit::Duration),
        Column::new("outermost_operator", "outermost", Unit::Text),
        Column::new("innermost_operator", "innermost", Unit::Text),
        Column::new("counter", "counter", Unit::Text),
        Column::new("value", "value", Unit::Number),
        Column::new("range", "range", Unit::Name),
    ];
    let mut table =
        Table::new("counter_ranges", "Ranges", columns).view(View::Data).empty(NO_RANGES);
    for (at, part) in parts {
        let mut ranges: Vec<_> = part.ranges.iter().collect();
        ranges.sort_by_key(|range| (range.interval, Reverse(&range.name)));
        for range in ranges {
            let operators = range.operators.as_ref();
            for (counter, value) in &range.values {
                table.row(vec![
                    at.label.as_str().into(),
                    at.clock.since_start(range.interval.start).into(),
                    range.interval.length().into(),
                    Cell::known(operators.map(|both| both.0.as_str()), NO_LAUNCH),
                    Cell::known(operators.map(|both| both.1.as_str()), NO_LAUNCH),
                    counter.as_str().into(),
                    (*value).into(),
                    range.name.as_str().into(),
                ]);
            }
        }
    }
    table
}
