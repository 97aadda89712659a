//! Makes the tables of the report `stragglers`.

use std::cmp::Reverse;
use tprof_rank::base::sort_rows::SortRows;

use tprof_rank::roles::Role;

use tprof_document::{Body, Cell, Column, Options, RankContext, Table, Unit, View};

use super::arrivals::{Arrival, arrivals, arrivals_by_role, lateness_by_step};
use super::{RankStragglers, clocks, decided, experts, hta, imbalance};

const ONE_RANK: &str = "there is one rank, and stragglers need a comparison";
pub(super) const NOT_MET: &str = "no collective in which all ranks wait was recorded on two ranks, in their steps if they have any";

/// Makes the report's body from all ranks.
pub(super) fn body(parts: &[(RankContext, RankStragglers)], options: &Options) -> Body {
    if options.hta {
        return Body { tables: vec![potential(parts)], notes: Vec::new() };
    }
    let mut tables = vec![late(parts)];
    tables.extend(decided::tables(parts));
    tables.extend([summary(parts), load(parts)]);
    tables.extend(late_by_role(parts));
    tables.extend(expert_exchanges(parts));
    tables.extend(clocks::table(parts));
    if options.data {
        tables.push(late_by_step(parts));
    }
    Body { tables, notes: notes(parts) }
}

fn notes(parts: &[(RankContext, RankStragglers)]) -> Vec<String> {
    let stride = parts.iter().map(|(_, part)| part.compared.stride).max().unwrap_or(1);
    let sampled = (stride > 1).then(|| format!("one in {stride} collectives was compared"));
    sampled.into_iter().collect()
}

/// The columns of an arrival.
fn arrival_columns() -> [Column; 5] {
    [
        Column::new("collectives", "collectives", Unit::Count),
        Column::new("last", "came last", Unit::Count),
        Column::new("mean_late_ns", "late by", Unit::Duration),
        Column::new("waited_ns", "waited", Unit::Duration),
        Column::new("delay_ns", "held up", Unit::Duration),
    ]
}

fn arrival_cells(arrival: &Arrival) -> [Cell; 5] {
    [
        arrival.met.into(),
        arrival.last.into(),
        Cell::known(arrival.mean_late_ns(), NOT_MET),
        arrival.waited_ns.into(),
        arrival.delay_ns.into(),
    ]
}

/// Makes the table of late arrivals by the role of the collectives' groups; `None` if no role is
/// known.
fn late_by_role(parts: &[(RankContext, RankStragglers)]) -> Option<Table> {
    let mut columns =
        vec![Column::new("rank", "rank", Unit::Text), Column::new("role", "role", Unit::Text)];
    columns.extend(arrival_columns());
    let mut table = Table::new("late_by_role", "Late arrivals by role of the group", columns)
        .about("role: what the ranks of the collective's group divide among themselves");
    let compared: Vec<_> = parts.iter().map(|(_, part)| &part.compared).collect();
    let by_rank = parts.iter().map(|(at, _)| at).zip(arrivals_by_role(&compared));
    let mut rows: Vec<(&RankContext, Role, Arrival)> = by_rank
        .flat_map(|(at, roles)| roles.into_iter().map(move |(role, arrival)| (at, role, arrival)))
        .collect();
    if rows.iter().all(|(_, role, _)| *role == Role::Unknown) {
        return None;
    }
    rows.sort_by_key(|(_, _, arrival)| Reverse((arrival.delay_ns, arrival.late_ns)));
    for (at, role, arrival) in rows {
        let mut cells = vec![at.label.as_str().into(), role.word().into()];
        cells.extend(arrival_cells(&arrival));
        table.row(cells);
    }
    Some(table)
}

fn expert_exchanges(parts: &[(RankContext, RankStragglers)]) -> Option<Table> {
    let compared: Vec<_> = parts.iter().map(|(_, part)| &part.compared).collect();
    let by_role = arrivals_by_role(&compared);
    let arrivals: Vec<Option<Arrival>> =
        by_role.iter().map(|roles| roles.get(&Role::Expert).copied()).collect();
    let exchanges: Vec<_> = parts.iter().map(|(at, part)| (at, &part.experts)).collect();
    experts::table(&exchanges, &arrivals)
}

fn late(parts: &[(RankContext, RankStragglers)]) -> Table {
    let mut columns = vec![Column::new("rank", "rank", Unit::Text)];
    columns.extend(arrival_columns());
    let why = if parts.len() < 2 { ONE_RANK } else { NOT_MET };
    let mut table = Table::new("late_arrivals", "Late arrivals at collectives", columns)
        .about(
            "late by: mean time after the first rank; waited: for the last one, summed; held up: \
             time after the last but one, summed, the others' gain",
        )
        .empty(why);
    let compared: Vec<_> = parts.iter().map(|(_, part)| &part.compared).collect();
    let mut rows: Vec<(&RankContext, Arrival)> =
        parts.iter().map(|(at, _)| at).zip(arrivals(&compared)).collect();
    rows.retain(|(_, arrival)| arrival.met > 0);
    rows.sort_rows_by_key(|(_, arrival)| Reverse((arrival.delay_ns, arrival.late_ns)));
    for (at, arrival) in rows {
        let mut cells = vec![at.label.as_str().into()];
        cells.extend(arrival_cells(&arrival));
        table.row(cells);
    }
    table
}

