//! Makes the tables of the changes on the hosts: causes of the driving threads' time, CPU time,
//! waits, threads, and the heap's sites.

use std::collections::BTreeMap;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::base::stats::among_many;

use tprof_document::{Cell, Column, Table, Unit, View};

use super::amount::{Amount, HostNameKind};
use super::causes::is_of_steps;
use super::host::HostActivity;
use super::subject::TIME;
use super::verdict::within_noise;

/// The texts of one table, and the kind of its rows.
struct TableWords {
    sort: HostNameKind,
    key: &'static str,
    title: &'static str,
    about: &'static str,
    /// Headings of the columns with the numbers of samples, waits, threads or allocations. An empty
    /// heading makes a column for programs only.
    counted: [&'static str; 2],
}

const SHOWN: [TableWords; 9] = [
    TableWords {
        sort: HostNameKind::Part,
        key: "parts",
        title: "Wall time of the driving thread",
        about: "parts as in `report host`: of the compared steps; start-up: all of it, once a rank",
        counted: ["", ""],
    },
    TableWords {
        sort: HostNameKind::Cause,
        key: "causes",
        title: "The same by function",
        about: "the innermost of the user's own code",
        counted: ["", ""],
    },
    TableWords {
        sort: HostNameKind::CauseLine,
        key: "cause_lines",
        title: "The same by line",
        about: "an edit moves lines: compare functions then",
        counted: ["", ""],
    },
    TableWords {
        sort: HostNameKind::Function,
        key: "cpu_functions",
        title: "CPU time of functions",
        about: "self time",
        counted: ["", ""],
    },
    TableWords {
        sort: HostNameKind::Python,
        key: "python_functions",
        title: "CPU time of Python's functions",
        about: "native callees included, other Python functions not",
        counted: ["", ""],
    },
    TableWords {
        sort: HostNameKind::Module,
        key: "cpu_modules",
        title: "CPU time of libraries and programs",
        about: "by the code's file",
        counted: ["", ""],
    },
    TableWords {
        sort: HostNameKind::Wait,
        key: "waits",
        title: "Time off a core, by cause",
        about: "all threads added up, waits on purpose included; ready: no free core",
        counted: ["", ""],
    },
    TableWords {
        sort: HostNameKind::Thread,
        key: "threads",
        title: "Threads and their CPU time",
        about: "threads of one name and program added up; n: how many of them ran",
        counted: ["n in A", "n in B"],
    },
    TableWords {
        sort: HostNameKind::Site,
        key: "sites",
        title: "Allocated heap bytes, by site",
        about: "requested bytes, freed or not; stacks by function, innermost first; n: allocations",
        counted: ["n in A", "n in B"],
    },
];

/// The table of device time.
const DEVICES: TableWords = TableWords {
    sort: HostNameKind::Device,
    key: "gpu_time",
    title: "Where the GPU's time went",
    about: "parts as in `report gpu-time`, of the compared steps",
    counted: ["", ""],
};

/// The hosts of two sides.
pub(super) struct HostTables<'s> {
    pub a: &'s HostActivity,
    pub b: &'s HostActivity,
    /// Whether the hardware is the same, so that times can be compared.
    pub same_hardware: bool,
}

