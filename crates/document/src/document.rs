//! Represents a report as data: titled tables of typed columns.

use tprof_rank::run::completeness::Completeness;
use tprof_rank::run::info::Run;

use crate::{Cell, Value};

/// A report as data.
#[derive(Clone, Debug)]
pub struct Document {
    /// Kind, as typed: `tprof report KIND`.
    pub kind: &'static str,
    /// The run: command, hosts, state.
    pub run: Run,
    /// How complete the recording is.
    pub completeness: Completeness,
    /// Problems with files that could not be read, in sentences.
    pub problems: Vec<String>,
    /// Notes for the reader, in sentences without a full stop.
    pub notes: Vec<String>,
    /// The tables, the one that answers the question first.
    pub tables: Vec<Table>,
}

/// A table of a report.
#[derive(Clone, Debug)]
pub struct Table {
    /// Key in JSON, and name for `--table`.
    pub key: &'static str,
    /// The displayed title of the table.
    pub title: String,
    /// A sentence or two on how to read the table; empty if the title is enough.
    pub about: String,
    /// How the table is displayed.
    pub view: View,
    /// The columns of the table.
    pub columns: Vec<Column>,
    /// All rows, the most important first ([`View::Curve`]: in order of time). Renderers for people
    /// show only the first rows.
    pub rows: Vec<Vec<Cell>>,
    /// If there are no rows, the reason for that and how to get some.
    pub empty: String,
    /// The last rows, which are displayed as one line.
    pub folded: Option<FoldedRows>,
    /// Number of rows that [`Table::keep_first`] removed.
    pub left_out: usize,
    /// Number of rows that text shows even if fewer are asked for, of a table that is short and in
    /// order of time.
    pub least_shown: usize,
}

/// Rows of a [`View::Rows`] that are displayed as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedRows {
    /// Index of the first folded row.
    pub from: usize,
    /// The displayed line, which says how many rows are folded and what they are.
    pub line: String,
}

impl Table {
    /// A table without rows yet.
    pub fn new(key: &'static str, title: impl Into<String>, columns: Vec<Column>) -> Table {
        Table {
            key,
            title: title.into(),
            about: String::new(),
            view: View::Rows,
            columns,
            rows: Vec::new(),
            empty: String::new(),
            folded: None,
            left_out: 0,
            least_shown: 0,
        }
    }

    /// Removes all rows but the first `most`, and counts the removed rows. In a table of
    /// [`View::Groups`], keeps whole groups: as many as begin within the first `most` rows, but at
    /// least one. A [`View::Curve`] keeps about `most` rows from its whole time: of each stretch of
    /// rows, the one with the largest value of each column.
    pub fn keep_first(&mut self, most: usize) {
        let all = self.rows.len();
        if all <= most {
            return;
        }
        match self.view {
            View::Curve => self.thin_out(most),
            View::Groups => {
                let depth = self.place("depth");
                let begins = |row: &Vec<Cell>| depth.is_none_or(|at| row[at] == Cell::from(0_u64));
                let last = self.rows.iter().take(most + 1).rposition(begins).filter(|at| *at > 0);
                let after = self.rows.iter().skip(1).position(begins).map_or(all, |at| at + 1);
                self.rows.truncate(last.unwrap_or(after));
            }
            _ => self.rows.truncate(most),
        }
        self.left_out += all - self.rows.len();
    }