fn late_by_step(parts: &[(RankContext, RankStragglers)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("step", "step", Unit::Id),
        Column::new("collectives", "collectives", Unit::Count),
        Column::new("late_ns", "late by", Unit::Duration),
    ];
    let why = match parts.iter().any(|(_, part)| part.load.steps.is_some()) {
        _ if parts.len() < 2 => ONE_RANK,
        true => NOT_MET,
        false => "no steps were recorded",
    };
    let mut table =
        Table::new("late_by_step", "Late arrivals by step", columns).view(View::Data).empty(why);
    let compared: Vec<_> = parts.iter().map(|(_, part)| &part.compared).collect();
    for ((at, _), steps) in parts.iter().zip(lateness_by_step(&compared)) {
        for (step, (collectives, late_ns)) in steps {
            let mean = late_ns / collectives;
            table.row(vec![at.label.as_str().into(), step.into(), collectives.into(), mean.into()]);
        }
    }
    table
}

/// Returns the ranks that computed anything, with their load.
fn loaded(parts: &[(RankContext, RankStragglers)]) -> Vec<(&RankContext, u64)> {
    let mut rows: Vec<(&RankContext, u64)> =
        parts.iter().map(|(at, part)| (at, part.load.per_step_ns())).collect();
    if rows.iter().all(|(_, load)| *load == 0) {
        rows.clear();
    }
    rows.retain(|(at, _)| at.rank.is_some());
    rows.sort_rows_by_key(|(_, load)| Reverse(*load));
    rows
}

fn no_load(parts: &[(RankContext, RankStragglers)]) -> &'static str {
    match parts.iter().any(|(_, part)| part.load.steps.is_some()) {
        _ if parts.len() < 2 => ONE_RANK,
        true => "no compute kernel was launched in the steps",
        false => "no compute kernel was recorded",
    }
}

fn mean(rows: &[(&RankContext, u64)]) -> f64 {
    rows.iter().map(|(_, load)| *load as f64).sum::<f64>() / rows.len().max(1) as f64
}

fn summary(parts: &[(RankContext, RankStragglers)]) -> Table {
    let columns = vec![
        Column::new("ranks", "ranks", Unit::Count),
        Column::new("mean_ns", "mean", Unit::Duration),
        Column::new("max_ns", "highest", Unit::Duration),
        Column::new("most_loaded", "on", Unit::Text),
        Column::new("imbalance", "imbalance", Unit::Share),
    ];
    let mut table = Table::new("load_imbalance", "Load imbalance", columns)
        .about("imbalance: highest compute time of a step over the ranks' mean, less 1")
        .empty(no_load(parts));
    let rows = loaded(parts);
    let loads: Vec<u64> = rows.iter().map(|row| row.1).collect();
    if let (Some(imbalance), [first, _, ..]) = (imbalance(&loads), rows.as_slice()) {
        table.row(vec![
            rows.len().into(),
            (mean(&rows).round() as u64).into(),
            first.1.into(),
            first.0.label.as_str().into(),
            imbalance.into(),
        ]);
    }
    table
}

fn load(parts: &[(RankContext, RankStragglers)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("compute_ns", "compute", Unit::Duration),
        Column::new("of_mean", "of mean", Unit::Share),
    ];
    let in_steps = parts.iter().any(|(_, part)| part.load.steps.is_some());
    let title = if in_steps { "Compute time of a step" } else { "Compute time" };
    let mut table = Table::new("load", title, columns).empty(no_load(parts));
    let rows = loaded(parts);
    let mean = mean(&rows);
    for (at, load) in rows {
        let share = (mean > 0.0).then(|| load as f64 / mean);
        table.row(vec![
            at.label.as_str().into(),
            load.into(),
            Cell::known(share, "no rank has compute kernels"),
        ]);
    }
    table
}

/// Makes the table of potential stragglers by HTA's definition.
fn potential(parts: &[(RankContext, RankStragglers)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("steps", "steps in which it began last", Unit::Count),
    ];
    let mut table = Table::new("potential_stragglers", "Potential stragglers", columns).empty(
        "HTA needs two ranks, steps, and kernels named ncclKernel… of at least 1 % of a step",
    );
    let kernels: Vec<_> = parts.iter().map(|(_, part)| &part.hta).collect();
    for (rank, steps) in hta::potential(&kernels).unwrap_or_default() {
        table.row(vec![parts[rank].0.label.as_str().into(), steps.into()]);
    }
    table
}