impl HostTables<'_> {
    /// Returns all tables, the table of causes first.
    pub fn all(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = SHOWN.iter().map(|shown| self.table(shown)).collect();
        tables.insert(1, self.by_rank());
        tables
    }

    /// Returns the table of device time.
    pub fn of_devices(&self) -> Table {
        self.table(&DEVICES)
    }

    /// Whether amounts of a kind are compared per step. Times of driving threads and devices are,
    /// if both sides have steps.
    fn by_step(&self, sort: HostNameKind) -> bool {
        let has_steps = |host: &HostActivity| match sort {
            HostNameKind::Device => host.device_steps > 0,
            sort => sort.is_of_drivers() && host.steps > 0,
        };
        has_steps(self.a) && has_steps(self.b)
    }

    fn title(&self, shown: &TableWords) -> String {
        let many = self.a.ranks.max(self.b.ranks) > 1;
        let per = match (self.by_step(shown.sort), many) {
            (true, true) => ", of a step, mean over ranks",
            (true, false) => ", of a step",
            (false, true) => ", mean over ranks",
            (false, false) => "",
        };
        format!("{}{per}", shown.title)
    }

    fn table(&self, shown: &TableWords) -> Table {
        let (a, b) = (self.a, self.b);
        let [of_a, of_b] = shown.counted;
        let unit = if shown.sort == HostNameKind::Site { Unit::Bytes } else { Unit::Duration };
        let keys = match unit {
            Unit::Bytes => ["a_bytes", "b_bytes", "change_bytes", "interval_bytes"],
            _ => ["a_ns", "b_ns", "change_ns", "interval_ns"],
        };
        let spreads = match unit {
            Unit::Bytes => ["a_spread_bytes", "b_spread_bytes"],
            _ => ["a_spread_ns", "b_spread_ns"],
        };
        let is_cause = matches!(shown.sort, HostNameKind::Cause | HostNameKind::CauseLine);
        let is_spread = shown.sort == HostNameKind::Part && a.driven.max(b.driven) > 1;
        let [spread_a, spread_b] = if is_spread { ["spread A", "spread B"] } else { ["", ""] };
        let is_by_part = shown.sort.is_of_drivers() || shown.sort == HostNameKind::Device;
        let of = if is_by_part { "part" } else { "module" };
        let name = match is_cause {
            true => Column::data("name", Unit::Text),
            false => Column::new("name", "name", Unit::Name),
        };
        let mut columns = vec![
            Column::new(keys[0], "A", unit),
            Column::new(keys[1], "B", unit),
            Column::change(keys[2], "change", unit),
            Column::new(keys[3], "\u{b1} 95 %", unit),
            Column::new(spreads[0], spread_a, unit),
            Column::new(spreads[1], spread_b, unit),
            Column::new("verdict", "verdict", Unit::Text),
            Column::new("a_count", of_a, Unit::Count),
            Column::new("b_count", of_b, Unit::Count),
            Column::data("presence", Unit::Text),
            Column::data(of, Unit::Text),
            name,
        ];
        columns.extend(is_cause.then(|| Column::new("place", "name", Unit::Name)));
        let (has_a, has_b) = (has(a, shown.sort), has(b, shown.sort));
        let mut about = shown.about.to_owned();
        if is_spread {
            about.push_str("; spread: standard deviation over ranks");
        }
        let mut table = Table::new(shown.key, self.title(shown), columns)
            .about(about)
            .empty(why_empty(shown.sort, has_a, has_b));
        // If one side didn't record these amounts, the table stays empty.
        if has_a && has_b {
            self.rows(shown.sort).into_iter().for_each(|cells| table.row(cells));
        }
        table
    }

    /// Returns the rows of a kind, largest changes first.
    fn rows(&self, sort: HostNameKind) -> Vec<Vec<Cell>> {
        let mut names: BTreeMap<(&str, &str), [Option<Amount>; 2]> = BTreeMap::new();
        for (at, host) in [self.a, self.b].into_iter().enumerate() {
            for ((of, name, module), amount) in &host.amounts {
                if *of == sort {
                    names.entry((name, module)).or_default()[at] = Some(*amount);
                }
            }
        }
        let by_step = self.by_step(sort);
        let count = names.len();
        let row = |((name, of), [a, b]): ((&str, &str), [Option<Amount>; 2])| {
            let presence = match (a, b) {
                (Some(_), None) => "A",
                (None, Some(_)) => "B",
                _ => "",
            };
            let (all_a, all_b) = (a.unwrap_or_default(), b.unwrap_or_default());
            let by_step = by_step && is_of_steps(of);
            let [spread_a, spread_b] = [(self.a, all_a), (self.b, all_b)]
                .map(|(host, amount)| Cell::applies(host.spread(sort, amount, by_step)));
            let a = self.a.mean_of(sort, all_a, by_step);
            let b = self.b.mean_of(sort, all_b, by_step);
            let change = b.value - a.value;
            let error = Amount { variance: a.variance + b.variance, ..a }.error();
            let mut cells = vec![
                a.value.into(),
                b.value.into(),
                change.into(),
                interval(sort, error),
                spread_a,
                spread_b,
                self.verdict(sort, a.value, change, (error, count)).into(),
                a.count.into(),
                b.count.into(),
                presence.into(),
                Cell::applies((!of.is_empty()).then_some(of)),
                name.into(),
            ];
            if matches!(sort, HostNameKind::Cause | HostNameKind::CauseLine) {
                cells.push(format!("{}: {name}", of.replace('_', " ")).into());
            }
            (change.abs(), (name.to_owned(), of.to_owned()), cells)
        };
        let mut rows: Vec<(f64, (String, String), Vec<Cell>)> =
            names.into_iter().map(row).collect();
        rows.sort_rows_by(|x, y| y.0.total_cmp(&x.0).then_with(|| x.1.cmp(&y.1)));
        rows.into_iter().map(|(_, _, cells)| cells).collect()
    }

    /// Returns the verdict on a change, one of `count` in a table. It depends on whether sampling
    /// alone explains the change.
    fn verdict(
        &self,
        sort: HostNameKind,
        a: f64,
        change: f64,
        (error, count): (f64, usize),
    ) -> &'static str {
        if change == 0.0 {
            "same"
        } else if sort != HostNameKind::Site && !self.same_hardware {
            "other hardware"
        } else if change.abs() <= error {
            within_noise(error, a.max(a + change))
        } else if sort != HostNameKind::Site && change.abs() < TIME.noise * a {
            "same"
        } else {
            let is_certain = bounded(sort, error) && change.abs() > error * among_many(count);
            match (change > 0.0, is_certain) {
                (true, true) => "more",
                (false, true) => "less",
                // Chance may have caused the change: the value was measured, not sampled, but only
                // once, or a change like this can be expected among so many.
                (true, false) => "more?",
                (false, false) => "less?",
            }
        }
    }

    /// Returns the table of the parts of each rank that both sides have.
    fn by_rank(&self) -> Table {
        let columns = vec![
            Column::new("rank", "rank", Unit::Id),
            Column::new("a_ns", "A", Unit::Duration),
            Column::new("b_ns", "B", Unit::Duration),
            Column::change("change_ns", "change", Unit::Duration),
            Column::new("interval_ns", "\u{b1} 95 %", Unit::Duration),
            Column::new("verdict", "verdict", Unit::Text),
            Column::data("part", Unit::Text),
            Column::new("name", "name", Unit::Name),
        ];
        let many = self.a.driven.min(self.b.driven) > 1;
        let view = if many { View::Rows } else { View::Data };
        let mut table = Table::new("parts_by_rank", "The same by rank, whole runs", columns)
            .empty("no rank is on both sides")
            .view(view);
        let mut rows: Vec<(f64, Vec<Cell>)> = Vec::new();
        for (rank, of_a) in &self.a.by_rank {
            let Some((_, of_b)) = self.b.by_rank.iter().find(|(of, _)| of == rank) else {
                continue;
            };
            let mut keys: Vec<_> = of_a.keys().chain(of_b.keys()).collect();
            keys.sort();
            keys.dedup();
            let count = keys.len() * self.a.by_rank.len();
            for key in keys {
                let [a, b] = [of_a, of_b].map(|of| of.get(key).copied().unwrap_or_default());
                let change = b.value - a.value;
                let error = Amount { variance: a.variance + b.variance, ..a }.error();
                let verdict = self.verdict(HostNameKind::Part, a.value, change, (error, count));
                let cells = vec![
                    (*rank).into(),
                    a.value.into(),
                    b.value.into(),
                    change.into(),
                    interval(HostNameKind::Part, error),
                    verdict.into(),
                    key.2.as_str().into(),
                    key.1.as_str().into(),
                ];
                rows.push((change.abs(), cells));
            }
        }
        rows.sort_rows_by(|x, y| y.0.total_cmp(&x.0));
        rows.into_iter().for_each(|(_, cells)| table.row(cells));
        table
    }
}

