//! Lists all tables that reports can have, and their columns. The list is stored in `tables.txt`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tprof_document::{Table, Unit};
use tprof_rank::base::has_schema::{HasSchema, ObjectSchema, nullable};

use super::meanings::Meanings;

/// The tables of each kind of report by key, with the keys and types of their columns.
#[derive(Clone, Debug, Default)]
pub struct TableList(BTreeMap<&'static str, BTreeMap<&'static str, Columns>>);

/// The columns of the tables with one key, over all reports that were added: which columns a table
/// has may differ from run to run.
#[derive(Clone, Debug, Default)]
struct Columns {
    tables: usize,
    columns: BTreeMap<&'static str, ListedColumn>,
}

/// A column of the tables with one key.
#[derive(Clone, Debug)]
struct ListedColumn {
    /// The type of the column's values: a name in [`TYPES`].
    holds: &'static str,
    /// Number of the tables that have the column.
    tables: usize,
}

/// Types of columns: the name in the list, the type in JSON, and a description.
const TYPES: [(&str, &str, &str); 10] = [
    ("text", "string", ""),
    ("flag", "boolean", ""),
    ("id", "integer", ""),
    ("count", "number", ""),
    ("duration", "number", "nanoseconds"),
    ("time", "number", "nanoseconds since the run began"),
    ("bytes", "number", "bytes"),
    ("rate", "number", "bytes a second"),
    ("share", "number", "a fraction; 1 is all"),
    ("number", "number", ""),
];

fn holds(unit: Unit) -> &'static str {
    match unit {
        Unit::Name => Unit::Text.name(),
        unit => unit.name(),
    }
}

/// The first lines of `tables.txt`.
const HEAD: &str = "\
# Tables of each kind of report, and their columns: key and type, with `?` where only some tables have
# the column. `UPDATE_GOLDEN=1 cargo test -p tprof-tests --test it -- schema::` writes this file.
";

/// Longest line of the file.
const WIDTH: usize = 110;

impl TableList {
    /// Path of the file that stores the list.
    pub const FILE: &'static str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tables.txt");

    /// Reads the list from the file.
    pub fn kept() -> TableList {
        let mut list = TableList::default();
        let (mut kind, mut key) = ("", "");
        let lines = include_str!("tables.txt").lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            let mut columns = line.trim_start();
            if columns.len() == line.len() {
                kind = line;
                continue;
            }
            if let Some((table, first)) = columns.split_once(": ") {
                (key, columns) = (table, first);
            }
            let table = list.0.entry(kind).or_default().entry(key).or_default();
            table.tables = 1;
            let columns = columns.split(',').filter_map(|column| column.trim().split_once(' '));
            table.columns.extend(columns.map(|(key, holds)| {
                let everywhere = holds.strip_suffix('?');
                let tables = if everywhere.is_some() { 0 } else { 1 };
                (key, ListedColumn { holds: everywhere.unwrap_or(holds), tables })
            }));
        }
        list
    }

    /// Adds the tables of a report of this kind, or of a comparison.
    pub fn see(&mut self, kind: &'static str, tables: &[Table]) {
        let list = self.0.entry(kind).or_default();
        for table in tables {
            let seen = list.entry(table.key).or_default();
            seen.tables += 1;
            for column in &table.columns {
                let holds = holds(column.unit);
                seen.columns
                    .entry(column.key)
                    .or_insert(ListedColumn { holds, tables: 0 })
                    .tables += 1;
            }
        }
    }

    /// Kinds of reports that have tables.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Keys of all tables.
    pub fn tables(&self) -> impl Iterator<Item = &'static str> {
        self.0.values().flat_map(|tables| tables.keys().copied())
    }

    /// Each column: the kind of report, the table, the key, and the type.
    #[cfg(test)]
    pub(super) fn columns(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str, &'static str)> {
        self.0.iter().flat_map(|(kind, tables)| {
            tables.iter().flat_map(move |(table, of)| {
                of.columns.iter().map(move |(key, column)| (*kind, *table, *key, column.holds))
            })
        })
    }

    /// Formats the text of `tables.txt`.
    pub fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (kind, tables) in &self.0 {
            text += &format!("{kind}\n");
            for (key, table) in tables {
                let mut line = format!("  {key}:");
                for (at, (key, column)) in table.columns.iter().enumerate() {
                    let some = if column.tables < table.tables { "?" } else { "" };
                    let end = if at + 1 < table.columns.len() { "," } else { "" };
                    let word = format!(" {key} {}{some}{end}", column.holds);
                    if line.len() + word.len() > WIDTH {
                        text += &format!("{line}\n");
                        line = "   ".to_owned();
                    }
                    line += &word;
                }
                text += &format!("{line}\n");
            }
        }
        text
    }

    /// Returns the schema of the tables of a kind.
    pub(super) fn schema(&self, kind: &str) -> Value {
        let meanings = Meanings::kept();
        let add = |object: ObjectSchema, (key, table): (&&str, &Columns)| {
            let row = table.row(|column| meanings.column(kind, key, column));
            let mut rows = json!({ "type": "array", "items": row });
            if let Some(about) = meanings.about(&format!("{kind}.{key}")) {
                rows["description"] = about.into();
            }
            object.some(key, rows).some(&format!("{key}_missing"), String::schema())
        };
        let tables = self.0.get(kind).into_iter().flatten();
        tables.fold(ObjectSchema::default(), add).finish()
    }
}

impl Columns {
    /// Returns the schema of a row of these tables.
    fn row<'a>(&self, meaning: impl Fn(&str) -> Option<&'a str>) -> Value {
        let mut row = ObjectSchema::default();
        for (key, column) in &self.columns {
            let mut value = nullable(of_type(column.holds));
            if let Some(meaning) = meaning(key) {
                let unit = value["description"].as_str().map(|unit| format!(" Unit: {unit}."));
                value["description"] = format!("{meaning}{}", unit.unwrap_or_default()).into();
            }
            row = match column.tables == self.tables {
                true => row.plain(key, value),
                false => row.some(key, value),
            };
        }
        let mut row = row.finish();
        // Beside an estimate, a row has the estimate's error, and beside an unknown value the
        // reason.
        let keys: Vec<&str> = self.columns.keys().copied().collect();
        row["patternProperties"] = json!({
            format!("^({})_missing$", keys.join("|")): { "type": "string" },
            format!("^error_({})$", keys.join("|")): { "type": ["number", "null"] },
        });
        row
    }
}

/// Returns the schema of the values of columns of a type.
fn of_type(holds: &str) -> Value {
    match TYPES.into_iter().find(|(name, ..)| *name == holds) {
        Some((_, kind, "")) => json!({ "type": kind }),
        Some((_, kind, about)) => json!({ "type": kind, "description": about }),
        None => Value::Bool(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_txt_is_unchanged_after_reading_and_writing() {
        assert_eq!(TableList::kept().text(), include_str!("tables.txt"));
    }

    #[test]
    fn every_unit_has_a_type() {
        for unit in Unit::ALL {
            assert!(of_type(holds(unit)).is_object(), "{unit:?}");
        }
    }
}
