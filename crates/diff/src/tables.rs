//! Makes the tables of the changes from one side to the other.

use std::collections::BTreeMap;

use tprof_document::{Cell, Column, Table, Unit};
use tprof_metrics::program::flops::tera_text;
use tprof_rank::base::reading::Reading;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::base::stats::{Repeats, difference_error};

use super::changes::change_of;
use super::figures::{Metric, RUN_METRICS, STEP_METRICS};
use super::host_tables::HostTables;
use super::names::{NameKind, NameTotals};
use super::side::Side;

/// Makes the tables of two sides.
pub(super) struct ComparisonTables<'s> {
    /// The baseline of the comparison.
    pub a: &'s Side,
    /// The side that is compared with the baseline.
    pub b: &'s Side,
}

impl ComparisonTables<'_> {
    /// Returns all tables. The first one answers whether the job became faster.
    pub(super) fn all(&self) -> Vec<Table> {
        let per = if self.a.stepped && self.b.stepped { "a step" } else { "the whole trace" };
        let of_unit = |metrics: &'static [Metric], unit| {
            metrics.iter().filter(move |metric| metric.unit == unit)
        };
        let mut tables = vec![
            self.figures(
                "times",
                format!("Time of {per}, mean over steps and ranks"),
                of_unit(&STEP_METRICS, Unit::Duration),
                Unit::Duration,
            ),
            self.figures(
                "shares",
                format!("Use of the GPU in {per}"),
                of_unit(&STEP_METRICS, Unit::Share),
                Unit::Share,
            ),
            self.figures(
                "counts",
                format!("Work of {per}"),
                of_unit(&STEP_METRICS, Unit::Count),
                Unit::Count,
            ),
            self.figures(
                "run",
                self.title_of_run(),
                of_unit(&RUN_METRICS, Unit::Duration),
                Unit::Duration,
            ),
            self.figures(
                "memory",
                "Memory at its peak, the rank with the most".to_owned(),
                of_unit(&RUN_METRICS, Unit::Bytes),
                Unit::Bytes,
            ),
            self.figures(
                "host",
                "Processes and threads, all ranks".to_owned(),
                of_unit(&RUN_METRICS, Unit::Count),
                Unit::Count,
            ),
            self.facts(),
        ];
        let sorts = [
            (NameKind::Work, "kernels", "Kernels and copies", "kernel and no copy"),
            (NameKind::Operator, "operators", "Operators and annotations", "operator"),
            (
                NameKind::Shape,
                "shapes",
                "Operators by sizes of inputs",
                "operator with sizes of its inputs",
            ),
            (NameKind::Call, "calls", "Runtime and driver calls", "call"),
            (NameKind::Collective, "collectives", "Collectives", "collective"),
        ];
        let within = |side: &Side| if side.stepped { "its steps" } else { "its trace" };
        let within = format!("of A in {} and of B in {}", within(self.a), within(self.b));
        tables.extend(sorts.map(|(sort, key, title, what)| {
            let table = self.names(sort, key, format!("{title}: time in {per} and rank"));
            table.empty(format!("no {what} in the compared part: {within}"))
        }));
        let same_hardware = self.a.facts.other_hardware(&self.b.facts).is_empty();
        let hosts = HostTables { a: &self.a.host, b: &self.b.host, same_hardware };
        tables.insert(1, hosts.of_devices());
        tables.extend(hosts.all());
        tables
    }

    /// Returns the title of the table of wall and CPU time. The title says which ranks the times
    /// cover.
    fn title_of_run(&self) -> String {
        match (self.a.in_part, self.b.in_part) {
            (false, false) => "Wall time of the run, CPU time of a rank".to_owned(),
            (true, true) => "Wall time of the longest rank, CPU time of a rank".to_owned(),
            (true, false) => {
                "Wall time of A's longest rank and of B's run, CPU time of a rank".to_owned()
            }
            (false, true) => {
                "Wall time of A's run and of B's longest rank, CPU time of a rank".to_owned()
            }
        }
    }

    fn figures<'m>(
        &self,
        key: &'static str,
        title: String,
        metrics: impl Iterator<Item = &'m Metric>,
        unit: Unit,
    ) -> Table {
        let mut table = Table::new(
            key,
            title,
            vec![
                Column::data("metric", Unit::Text),
                Column::new("name", "metric", Unit::Text),
                Column::new("a", "A", unit),
                Column::new("b", "B", unit),
                Column::change("change", "change", unit),
                Column::new("interval", "\u{b1} 95 %", unit),
                Column::change("change_share", "of A", Unit::Share),
                Column::new("verdict", "verdict", Unit::Text),
                Column::data("a_steps", Unit::Count),
                Column::data("b_steps", Unit::Count),
                Column::data("a_deviation", unit),
                Column::data("b_deviation", unit),
            ],
        );
        let same_hardware = self.a.facts.other_hardware(&self.b.facts).is_empty();
        let mut unknown_on_both = Vec::new();
        for metric in metrics {
            let Some(change) = change_of(self.a, self.b, metric.key) else { continue };
            if let (Reading::Missing(a), Reading::Missing(b)) = (&change.a, &change.b) {
                let why = if a == b { a.clone() } else { format!("A: {a}; B: {b}") };
                unknown_on_both.push((metric.name, why));
                continue;
            }
            let difference = change.difference();
            let unknown = "one side has no value";
            let share = change.a.get().filter(|a| *a != 0.0).zip(difference);
            let repeats = |of: fn(&(Repeats, Repeats)) -> &Repeats| change.repeats.as_ref().map(of);
            let (a, b) = (repeats(|both| &both.0), repeats(|both| &both.1));
            table.row(vec![
                metric.key.into(),
                metric.name.into(),
                change.a.clone().into(),
                change.b.clone().into(),
                Cell::known(difference, unknown),
                match (change.error, a) {
                    (Some(error), _) => error.into(),
                    (None, Some(_)) => Cell::missing("needs two steps on either side"),
                    (None, None) => Cell::Empty,
                },
                Cell::known(share.map(|(a, change)| change / a.abs()), "A is 0 or unknown"),
                change.verdict(metric, same_hardware).into(),
                Cell::applies(a.map(|repeats| repeats.count)),
                Cell::applies(b.map(|repeats| repeats.count)),
                Cell::applies(a.and_then(Repeats::deviation)),
                Cell::applies(b.and_then(Repeats::deviation)),
            ]);
        }
        unknown_on_both.dedup_by(|next, first| next.1 == first.1);
        let unknown: Vec<String> =
            unknown_on_both.into_iter().map(|(name, why)| format!("{name}: {why}")).collect();
        match table.rows.is_empty() {
            true => table.empty = unknown.join("; "),
            false if unknown.is_empty() => (),
            false => table.about += &format!("Unknown on both sides: {}.", unknown.join("; ")),
        }
        table
    }

    fn facts(&self) -> Table {
        let mut table = Table::new(
            "differences",
            "Differences in hardware and configuration",
            vec![
                Column::new("key", "what", Unit::Text),
                Column::new("a", "A", Unit::Text),
                Column::new("b", "B", Unit::Name),
            ],
        )
        .empty("hosts, devices and options of both sides are equal");
        let cell = |side: &Side, key: &str| match side.facts.text(key) {
            text if text.is_empty() => Cell::missing("not recorded"),
            text => text.into(),
        };
        for key in self.a.facts.differences(&self.b.facts) {
            table.row(vec![key.into(), cell(self.a, key), cell(self.b, key)]);
        }
        table
    }

    fn names(&self, sort: NameKind, key: &'static str, title: String) -> Table {
        let mut columns = vec![
            Column::new("a_ns", "A", Unit::Duration),
            Column::new("b_ns", "B", Unit::Duration),
            Column::change("change_ns", "change", Unit::Duration),
            Column::new("interval_ns", "\u{b1} 95 %", Unit::Duration),
            Column::new("a_count", "n in A", Unit::Count),
            Column::new("b_count", "n in B", Unit::Count),
            Column::data("a_bytes", Unit::Bytes),
            Column::data("b_bytes", Unit::Bytes),
        ];
        if sort == NameKind::Shape {
            columns.extend([
                Column::data("a_flops_per_s", Unit::Number),
                Column::data("b_flops_per_s", Unit::Number),
                Column::new("a_rate", "TFLOP/s in A", Unit::Text),
                Column::new("b_rate", "TFLOP/s in B", Unit::Text),
            ]);
        }
        columns.extend([
            Column::new("presence", "only", Unit::Text),
            Column::new("name", "name", Unit::Name),
        ]);
        let mut table = Table::new(key, title, columns);
        let mut names: BTreeMap<&str, [Option<&BTreeMap<u64, NameTotals>>; 2]> = BTreeMap::new();
        for (at, side) in [self.a, self.b].into_iter().enumerate() {
            for ((of, name), steps) in &side.names {
                if *of == sort {
                    names.entry(name).or_default()[at] = Some(steps);
                }
            }
        }
        let mut rows: Vec<(f64, &str, Vec<Cell>)> = names
            .into_iter()
            .map(|(name, [a, b])| {
                let (of_a, of_b) = (self.a.per_step(a), self.b.per_step(b));
                let change = of_b.ns.mean - of_a.ns.mean;
                let error = difference_error(&of_a.ns, &of_b.ns);
                let presence = match (a, b) {
                    (Some(_), None) => "A",
                    (None, Some(_)) => "B",
                    _ => "",
                };
                let mut cells = vec![
                    of_a.ns.mean.into(),
                    of_b.ns.mean.into(),
                    change.into(),
                    Cell::known(error, "needs two steps on either side"),
                    of_a.count.into(),
                    of_b.count.into(),
                    Cell::applies((of_a.bytes > 0.0).then_some(of_a.bytes)),
                    Cell::applies((of_b.bytes > 0.0).then_some(of_b.bytes)),
                ];
                if sort == NameKind::Shape {
                    let rates = [of_a.flops_per_s(), of_b.flops_per_s()];
                    cells.extend(rates.map(Cell::applies));
                    cells.extend(rates.map(|rate| Cell::applies(rate.map(tera_text))));
                }
                cells.extend([presence.into(), name.into()]);
                (change.abs(), name, cells)
            })
            .collect();
        rows.sort_rows_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(y.1)));
        rows.into_iter().for_each(|(_, _, cells)| table.row(cells));
        table
    }
}

