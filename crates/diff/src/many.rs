//! Compares any number of runs in one table, and names the best run if it can be determined.
//!
//! A run is the best in a metric if it compares as better than each other run. For this, each
//! difference must be outside of its 95 % interval over steps. A metric with a single value for
//! each run (its wall time, a peak) has no interval, so no run is the best in it.

use serde::Serialize;
use serde::ser::SerializeMap;
use tprof_document::{Cell, Column, REPORT_VERSION, Table, Tables, Unit};
use tprof_rank::base::reading::Reading;
use tprof_rank::base::stats::Repeats;

use super::changes::change_of;
use super::compare::SideHead;
use super::figures::{BetterWhen, Metric, RUN_METRICS, STEP_METRICS};
use super::notes::damage;
use super::side::Side;

/// The comparison of several runs.
#[derive(Debug)]
pub struct ManyRuns {
    /// The runs, in the order in which they were named.
    pub sides: Vec<Side>,
    /// Notes for the reader, in sentences without a full stop.
    pub notes: Vec<String>,
    /// The tables of the comparison, for people and for programs.
    pub tables: Vec<Table>,
}

impl Serialize for ManyRuns {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("version", &REPORT_VERSION)?;
        map.serialize_entry("tprof", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("kind", "compare")?;
        let heads: Vec<SideHead<'_>> = self.sides.iter().map(SideHead).collect();
        map.serialize_entry("runs", &heads)?;
        map.serialize_entry("notes", &self.notes)?;
        map.serialize_entry("tables", &Tables(&self.tables))?;
        map.end()
    }
}

/// Keys of the metrics in the table, each with the key of its column.
const SHOWN: [(&str, &str); 8] = [
    ("step_time", "step_time_ns"),
    ("idle_time", "idle_time_ns"),
    ("gpu_busy", "gpu_busy"),
    ("wall_time", "wall_time_ns"),
    ("cpu_time", "cpu_time_ns"),
    ("peak_heap", "peak_heap_bytes"),
    ("peak_rss", "peak_rss_bytes"),
    ("peak_device_memory", "peak_device_memory_bytes"),
];

fn metric(key: &str) -> Option<&'static Metric> {
    STEP_METRICS.iter().chain(&RUN_METRICS).find(|metric| metric.key == key)
}

impl ManyRuns {
    /// Compares at least two runs, each with the name that the user gave it.
    pub fn of(sides: Vec<Side>, names: &[String]) -> ManyRuns {
        let tables = vec![table(&sides, names)];
        let mut notes = vec![
            "best: outside of the 95 % interval of the difference to each other run, over steps; wall \
             time and peaks are of one run each, and have none"
                .to_owned(),
        ];
        let hardware = |side: &Side| sides[0].facts.other_hardware(&side.facts);
        if let Some(keys) = sides.iter().map(hardware).find(|keys| !keys.is_empty()) {
            notes
                .push(format!("the hardware differs ({}): no times are compared", keys.join(", ")));
        }
        let warm_up: usize = sides.iter().map(|side| side.warm_up.len()).sum();
        if warm_up > 0 {
            notes.push(format!("{warm_up} steps of warm-up are left out"));
        }
        if sides.iter().any(|side| side.stepped) && sides.iter().any(|side| !side.stepped) {
            notes.push(
                "runs without steps have no step time; one step each stands for the trace"
                    .to_owned(),
            );
        }
        for (side, name) in sides.iter().zip(names) {
            notes.extend(damage(name, &side.problems));
        }
        ManyRuns { sides, notes, tables }
    }
}

