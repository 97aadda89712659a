//! Tables of functions, modules and call trees.

use tprof_document::{Cell, Column, Options, SortBy, Table, Unit};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::Layer;

use super::cells::{WHERE, place_cells, sampled, shown};
use super::functions::Functions;
use super::tree::FunctionTree;

/// A node of a tree is left out if its time is less than all time divided by this.
const LEAST_OF_TREE: u64 = 100;

pub(super) fn functions(all: &Functions, options: &Options, why: &str) -> Table {
    let mut columns = vec![
        Column::new("self_ns", "self", Unit::Duration),
        Column::new("self_share", "share", Unit::Share),
        Column::new("total_ns", "total", Unit::Duration),
        Column::data("total_share", Unit::Share),
        Column::data("waited_ns", Unit::Duration),
        Column::data("samples", Unit::Count),
    ];
    columns.extend(WHERE);
    if options.sort == SortBy::Waited {
        columns[4].heading = "waited";
    }
    let title = format!("Functions, by {}", options.sort.words());
    let mut table =
        Table::new("functions", title, columns).about("total: callees included").empty(why);
    let share = |ns: u64| ns as f64 / all.running_ns.max(1) as f64;
    for (func, sum) in all.sorted(options.sort, options.mine, |sum| sum.self_ns) {
        // Functions that only waited are in the table of waits.
        if sum.total_ns == 0 && options.sort != SortBy::Waited {
            continue;
        }
        let mut row = vec![
            sampled(sum.self_ns, sum.self_samples),
            share(sum.self_ns).into(),
            sampled(sum.total_ns, sum.total_samples),
            share(sum.total_ns).into(),
            sum.waited_ns.into(),
            sum.self_samples.into(),
        ];
        row.extend(place_cells(func));
        table.row(row);
    }
    table
}

/// The table of Python functions, in which the native code that they call counts as theirs.
pub(super) fn python(all: &Functions, options: &Options) -> Option<Table> {
    let columns = vec![
        Column::new("self_ns", "self", Unit::Duration),
        Column::new("self_share", "share", Unit::Share),
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("waited_ns", "waited", Unit::Duration),
        Column::data("file", Unit::Text),
        Column::data("name", Unit::Text),
        Column::new("mostly", "mostly in", Unit::Text),
        Column::functions("function", "function"),
    ];
    let mut table = Table::new("python", "Python functions", columns).about(
        "self: native callees included, mostly of that module; waited: all callees included",
    );
    let share = |ns: u64| ns as f64 / all.running_ns.max(1) as f64;
    let rows = all.sorted(options.sort, options.mine, |sum| sum.own_ns).into_iter();
    for (func, sum) in rows.filter(|(func, _)| func.layer == Layer::Python) {
        table.row(vec![
            sum.own_ns.into(),
            share(sum.own_ns).into(),
            sampled(sum.total_ns, sum.total_samples),
            sum.waited_ns.into(),
            func.file.to_string().into(),
            func.name.to_string().into(),
            match all.under(func).first() {
                Some((module, _)) => named(module).to_owned().into(),
                None => Cell::missing("it has no self time"),
            },
            shown(func).into(),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The table of Python functions by the module that ran below them, with no other Python function
/// in between.
pub(super) fn python_modules(all: &Functions) -> Option<Table> {
    let columns = vec![
        Column::new("self_ns", "self", Unit::Duration),
        Column::new("module", "module", Unit::Name),
        Column::functions("function", "function"),
        Column::data("file", Unit::Text),
        Column::data("name", Unit::Text),
    ];
    let mut table = Table::new("python_modules", "Python functions by module below", columns);
    for (func, _) in all.sorted(SortBy::SelfTime, false, |sum| sum.own_ns) {
        for (module, ns) in all.under(func) {
            table.row(vec![
                ns.into(),
                named(module).to_owned().into(),
                shown(func).into(),
                func.file.to_string().into(),
                func.name.to_string().into(),
            ]);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The displayed name of a module.
fn named(module: &str) -> &str {
    if module.is_empty() { "(no file)" } else { module }
}

pub(super) fn modules(all: &Functions, why: &str) -> Table {
    let columns = vec![
        Column::new("self_ns", "self", Unit::Duration),
        Column::new("self_share", "share", Unit::Share),
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("module", "module", Unit::Name),
    ];
    let mut table = Table::new("modules", "Modules", columns).empty(why);
    let mut rows: Vec<_> = all.modules.iter().collect();
    rows.sort_rows_by(|a, b| {
        (b.1.self_ns, b.1.total_ns).cmp(&(a.1.self_ns, a.1.total_ns)).then_with(|| a.0.cmp(b.0))
    });
    for (module, sum) in rows {
        let name = named(module);
        table.row(vec![
            sum.self_ns.into(),
            (sum.self_ns as f64 / all.running_ns.max(1) as f64).into(),
            sum.total_ns.into(),
            name.into(),
        ]);
    }
    table
}

/// The table of a tree. `running_ns` is all time on a core, the whole of which shares are computed.
pub(super) fn tree(
    key: &'static str,
    title: &str,
    tree: &FunctionTree,
    running_ns: u64,
    why: &str,
) -> Table {
    let columns = vec![
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::data("self_ns", Unit::Duration),
        Column::data("depth", Unit::Count),
        Column::data("layer", Unit::Text),
        Column::data("module", Unit::Text),
        Column::data("function", Unit::Text),
        Column::functions("line", "function"),
    ];
    let mut table = Table::new(key, title, columns)
        .about("nodes of 1% and more; pure pass-through calls are left out")
        .empty(why);
    for (depth, node) in tree.shown(running_ns / LEAST_OF_TREE) {
        let Some(func) = &node.func else { continue };
        table.row(vec![
            node.total_ns.into(),
            (node.total_ns as f64 / running_ns.max(1) as f64).into(),
            node.self_ns.into(),
            depth.into(),
            func.layer.word().into(),
            func.module.to_string().into(),
            func.name.to_string().into(),
            format!("{}{}", "\u{2502} ".repeat(depth.min(12)), shown(func)).into(),
        ]);
    }
    table
}
