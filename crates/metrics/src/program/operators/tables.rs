//! Makes the tables of `operators`.

use std::cmp::Reverse;
use tprof_rank::base::sort_rows::SortRows;

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit, View};

use super::costs::{Cost, Launched, OperatorCosts};
use crate::gpu::breakdown::NO_WORK;
use crate::program::flops::{OperatorRate, rate_cells};

const NO_OPERATORS: &str = "no operators were recorded (torch.profiler: ProfilerActivity.CPU)";
const NO_LAUNCHES: &str = "no launch inside an operator was recorded with its work";

/// Makes the tables over all ranks, and those by rank, which only programs get.
pub(super) fn body(parts: Vec<(RankContext, OperatorCosts)>, hta: bool) -> Body {
    let mut all = OperatorCosts::default();
    parts.iter().for_each(|(_, sums)| all.add(sums));
    let mut tables = Vec::new();
    if !hta {
        let mut table = costs("operators", &[], !all.rates.is_empty());
        add_costs(&mut table, &all, None);
        tables.push(table);
    }
    let mut table = sequences("kernel_sequences", &[]);
    add_sequences(&mut table, &all, None);
    tables.push(table);
    let rank_column = [Column::new("rank", "rank", Unit::Text)];
    let mut by_rank = costs("operators_by_rank", &rank_column, false).view(View::Data);
    let mut sequences_by_rank =
        sequences("kernel_sequences_by_rank", &rank_column).view(View::Data);
    for (at, sums) in &parts {
        add_costs(&mut by_rank, sums, Some(at));
        add_sequences(&mut sequences_by_rank, sums, Some(at));
    }
    tables.push(sequences_by_rank);
    if !hta {
        tables.push(by_rank);
    }
    Body { tables, notes: notes(&all, hta) }
}

fn notes(all: &OperatorCosts, hta: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if all.unowned > 0 {
        notes.push(format!(
            "{} kernels, copies and memsets were launched outside of any operator",
            all.unowned
        ));
    }
    if all.unlaunched > 0 && !hta {
        notes.push(format!(
            "{} kernels, copies and memsets belong to no operator: their launches are not in the \
             trace",
            all.unlaunched
        ));
    }
    notes
}

fn costs(key: &'static str, first: &[Column], has_rates: bool) -> Table {
    let mut columns = first.to_vec();
    columns.extend([
        Column::new("runs", "runs", Unit::Count),
        Column::new("own_ns", "own", Unit::Duration),
        Column::data("total_ns", Unit::Duration),
        Column::new("device_ns", "on GPU", Unit::Duration),
        Column::data("device_total_ns", Unit::Duration),
        Column::new("kernels", "kernels", Unit::Count),
        Column::new("to_call_ns", "to launch", Unit::Duration),
        Column::new("to_kernel_ns", "to start", Unit::Duration),
    ]);
    columns.extend(OperatorRate::columns(has_rates));
    columns.push(Column::new("operator", "operator", Unit::Name));
    const ABOUT: &str = "own: host time without called operators. on GPU, kernels: its own launches. to \
                         launch: from its start to its first launching call; to start: from there to the \
                         kernel's start (means)";
    let about = match has_rates {
        true => format!("{ABOUT}. TFLOP/s, of roof: as in `report roofline`"),
        false => ABOUT.to_owned(),
    };
    Table::new(key, "Operators", columns).about(about).empty(NO_OPERATORS)
}

fn add_costs(table: &mut Table, sums: &OperatorCosts, at: Option<&RankContext>) {
    let mut rows: Vec<(&String, &Cost)> = sums.costs.iter().collect();
    rows.sort_rows_by_key(|(name, cost)| (Reverse(cost.own_ns), *name));
    for (name, cost) in rows {
        let mut cells: Vec<Cell> = at.iter().map(|at| at.label.as_str().into()).collect();
        let of_device = |value: u64| Cell::known(sums.has_work.then_some(value), NO_WORK);
        cells.extend([
            cost.runs.into(),
            (cost.own_ns.max(0) as u64).into(),
            cost.total_ns.into(),
            of_device(cost.device_ns),
            of_device(cost.device_total_ns),
            of_device(cost.kernels),
        ]);
        cells.extend(delays(&cost.launched));
        cells.extend(rate_cells(sums.rates.get(name)));
        cells.push(name.as_str().into());
        table.row(cells);
    }
}

fn delays(launched: &Launched) -> [Cell; 2] {
    [
        // A run that launched nothing doesn't count for the mean delay.
        Cell::applies(launched.mean_to_call_ns()),
        Cell::applies(launched.mean_to_kernel_ns()),
    ]
}

fn sequences(key: &'static str, first: &[Column]) -> Table {
    let mut columns = first.to_vec();
    columns.extend([
        Column::new("runs", "runs", Unit::Count),
        Column::new("to_call_ns", "to launch", Unit::Duration),
        Column::new("to_kernel_ns", "to start", Unit::Duration),
        Column::data("operator", Unit::Text),
        Column::data("kernels", Unit::Text),
        Column::new("sequence", "operator: kernels", Unit::Name),
    ]);
    Table::new(key, "Kernels that one run of an operator launched", columns)
        .about("to launch, to start: means over the runs, for each run's first kernel")
        .empty(NO_LAUNCHES)
}

fn add_sequences(table: &mut Table, sums: &OperatorCosts, at: Option<&RankContext>) {
    let mut rows: Vec<(&(String, String), &Launched)> = sums.sequences.iter().collect();
    rows.sort_rows_by_key(|(names, run)| (Reverse(run.runs), *names));
    for ((operator, kernels), run) in rows {
        let mut cells: Vec<Cell> = at.iter().map(|at| at.label.as_str().into()).collect();
        cells.push(run.runs.into());
        cells.extend(delays(run));
        cells.push(operator.as_str().into());
        cells.push(kernels.as_str().into());
        cells.push(format!("{operator}: {kernels}").into());
        table.row(cells);
    }
}