fn table(sides: &[Side], names: &[String]) -> Table {
    let mut columns =
        vec![Column::new("run", "run", Unit::Text), Column::new("steps", "steps", Unit::Count)];
    for (key, column) in SHOWN {
        let Some(metric) = metric(key) else { continue };
        // If no run has a value in a column, only programs see the column.
        let is_known = sides.iter().any(|side| value(side, metric).value().is_some());
        columns.push(Column::new(column, if is_known { metric.name } else { "" }, metric.unit));
    }
    columns.push(Column::new("best", "best in", Unit::Name));
    let mut table = Table::new("runs", "Runs", columns)
        .about("step time, GPU idle, GPU busy: means over steps and ranks; \u{b1}: 95 % interval of the mean");
    for (at, side) in sides.iter().enumerate() {
        let steps = if side.stepped { side.steps.len() } else { 0 };
        let mut cells: Vec<Cell> = vec![names[at].as_str().into(), steps.into()];
        let mut best = Vec::new();
        for metric in SHOWN.iter().filter_map(|(key, _)| metric(key)) {
            cells.push(value(side, metric));
            if is_best(sides, at, metric) {
                best.push(metric.name);
            }
        }
        cells.push(Cell::applies((!best.is_empty()).then(|| best.join(", "))));
        table.row(cells);
    }
    table
}

/// Returns the value of a metric in a run, with the interval of its mean if it has several values.
fn value(side: &Side, metric: &Metric) -> Cell {
    if let Some(figure) = side.totals.iter().find(|figure| figure.key == metric.key) {
        return figure.value.clone().into();
    }
    let values = side.figures.get(metric.key).map(Vec::as_slice).unwrap_or_default();
    let Some(repeats) = Repeats::of(values) else {
        return Cell::missing("nothing ran on a device, or no step was recorded");
    };
    match (metric.unit, repeats.mean_error()) {
        (Unit::Share, Some(error)) => Reading::Estimate { value: repeats.mean, error }.into(),
        (Unit::Share, None) => repeats.mean.into(),
        (_, Some(error)) => {
            Reading::Estimate { value: repeats.mean.round() as u64, error: error.round() as u64 }
                .into()
        }
        (_, None) => (repeats.mean.round() as u64).into(),
    }
}

/// Whether a run is better in a metric than each other run, by more than the variation between
/// steps explains.
fn is_best(sides: &[Side], at: usize, metric: &Metric) -> bool {
    if metric.better == BetterWhen::Neither {
        return false;
    }
    let beats = |other: &Side| {
        let same_hardware = other.facts.other_hardware(&sides[at].facts).is_empty();
        let change = change_of(other, &sides[at], metric.key);
        change.is_some_and(|change| change.verdict(metric, same_hardware) == "better")
    };
    let mut others = sides.iter().enumerate().filter(|(other, _)| *other != at);
    others.all(|(_, other)| other.stepped && sides[at].stepped && beats(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SideOptions;
    use tprof_trace::model::{Mark, MarkKind};
    use tprof_trace::{TraceHeader, TraceWriter};

    /// Makes a run with steps of these lengths, us.
    fn side(steps: &[u64]) -> Side {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let name = writer.name("step");
        let mut time_ns = 1_000;
        for length in [0].iter().chain(steps) {
            time_ns += length * 1_000;
            writer.mark(Mark { time_ns, process: Some(0), name, kind: MarkKind::Step });
        }
        writer.finish().unwrap();
        Side::read(dir.path(), &SideOptions::default()).unwrap()
    }

    fn best(runs: &[&[u64]]) -> Vec<Cell> {
        let names: Vec<String> = (0..runs.len()).map(|at| at.to_string()).collect();
        let sides = runs.iter().map(|steps| side(steps)).collect();
        let made = ManyRuns::of(sides, &names);
        made.tables[0].rows.iter().map(|row| row.last().unwrap().clone()).collect()
    }

    #[test]
    fn a_run_is_best_only_if_its_interval_excludes_chance() {
        let (slow, fast) = ([100, 101, 99, 100, 100], [50, 51, 49, 50, 50]);
        let middle = [80, 81, 79, 80, 80];
        let step_time = || Cell::from("step time");
        assert_eq!(best(&[&slow, &fast, &middle]), [Cell::Empty, step_time(), Cell::Empty]);
        // Two runs are equally fast within noise, so neither is the best.
        assert_eq!(
            best(&[&slow, &fast, &[50, 49, 51, 50, 50]]),
            [Cell::Empty, Cell::Empty, Cell::Empty]
        );
        // A single step has no interval.
        assert_eq!(best(&[&slow, &[10]]), [Cell::Empty, Cell::Empty]);
    }
}
