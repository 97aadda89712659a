//! Makes tables of durations and sizes by name, with the columns of Nsight Systems' `stats`
//! reports.

use tprof_rank::base::stats::Spread;

use crate::{Cell, Column, Table, Unit};

/// The values that one row of a table describes, and the row's other cells.
pub struct Values<R> {
    /// The row's own columns.
    pub row: R,
    /// The values: durations in ns, or sizes in bytes.
    pub values: Vec<u64>,
}

impl<R> Values<R> {
    /// Sum of the values.
    pub fn sum(&self) -> u64 {
        self.values.iter().sum()
    }
}

/// Columns of a table of durations: share of their sum, sum, count, mean, median, lowest, highest,
/// deviation.
pub const TIMES: [Column; 8] = [
    Column::new("share", "time", Unit::Share),
    Column::new("total_ns", "total", Unit::Duration),
    Column::new("count", "runs", Unit::Count),
    Column::new("mean_ns", "mean", Unit::Duration),
    Column::new("median_ns", "median", Unit::Duration),
    Column::data("min_ns", Unit::Duration),
    Column::data("max_ns", Unit::Duration),
    Column::data("deviation_ns", Unit::Duration),
];

/// The columns of [`TIMES`] for bytes, without the share.
pub const SIZES: [Column; 7] = [
    Column::new("total_bytes", "total", Unit::Bytes),
    Column::new("count", "runs", Unit::Count),
    Column::new("mean_bytes", "mean", Unit::Bytes),
    Column::new("median_bytes", "median", Unit::Bytes),
    Column::data("min_bytes", Unit::Bytes),
    Column::data("max_bytes", Unit::Bytes),
    Column::data("deviation_bytes", Unit::Bytes),
];

/// Returns cells for the sum, count, mean, median, lowest, highest and deviation; they are empty if
/// there are no values.
pub fn cells(values: &[u64]) -> Vec<Cell> {
    let Some(spread) = Spread::of(values) else { return vec![Cell::Empty; SIZES.len()] };
    let whole = |value: f64| value.round() as u64;
    vec![
        values.iter().sum::<u64>().into(),
        spread.count.into(),
        whole(spread.mean).into(),
        whole(spread.median).into(),
        spread.min.into(),
        spread.max.into(),
        Cell::known(spread.deviation.map(whole), "a single value has no spread"),
    ]
}

/// Adds rows of durations to a table with the columns rank, [`TIMES`], and those that `own` makes
/// from a row. The rows with the largest sum come first; shares are of the rank's sum.
pub fn add_times<R>(
    table: &mut Table,
    rank: &str,
    mut rows: Vec<Values<R>>,
    own: impl Fn(&Values<R>) -> Vec<Cell>,
) {
    rows.sort_by_key(|row| std::cmp::Reverse(row.sum()));
    let all: u64 = rows.iter().map(Values::sum).sum();
    for row in &rows {
        let mut made = vec![rank.into(), (row.sum() as f64 / all.max(1) as f64).into()];
        made.extend(cells(&row.values));
        made.extend(own(row));
        table.row(made);
    }
}

/// Returns the columns of a table: the rank, then those of `kind` ([`TIMES`] or [`SIZES`]), then
/// the table's own columns.
pub fn columns(kind: &[Column], own: &[Column]) -> Vec<Column> {
    let mut columns = vec![Column::new("rank", "rank", Unit::Text)];
    columns.extend_from_slice(kind);
    columns.extend_from_slice(own);
    columns
}
