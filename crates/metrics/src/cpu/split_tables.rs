//! Tables of time by step and by range.

use rustc_hash::FxHashMap;
use tprof_document::{Cell, Column, Table, Unit, View};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::Func;

use super::cells::{WHERE, place_cells, sampled, shown};
use super::groups::{Group, Groups};
use super::split::Split;
use super::steps::Label;

/// The tables by step and by range; a table without groups is left out.
pub(super) fn tables(split: &Split, data: bool) -> Vec<Table> {
    let mut tables = Vec::new();
    if !split.steps.is_empty() {
        let table = Table::new("steps", "Steps, time on a core", columns("step"))
            .about("all threads of the processes with steps and of their descendants");
        tables.push(filled(table, split.steps.iter().collect(), split, "outside any step"));
    }
    if !split.ranges.is_empty() {
        let table = Table::new("ranges", "NVTX ranges, time on a core", columns("range"))
            .about("only the range's own thread; self: without nested ranges");
        let mut sorted: Vec<_> = split.ranges.iter().collect();
        sorted.sort_rows_by(|a, b| {
            let order = |g: &Group| (g.self_ns, g.total_ns);
            order(b.1).cmp(&order(a.1)).then_with(|| a.0.cmp(b.0))
        });
        tables.push(filled(table, sorted, split, "outside any range"));
    }
    if data {
        tables.extend(functions("functions_by_step", "step", &split.steps, "outside any step"));
        tables.extend(functions("functions_by_range", "range", &split.ranges, "outside any range"));
    }
    tables
}

fn columns(name: &'static str) -> Vec<Column> {
    vec![
        Column::new("self_ns", "self", Unit::Duration),
        Column::new("self_share", "share", Unit::Share),
        Column::new("total_ns", "total", Unit::Duration),
        Column::data("samples", Unit::Count),
        Column::new("mostly", "mostly in", Unit::Text),
        Column::new(name, name, Unit::Name),
    ]
}

/// Adds one row for each group, and one for the time without a sample, so that the rows add up to
/// the whole.
fn filled(
    mut table: Table,
    groups: Vec<(&Option<Label>, &Group)>,
    split: &Split,
    outside: &str,
) -> Table {
    let sampled_ns: u64 = groups.iter().map(|(_, group)| group.self_ns).sum();
    let whole_ns = sampled_ns + split.unsampled_ns;
    let share = |ns: u64| ns as f64 / whole_ns.max(1) as f64;
    let (inside, out): (Vec<_>, Vec<_>) =
        groups.into_iter().partition(|(label, _)| label.is_some());
    for (label, group) in inside.into_iter().chain(out) {
        table.row(vec![
            sampled(group.self_ns, group.self_samples),
            share(group.self_ns).into(),
            sampled(group.total_ns, group.total_samples),
            group.self_samples.into(),
            Cell::applies(most(&group.mostly)),
            name(label, outside).into(),
        ]);
    }
    if split.unsampled_ns > 0 {
        table.row(vec![
            split.unsampled_ns.into(),
            share(split.unsampled_ns).into(),
            split.unsampled_ns.into(),
            0_u64.into(),
            Cell::Empty,
            "(not sampled)".into(),
        ]);
    }
    table
}

fn name(label: &Option<Label>, outside: &str) -> String {
    label.as_ref().map_or_else(|| format!("({outside})"), |(_, name)| name.clone())
}

fn most(functions: &FxHashMap<Func, u64>) -> Option<String> {
    let most = functions.iter().max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.name.cmp(&a.0.name)));
    most.map(|(func, _)| shown(func))
}

/// The table of functions in each step or range.
fn functions(
    key: &'static str,
    group: &'static str,
    groups: &Groups,
    outside: &str,
) -> Option<Table> {
    let mut columns = vec![
        Column::data(group, Unit::Text),
        Column::data("self_ns", Unit::Duration),
        Column::data("total_ns", Unit::Duration),
    ];
    columns.extend(WHERE);
    let mut table = Table::new(key, format!("Functions by {group}"), columns).view(View::Data);
    for (label, group) in groups {
        let mut rows: Vec<_> = group.functions.iter().collect();
        rows.sort_rows_by(|a, b| {
            let order = |w: &super::groups::SelfAndTotal| (w.self_ns, w.total_ns);
            order(b.1).cmp(&order(a.1)).then_with(|| a.0.name.cmp(&b.0.name))
        });
        for (func, within) in rows {
            let mut row: Vec<Cell> =
                vec![name(label, outside).into(), within.self_ns.into(), within.total_ns.into()];
            row.extend(place_cells(func));
            table.row(row);
        }
    }
    (!groups.is_empty()).then_some(table)
}
