//! Two sides, and what changed from one to the other.

use serde::Serialize;
use serde::ser::SerializeMap;

use super::change::Change;
use super::changes::change_of;
use super::figures::find;
use super::gate::Gate;
use super::notes::notes;
use super::side::Side;
use super::tables::ComparisonTables;
use crate::document::{REPORT_VERSION, Table, Tables, View};

/// Two sides and what changed from A to B.
#[derive(Debug)]
pub struct Comparison {
    /// What is compared with.
    pub a: Side,
    /// What is compared.
    pub b: Side,
    /// What a reader should know, in sentences without a full stop.
    pub notes: Vec<String>,
    /// The tables, the one that answers the question first.
    pub tables: Vec<Table>,
}

impl Serialize for Comparison {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("version", &REPORT_VERSION)?;
        map.serialize_entry("tprof", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("kind", "diff")?;
        for (key, side) in [("a", &self.a), ("b", &self.b)] {
            map.serialize_entry(key, &SideHead(side))?;
        }
        map.serialize_entry("other_hardware", &self.other_hardware())?;
        map.serialize_entry("notes", &self.notes)?;
        map.serialize_entry("tables", &Tables(&self.tables))?;
        map.end()
    }
}

struct SideHead<'a>(&'a Side);

impl Serialize for SideHead<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("run", &self.0.run)?;
        map.serialize_entry("completeness", &self.0.completeness)?;
        map.serialize_entry("problems", &self.0.problems)?;
        map.serialize_entry("ranks", &self.0.ranks)?;
        map.serialize_entry("steps", &if self.0.stepped { self.0.steps.len() } else { 0 })?;
        map.end()
    }
}

impl Comparison {
    /// Compares two sides.
    pub fn of(a: Side, b: Side) -> Comparison {
        let tables = ComparisonTables { a: &a, b: &b }.all();
        let mut comparison = Comparison { notes: notes(&a, &b), tables, a, b };
        comparison.leave_out_empty();
        comparison
    }

    /// Leaves tables of which neither side has anything to programs, and names them.
    fn leave_out_empty(&mut self) {
        let mut left_out = Vec::new();
        let empty = |table: &&mut Table| table.rows.is_empty() && table.key != "differences";
        for table in self.tables.iter_mut().filter(empty) {
            if table.empty.starts_with("only ") {
                continue;
            }
            table.view = View::Data;
            left_out.push(table.key);
        }
        if !left_out.is_empty() {
            self.notes.push(format!("neither side has anything for {}", left_out.join(", ")));
        }
    }

    /// How a metric changed; `None` if there is no such metric.
    pub fn change(&self, key: &str) -> Option<Change> {
        change_of(&self.a, &self.b, key)
    }

    /// Hardware that both sides name, and not the same.
    pub fn other_hardware(&self) -> Vec<&'static str> {
        self.a.facts.other_hardware(&self.b.facts)
    }

    /// Whether a condition holds; none if its metric is not known, was not measured, or
    /// means nothing for the code, since the hardware differs.
    pub fn trips(&self, gate: &Gate) -> Option<bool> {
        if find(&gate.metric)?.of_hardware && !self.other_hardware().is_empty() {
            return None;
        }
        let change = self.change(&gate.metric)?;
        Some(gate.trips(change.a.get()?, change.difference()?, change.error))
    }
}