/// Totals of a name as means per step and rank.
struct PerStep {
    ns: Repeats,
    count: f64,
    bytes: f64,
    flops: f64,
}

impl PerStep {
    fn flops_per_s(&self) -> Option<f64> {
        (self.ns.mean > 0.0 && self.flops > 0.0).then(|| self.flops / self.ns.mean * 1e9)
    }
}

impl Side {
    /// Returns the means over steps and ranks. A step in which the name doesn't occur counts as 0.
    fn per_step(&self, took: Option<&BTreeMap<u64, NameTotals>>) -> PerStep {
        let ranks = self.sharers.max(1) as f64;
        let nothing = BTreeMap::new();
        let took = took.unwrap_or(&nothing);
        let of_step = |step: &u64| took.get(step).map_or(0.0, |took| took.ns as f64 / ranks);
        let ns: Vec<f64> = self.steps.iter().map(of_step).collect();
        let steps = self.steps.len().max(1) as f64;
        PerStep {
            ns: Repeats::of(&ns).unwrap_or_default(),
            count: took.values().map(|took| took.count as f64).sum::<f64>() / steps / ranks,
            bytes: took.values().map(|took| took.bytes as f64).sum::<f64>() / steps / ranks,
            flops: took.values().map(|took| took.flops as f64).sum::<f64>() / steps / ranks,
        }
    }
}