    /// Keeps the rows with the largest values, in order.
    fn thin_out(&mut self, most: usize) {
        let columns = self.columns.len().saturating_sub(1).max(1);
        let stretch = (self.rows.len() * columns).div_ceil(most.max(1));
        let number = |row: &[Cell], at: usize| row[at].value().and_then(Value::number);
        let mut kept: Vec<usize> = vec![0, self.rows.len() - 1];
        for (from, rows) in (0..).step_by(stretch).zip(self.rows.chunks(stretch)) {
            for at in 1..self.columns.len() {
                let known =
                    rows.iter().enumerate().filter_map(|(i, row)| Some((i, number(row, at)?)));
                kept.extend(known.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| from + i));
            }
        }
        kept.sort_unstable();
        kept.dedup();
        let mut index = 0;
        self.rows.retain(|_| {
            index += 1;
            kept.binary_search(&(index - 1)).is_ok()
        });
    }

    /// Adds a sentence on how to read the table.
    pub fn about(mut self, about: impl Into<String>) -> Table {
        self.about = about.into();
        self
    }

    /// Adds the text for a table without rows.
    pub fn empty(mut self, why: impl Into<String>) -> Table {
        self.empty = why.into();
        self
    }

    /// Sets the number of rows that text shows even if fewer are asked for.
    pub fn least_shown(mut self, rows: usize) -> Table {
        self.least_shown = rows;
        self
    }

    /// Sets how the table is displayed.
    pub fn view(mut self, view: View) -> Table {
        self.view = view;
        self
    }

    /// Returns how many rows text shows at most if `top` were asked for.
    pub fn most_shown(&self, top: usize) -> usize {
        top.max(self.least_shown)
    }

    /// Returns the number of rows, and how many rows remain if only the first `top` are shown. A
    /// table of [`View::Groups`] counts groups instead: the first number is that of groups, and the
    /// second is how many rows the first `top` groups have.
    pub fn counted(&self, top: usize) -> (usize, usize) {
        let depth = self.columns.iter().position(|column| column.key == "depth");
        let Some(depth) = depth.filter(|_| self.view == View::Groups) else {
            let rows = self.folded.as_ref().map_or(self.rows.len(), |folded| folded.from);
            return (rows, self.most_shown(top).min(rows));
        };
        let is_first = |row: &Vec<Cell>| row[depth] == Cell::from(0_u64);
        let firsts = || self.rows.iter().enumerate().filter(|(_, row)| is_first(row));
        let end = firsts().nth(top).map_or(self.rows.len(), |(at, _)| at);
        (firsts().count(), end)
    }

    /// Index of the column with a key.
    pub fn place(&self, key: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.key == key)
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// In debug builds, if the row does not have one cell for each column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a row of {} does not fit", self.key);
        self.rows.push(cells);
    }
}

/// How a table is displayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// As rows with the columns' headings.
    #[default]
    Rows,
    /// As rows in groups, each of which begins with a row of depth 0 (column `depth`). A cut counts
    /// groups.
    Groups,
    /// As curves over the first column, which is a time.
    Curve,
    /// As a block for each row: its first line is the first cell, and the other cells are
    /// paragraphs behind their headings.
    Cards,
    /// As a paragraph for each row: its first cell.
    Lines,
    /// Not displayed: only JSON and CSV have it.
    Data,
}

impl View {
    /// All views, in the order of the schema.
    pub const ALL: [View; 6] =
        [View::Rows, View::Groups, View::Curve, View::Cards, View::Lines, View::Data];

    /// The name of the view in JSON.
    pub fn name(self) -> &'static str {
        match self {
            View::Rows => "rows",
            View::Groups => "groups",
            View::Curve => "curve",
            View::Cards => "cards",
            View::Lines => "lines",
            View::Data => "data",
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Key in JSON and CSV, its unit last: `duration_ns`.
    pub key: &'static str,
    /// The displayed heading, short; an empty one leaves the column to JSON and CSV.
    pub heading: &'static str,
    /// Unit of the column's values.
    pub unit: Unit,
    /// Whether the values are changes, which are displayed with their sign.
    pub signed: bool,
    /// Whether text shows times since the beginning as coarsely as durations: `1 h 12 min`.
    /// Otherwise they have all digits that steps need to differ.
    pub coarse: bool,
    /// Whether the values are names of functions, whose parameters text leaves out.
    pub is_of_functions: bool,
}

impl Column {
    /// A column that is always shown.
    pub const fn new(key: &'static str, heading: &'static str, unit: Unit) -> Column {
        Column { key, heading, unit, signed: false, coarse: false, is_of_functions: false }
    }

    /// A column of functions, or of places and stacks that begin with one. Text leaves out the
    /// parameters unless they tell overloads apart, so that a function has the same name in each
    /// table, however wide the column is.
    pub const fn functions(key: &'static str, heading: &'static str) -> Column {
        Column { is_of_functions: true, ..Column::new(key, heading, Unit::Name) }
    }

