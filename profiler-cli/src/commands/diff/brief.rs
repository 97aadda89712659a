//! Selects the rows of a comparison that changed beyond noise.

use tprof_document::{Cell, Table, Value, View};

/// Tables of which every row is shown: the times, and the differences between the two runs.
const WHOLE: [&str; 2] = ["times", "differences"];
/// Beginnings of the verdicts of rows that are left out.
const NO_CHANGE: [&str; 3] = ["same", "not sure", "?"];
/// Beginning of a verdict whose row is shown, although it also begins like one in [`NO_CHANGE`].
const LOAD: &str = "not sure: load";
/// Smallest change to show, as a share of A's step time, or in the tables [`OF_RANKS`] of a rank's
/// CPU time.
const LEAST: f64 = 0.01;
const OF_RANKS: [&str; 5] =
    ["cpu_functions", "python_functions", "cpu_modules", "waits", "threads"];

/// Returns the tables of a comparison with only the rows that changed, and the keys of the tables
/// without such rows.
pub(super) fn changed(tables: &[Table]) -> (Vec<Table>, Vec<&'static str>) {
    let of = |key, metric| value_of_a(tables, key, metric);
    let step_ns = of("times", "step_time").or_else(|| of("run", "wall_time")).unwrap_or(0.0);
    let cpu_ns = of("run", "cpu_time").unwrap_or(0.0);
    let (mut kept, mut same) = (Vec::new(), Vec::new());
    for table in tables {
        if WHOLE.contains(&table.key) || table.rows.is_empty() || table.view == View::Data {
            kept.push(table.clone());
            continue;
        }
        let mut table = table.clone();
        let columns = Columns::of(&table);
        let all_ns = if OF_RANKS.contains(&table.key) { cpu_ns } else { step_ns };
        table.rows.retain(|row| columns.is_change(row, LEAST * all_ns));
        match table.rows.is_empty() {
            true => same.push(table.key),
            false => kept.push(table),
        }
    }
    (kept, same)
}

/// Returns the value of a metric in run A from a table.
fn value_of_a(tables: &[Table], key: &str, metric: &str) -> Option<f64> {
    let table = tables.iter().find(|table| table.key == key)?;
    let (of, a) = (column(table, "metric")?, column(table, "a")?);
    let row = table.rows.iter().find(|row| row[of] == Cell::from(metric))?;
    number(&row[a])
}

/// Indexes of the columns of a table that describe the change.
struct Columns {
    verdict: Option<usize>,
    change: Option<usize>,
    interval: Option<usize>,
}

impl Columns {
    fn of(table: &Table) -> Columns {
        let [verdict, change, interval] =
            ["verdict", "change_ns", "interval_ns"].map(|key| column(table, key));
        Columns { verdict, change, interval }
    }

    fn is_change(&self, row: &[Cell], least_ns: f64) -> bool {
        let of = |at: Option<usize>| at.and_then(|at| number(&row[at])).map(f64::abs);
        if of(self.change).is_some_and(|change_ns| change_ns <= least_ns) {
            return false;
        }
        let Some(at) = self.verdict else {
            // A row with an unknown change is shown, because its values may differ. If the run has
            // a single step, the change has no interval, which counts as 0.
            let interval = of(self.interval).unwrap_or(0.0);
            return of(self.change).is_none_or(|change| change > interval);
        };
        let verdict = match row[at].value() {
            Some(Value::Text(text)) => text.as_str(),
            _ => "?",
        };
        verdict.starts_with(LOAD) || !NO_CHANGE.iter().any(|no| verdict.starts_with(no))
    }
}

fn column(table: &Table, key: &str) -> Option<usize> {
    table.columns.iter().position(|column| column.key == key)
}

fn number(cell: &Cell) -> Option<f64> {
    cell.value().and_then(Value::number)
}

#[cfg(test)]
mod tests {
    use tprof_document::{Column, Unit};

    use super::*;

    fn table(key: &'static str, columns: &[&'static str], rows: &[&[Cell]]) -> Table {
        let columns = columns.iter().map(|key| Column::new(key, key, Unit::Text)).collect();
        let mut table = Table::new(key, key, columns);
        rows.iter().for_each(|row| table.row(row.to_vec()));
        table
    }

    #[test]
    fn tables_with_only_noise_are_named_instead_of_shown() {
        let times = table(
            "times",
            &["metric", "a", "verdict"],
            &[
                &["step_time".into(), 1000.0.into(), "worse".into()],
                &["compute_time".into(), 700.0.into(), "same".into()],
            ],
        );
        let changes = ["name", "change_ns", "interval_ns"];
        let kernels = table(
            "kernels",
            &changes,
            &[
                &["far".into(), (-40.0).into(), 5.0.into()],
                &["noise".into(), 40.0.into(), 50.0.into()],
                &["little".into(), 9.0.into(), 1.0.into()],
                &["once".into(), 30.0.into(), Cell::missing("needs two steps")],
            ],
        );
        let calls = table("calls", &changes, &[&["cudaFree".into(), 3.0.into(), 4.0.into()]]);
        let verdicts = ["less?", "not sure", "same", "not sure: load differed"];
        let rows = verdicts.map(|verdict| ["x".into(), verdict.into()]);
        let rows: Vec<&[Cell]> = rows.iter().map(|row| row.as_slice()).collect();
        let memory = table("memory", &["name", "verdict"], &rows);
        let functions = table(
            "cpu_functions",
            &["change_ns", "verdict"],
            &[&[99.0.into(), "more".into()], &[101.0.into(), "more".into()]],
        );
        let figures = ["metric", "a", "verdict"];
        let cpu = table("run", &figures, &[&["cpu_time".into(), 1e4.into(), "better?".into()]]);
        let (kept, same) = changed(&[times, kernels, calls, memory, cpu, functions]);
        let rows: Vec<(&str, usize)> =
            kept.iter().map(|table| (table.key, table.rows.len())).collect();
        let expected = [("times", 2), ("kernels", 2), ("memory", 2), ("run", 1)];
        assert_eq!(rows, [&expected[..], &[("cpu_functions", 1)]].concat());
        assert_eq!(kept[1].rows[1][0], "once".into());
        assert_eq!(same, ["calls"]);
    }
}
