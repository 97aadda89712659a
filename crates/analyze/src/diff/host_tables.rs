//! What changed on the hosts, as tables: CPU time, waits, threads, the heap's sites.

use std::collections::BTreeMap;

use super::host::{Amount, HostActivity, HostSort};
use crate::document::{Cell, Column, Table, Unit};

/// What a table is of.
struct Shown {
    sort: HostSort,
    key: &'static str,
    title: &'static str,
    about: &'static str,
    /// Heading of the numbers of samples, waits, threads or allocations, where people see them.
    counted: [&'static str; 2],
}

const SHOWN: [Shown; 6] = [
    Shown {
        sort: HostSort::Function,
        key: "cpu_functions",
        title: "CPU time of functions",
        about: "self time, inlined code included",
        counted: ["", ""],
    },
    Shown {
        sort: HostSort::Python,
        key: "python_functions",
        title: "CPU time of Python's functions",
        about: "native callees included, other Python functions not",
        counted: ["", ""],
    },
    Shown {
        sort: HostSort::Module,
        key: "cpu_modules",
        title: "CPU time of libraries and programs",
        about: "by the code's file",
        counted: ["", ""],
    },
    Shown {
        sort: HostSort::Wait,
        key: "waits",
        title: "Time off a core, by cause",
        about: "all threads added up, waits on purpose included; ready: no free core",
        counted: ["", ""],
    },
    Shown {
        sort: HostSort::Thread,
        key: "threads",
        title: "Threads and their CPU time",
        about: "threads of one name and program added up; n: how many of them ran",
        counted: ["n in A", "n in B"],
    },
    Shown {
        sort: HostSort::Site,
        key: "sites",
        title: "Allocated heap bytes, by site",
        about: "requested bytes, freed or not; host stacks, innermost frame first; n: allocations",
        counted: ["n in A", "n in B"],
    },
];

/// All of them.
pub(super) fn tables(a: &HostActivity, b: &HostActivity) -> Vec<Table> {
    SHOWN.iter().map(|shown| table(shown, a, b)).collect()
}

fn table(shown: &Shown, a: &HostActivity, b: &HostActivity) -> Table {
    let per = if a.ranks.max(b.ranks) > 1 { ", mean over ranks" } else { "" };
    let [of_a, of_b] = shown.counted;
    let unit = if shown.sort == HostSort::Site { Unit::Bytes } else { Unit::Duration };
    let keys = match unit {
        Unit::Bytes => ["a_bytes", "b_bytes", "change_bytes", "interval_bytes"],
        _ => ["a_ns", "b_ns", "change_ns", "interval_ns"],
    };
    let columns = vec![
        Column::new(keys[0], "A", unit),
        Column::new(keys[1], "B", unit),
        Column::change(keys[2], "change", unit),
        Column::new(keys[3], "\u{b1} 95 %", unit),
        Column::new("verdict", "verdict", Unit::Text),
        Column::new("a_count", of_a, Unit::Count),
        Column::new("b_count", of_b, Unit::Count),
        Column::data("presence", Unit::Text),
        Column::data("module", Unit::Text),
        Column::new("name", "name", Unit::Name),
    ];
    let (has_a, has_b) = (has(a, shown.sort), has(b, shown.sort));
    let mut table = Table::new(shown.key, format!("{}{per}", shown.title), columns)
        .about(shown.about)
        .empty(why_empty(shown.sort, has_a, has_b));
    // What one side did not record is not compared with what the other did.
    if has_a && has_b {
        rows(shown.sort, a, b).into_iter().for_each(|cells| table.row(cells));
    }
    table
}

/// Whether a side recorded what would fill a table.
fn has(host: &HostActivity, sort: HostSort) -> bool {
    match sort {
        HostSort::Site => host.with_heap > 0,
        _ => host.sampled > 0,
    }
}

fn why_empty(sort: HostSort, a: bool, b: bool) -> String {
    let what = match sort {
        HostSort::Site => "heap records",
        _ => "CPU samples",
    };
    match (a, b) {
        (true, true) => "neither side has any".to_owned(),
        (true, false) => format!("only A has {what}"),
        (false, true) => format!("only B has {what}"),
        (false, false) => format!("neither side has {what}"),
    }
}

/// Largest changes first.
fn rows(sort: HostSort, a: &HostActivity, b: &HostActivity) -> Vec<Vec<Cell>> {
    let mut names: BTreeMap<(&str, &str), [Option<Amount>; 2]> = BTreeMap::new();
    for (at, host) in [a, b].into_iter().enumerate() {
        for ((of, name, module), amount) in &host.amounts {
            if *of == sort {
                names.entry((name, module)).or_default()[at] = Some(host.mean(*amount));
            }
        }
    }
    let row = |((name, module), [a, b]): ((&str, &str), [Option<Amount>; 2])| {
        let presence = match (a, b) {
            (Some(_), None) => "A",
            (None, Some(_)) => "B",
            _ => "",
        };
        let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
        let change = b.value - a.value;
        let error = Amount { variance: a.variance + b.variance, ..a }.error();
        let cells = vec![
            a.value.into(),
            b.value.into(),
            change.into(),
            error.round().into(),
            verdict(change, error).into(),
            a.count.into(),
            b.count.into(),
            presence.into(),
            Cell::applies((!module.is_empty()).then_some(module)),
            name.into(),
        ];
        (change.abs(), name.to_owned(), cells)
    };
    let mut rows: Vec<(f64, String, Vec<Cell>)> = names.into_iter().map(row).collect();
    rows.sort_by(|x, y| y.0.total_cmp(&x.0).then_with(|| x.1.cmp(&y.1)));
    rows.into_iter().map(|(_, _, cells)| cells).collect()
}

/// Whether sampling explains a change.
fn verdict(change: f64, error: f64) -> &'static str {
    if change == 0.0 {
        "same"
    } else if change.abs() <= error {
        "not sure"
    } else if change > 0.0 {
        "more"
    } else {
        "less"
    }
}
