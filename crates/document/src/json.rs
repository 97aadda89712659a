//! A document as JSON: under `tables`, each table is a list of objects, and under `shown`, each
//! table has its title, its view and its headings, from which a page is made.
//!
//! A cell with the key `key` is a value, and an estimate also has `error_key`. An unknown value is
//! `null`, and `key_missing` has the reason. If the column does not apply to the row, there is only
//! the `null`.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::{Cell, Column, Document, Table, Value};

/// Version of the JSON that reports print.
pub const REPORT_VERSION: u32 = 1;

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("version", &REPORT_VERSION)?;
        map.serialize_entry("tprof", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("kind", self.kind)?;
        map.serialize_entry("run", &self.run)?;
        map.serialize_entry("problems", &self.problems)?;
        map.serialize_entry("notes", &self.notes)?;
        map.serialize_entry("completeness", &self.completeness)?;
        map.serialize_entry("tables", &Tables(&self.tables))?;
        map.serialize_entry("shown", &Shown(&self.tables))?;
        map.end()
    }
}

/// How the tables are displayed, as an object with an entry for each table.
pub struct Shown<'a>(pub &'a [Table]);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|table| (table.key, ShownTable(table))))
    }
}

struct ShownTable<'a>(&'a Table);

impl Serialize for ShownTable<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Table { title, about, view, columns, folded, left_out, .. } = self.0;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("title", title)?;
        map.serialize_entry("about", about)?;
        map.serialize_entry("view", view.name())?;
        map.serialize_entry("columns", columns)?;
        if let Some(folded) = folded {
            map.serialize_entry("folded_from", &folded.from)?;
            map.serialize_entry("folded", &folded.line)?;
        }
        map.serialize_entry("left_out", left_out)?;
        map.end()
    }
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("key", self.key)?;
        map.serialize_entry("heading", self.heading)?;
        map.serialize_entry("unit", self.unit.name())?;
        map.serialize_entry("signed", &self.signed)?;
        map.end()
    }
}

/// The tables as an object, in which each table is a list.
pub struct Tables<'a>(pub &'a [Table]);

impl Serialize for Tables<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for table in self.0 {
            map.serialize_entry(table.key, &JsonRows(table))?;
            if table.rows.is_empty() {
                map.serialize_entry(&format!("{}_missing", table.key), &table.empty)?;
            }
        }
        map.end()
    }
}

struct JsonRows<'a>(&'a Table);

impl Serialize for JsonRows<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.rows.iter().map(|cells| JsonRow { columns: &self.0.columns, cells }))
    }
}

struct JsonRow<'a> {
    columns: &'a [Column],
    cells: &'a [Cell],
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (column, cell) in self.columns.iter().zip(self.cells) {
            map.serialize_entry(column.key, &cell.value())?;
            match cell {
                Cell::Estimate { error, .. } => {
                    map.serialize_entry(&format!("error_{}", column.key), error)?
                }
                Cell::Missing(why) => {
                    map.serialize_entry(&format!("{}_missing", column.key), why)?
                }
                Cell::Is(_) | Cell::Empty => (),
            }
        }
        map.end()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Text(text) => to.serialize_str(text),
            Value::Unsigned(value) => to.serialize_u64(*value),
            Value::Signed(value) => to.serialize_i64(*value),
            Value::Float(value) => to.serialize_f64(*value),
            Value::Flag(value) => to.serialize_bool(*value),
        }
    }
}
