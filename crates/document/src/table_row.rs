//! Reads the cells of a report's table by row and column key.

use super::{Cell, Table, Value};

/// A row of a table.
pub struct TableRow<'t> {
    /// The table of the row.
    pub table: &'t Table,
    /// The cells of the row, one for each column.
    pub cells: &'t [Cell],
}

impl<'t> TableRow<'t> {
    /// The rows of a table.
    pub fn all(table: &'t Table) -> impl Iterator<Item = TableRow<'t>> {
        table.rows.iter().map(move |cells| TableRow { table, cells })
    }

    /// The cell of a column.
    pub fn cell(&self, key: &str) -> Option<&'t Cell> {
        let at = self.table.columns.iter().position(|column| column.key == key)?;
        self.cells.get(at)
    }

    /// The value of a column, measured or estimated.
    pub fn value(&self, key: &str) -> Option<&'t Value> {
        self.cell(key)?.value()
    }

    /// The value of a column that holds numbers.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.value(key)?.number()
    }

    /// The value of a column as a whole number. Unlike [`Self::number`], this does not round large
    /// numbers.
    pub fn whole(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            Value::Unsigned(value) => Some(*value),
            other => Some(other.number()? as u64),
        }
    }

    /// The value of a column that holds texts.
    pub fn text(&self, key: &str) -> Option<&'t str> {
        match self.value(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}
