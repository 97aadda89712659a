//! Builds a heat map: a metric by rank and time. Neighbouring values are merged so that a page can
//! show the map, and a cell has the largest of its values.

use crate::history::{STRETCHES, Scale, to_f64};
use crate::snapshot::{Heat, HeatColumn, HeatRow, MetricValues, Number, RankState};

const MOST_ROWS: usize = 256;
const MOST_COLUMNS: usize = 200;

/// Returns a heat map without any value.
pub fn empty(metric: &str, unit: &str) -> Heat {
    Heat {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        over: "time".to_owned(),
        ..Heat::default()
    }
}

/// Builds a heat map of a metric from the history of each rank, from the run's beginning to
/// `time_ns`.
pub fn heat(
    metric: &MetricValues,
    ranks: &[RankState],
    courses: &[Option<&[f32; STRETCHES]>],
    scale: Scale,
    time_ns: u64,
) -> Heat {
    let mut heat = empty(&metric.key, &metric.unit);
    let is_known = |course: &&[f32; STRETCHES]| course.iter().any(|value| !value.is_nan());
    if !courses.iter().flatten().any(is_known) {
        let why = metric.why.clone().unwrap_or_else(|| "no value has a time".to_owned());
        heat.missing = Some(why);
        return heat;
    }
    let used = ((time_ns / scale.width_ns) as usize + 1).min(STRETCHES);
    let (a_row, a_column) =
        (courses.len().div_ceil(MOST_ROWS).max(1), used.div_ceil(MOST_COLUMNS).max(1));
    for first in (0..used).step_by(a_column) {
        let last = (first + a_column).min(used) as u64;
        let (from, to) = (first as u64 * scale.width_ns, last * scale.width_ns);
        heat.columns.push(HeatColumn { from, to });
    }
    for (first, of_row) in (0..).step_by(a_row).zip(courses.chunks(a_row)) {
        let last = first + of_row.len() - 1;
        heat.rows.push(HeatRow { label: label(ranks, first, last), ranks: [first, last] });
        let cell = |from: usize| {
            let until = (from + a_column).min(used);
            let values = of_row.iter().flatten().flat_map(|course| &course[from..until]);
            Number(largest(values.copied()))
        };
        heat.values.push((0..used).step_by(a_column).map(cell).collect());
    }
    let all = || heat.values.iter().flatten().filter_map(|number| number.0);
    (heat.least, heat.most) = (Number(all().reduce(f64::min)), Number(all().reduce(f64::max)));
    heat.folded = folded(a_row, a_column as u64 * scale.width_ns / 1_000_000_000);
    heat
}

fn largest(values: impl Iterator<Item = f32>) -> Option<f64> {
    values.filter(|value| !value.is_nan()).reduce(f32::max).and_then(to_f64)
}

fn label(ranks: &[RankState], first: usize, last: usize) -> String {
    let of = |at: usize| ranks.get(at).map_or("", |rank| &rank.label);
    match first == last {
        true => of(first).to_owned(),
        false => format!("{} to {}", of(first), of(last)),
    }
}

fn folded(ranks: usize, seconds: u64) -> Option<String> {
    match (ranks, seconds) {
        (1, 0 | 1) => None,
        (1, seconds) => Some(format!("max of {seconds} s")),
        (ranks, seconds) => Some(format!("max of {ranks} ranks × {seconds} s")),
    }
}