    /// The device of each row. It is displayed if a device other than the first one of its process
    /// was used, otherwise it is only in JSON and CSV.
    pub fn device(devices: impl IntoIterator<Item = Option<u32>>) -> Column {
        let many = devices.into_iter().flatten().any(|device| device > 0);
        Column::new("device", if many { "device" } else { "" }, Unit::Id)
    }

    /// A column of changes that is always shown.
    pub const fn change(key: &'static str, heading: &'static str, unit: Unit) -> Column {
        Column { key, heading, unit, signed: true, coarse: false, is_of_functions: false }
    }

    /// A column of times since the beginning that lie far apart, and are read as durations are.
    pub const fn coarse_time(key: &'static str, heading: &'static str) -> Column {
        Column {
            key,
            heading,
            unit: Unit::Time,
            signed: false,
            coarse: true,
            is_of_functions: false,
        }
    }

    /// A column that only JSON and CSV have.
    pub const fn data(key: &'static str, unit: Unit) -> Column {
        Column { key, heading: "", unit, signed: false, coarse: false, is_of_functions: false }
    }
}

/// The unit of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Text without a unit.
    Text,
    /// A name from the traced program: kernel, operator, range. A text table has at most one such
    /// column, which is the last and uses the rest of the width.
    Name,
    /// A plain number that identifies a rank, stream, device or step.
    Id,
    /// A number of things.
    Count,
    /// A duration in nanoseconds.
    Duration,
    /// Nanoseconds since the run began.
    Time,
    /// A size in bytes.
    Bytes,
    /// A rate in bytes per second.
    BytesPerSecond,
    /// A share from 0 to 1.
    Share,
    /// A plain number.
    Number,
    /// True or false.
    Flag,
}

impl Unit {
    /// All units, in the order of the schema.
    pub const ALL: [Unit; 11] = [
        Unit::Text,
        Unit::Name,
        Unit::Id,
        Unit::Count,
        Unit::Duration,
        Unit::Time,
        Unit::Bytes,
        Unit::BytesPerSecond,
        Unit::Share,
        Unit::Number,
        Unit::Flag,
    ];

    /// The name of the unit in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Text => "text",
            Unit::Name => "name",
            Unit::Id => "id",
            Unit::Count => "count",
            Unit::Duration => "duration",
            Unit::Time => "time",
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "rate",
            Unit::Share => "share",
            Unit::Number => "number",
            Unit::Flag => "flag",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(view: View, rows: &[[u64; 2]]) -> Table {
        let columns =
            vec![Column::data("depth", Unit::Count), Column::new("bytes", "bytes", Unit::Bytes)];
        let mut table = Table::new("t", "T", columns).view(view);
        rows.iter().for_each(|row| table.row(row.map(Cell::from).to_vec()));
        table
    }

    fn kept(mut table: Table, most: usize) -> (Vec<f64>, usize) {
        table.keep_first(most);
        let number = |row: &Vec<Cell>| row[1].value().and_then(Value::number).unwrap();
        (table.rows.iter().map(number).collect(), table.left_out)
    }

    #[test]
    fn rows_that_are_removed_are_counted() {
        let rows = [[0, 1], [0, 2], [0, 3]];
        assert_eq!(kept(numbers(View::Rows, &rows), 2), (vec![1.0, 2.0], 1));
        assert_eq!(kept(numbers(View::Rows, &rows), 3), (vec![1.0, 2.0, 3.0], 0));
    }

    #[test]
    fn groups_stay_whole() {
        let rows = [[0, 1], [1, 2], [0, 3], [1, 4], [1, 5], [0, 6]];
        assert_eq!(kept(numbers(View::Groups, &rows), 4), (vec![1.0, 2.0], 4));
        assert_eq!(kept(numbers(View::Groups, &rows), 1), (vec![1.0, 2.0], 4));
        assert_eq!(kept(numbers(View::Groups, &rows[2..]), 2), (vec![3.0, 4.0, 5.0], 1));
    }

    #[test]
    fn a_curve_keeps_its_ends_and_its_peaks() {
        let rows: Vec<[u64; 2]> = (0..100).map(|at| [at, if at == 37 { 9 } else { 1 }]).collect();
        let (values, left_out) = kept(numbers(View::Curve, &rows), 10);
        assert!(values.len() <= 12 && values.len() + left_out == 100, "{values:?}");
        assert!(values.contains(&9.0));
    }
}