/// Whether `error` covers the uncertainty of an amount. A measured time has no sampling error, but
/// still differs from run to run. The bytes of a site usually don't differ.
fn bounded(sort: HostNameKind, error: f64) -> bool {
    sort == HostNameKind::Site || error > 0.0
}

fn interval(sort: HostNameKind, error: f64) -> Cell {
    Cell::known(
        bounded(sort, error).then(|| error.round()),
        "measured, not sampled: how it varies from run to run is not known",
    )
}

/// Whether a side recorded the data of a table.
fn has(host: &HostActivity, sort: HostNameKind) -> bool {
    match sort {
        HostNameKind::Site => host.with_heap > 0,
        HostNameKind::Device => host.devices > 0,
        sort if sort.is_of_drivers() => host.driven > 0,
        _ => host.sampled > 0,
    }
}

fn why_empty(sort: HostNameKind, a: bool, b: bool) -> String {
    let what = match sort {
        HostNameKind::Site => "heap records",
        HostNameKind::Device => "work on a device",
        _ => "CPU samples",
    };
    match (a, b) {
        (true, true) => "neither side has any".to_owned(),
        (true, false) => format!("only A has {what}"),
        (false, true) => format!("only B has {what}"),
        (false, false) => format!("neither side has {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::causes::{START_UP, START_UP_NAME};
    use super::*;

    #[test]
    fn start_up_is_not_divided_by_steps() {
        let side = |ns: f64| {
            let amount = Amount { value: ns, ..Amount::default() };
            let key =
                |name: &str, part: &str| (HostNameKind::Part, name.to_owned(), part.to_owned());
            let amounts =
                [(key(START_UP_NAME, START_UP), amount), (key("Python", "python"), amount)];
            let amounts = amounts.into_iter().collect();
            HostActivity { driven: 1, steps: 10, amounts, ..HostActivity::default() }
        };
        let (a, b) = (side(1000.0), side(3000.0));
        let tables = HostTables { a: &a, b: &b, same_hardware: true };
        let rows = tables.rows(HostNameKind::Part);
        let of = |cells: &Vec<Cell>| (cells[0].clone(), cells[1].clone());
        let expected = [(1000.0.into(), 3000.0.into()), (100.0.into(), 300.0.into())];
        assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), expected);
    }
}
