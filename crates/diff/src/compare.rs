//! Compares two sides, and collects the changes from one to the other.

use serde::Serialize;
use serde::ser::SerializeMap;
use tprof_document::{REPORT_VERSION, Table, Tables, View};

use super::amount::HostNameKind;
use super::changes::change_of;
use super::figures::WITHOUT_LOST_CORES;
use super::gate::Gate;
use super::names::join_annotations;
use super::notes::notes;
use super::side::Side;
use super::subject::Subject;
use super::tables::ComparisonTables;
use super::verdict::Change;

/// Two sides, and the changes from A to B.
#[derive(Debug)]
pub struct Comparison {
    /// The baseline of the comparison.
    pub a: Side,
    /// The side that is compared with the baseline.
    pub b: Side,
    /// Notes for the reader, as sentences without a full stop.
    pub notes: Vec<String>,
    /// The tables. The first one answers whether the job became faster.
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

/// The facts about one side's run that precede the comparison.
pub(super) struct SideHead<'a>(pub &'a Side);

impl Serialize for SideHead<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("run", &self.0.run)?;
        map.serialize_entry("completeness", &self.0.completeness)?;
        map.serialize_entry("problems", &self.0.problems)?;
        map.serialize_entry("ranks", &self.0.ranks)?;
        map.serialize_entry("steps", &if self.0.stepped { self.0.steps.len() } else { 0 })?;
        map.serialize_entry("warm_up_steps", &self.0.warm_up.len())?;
        map.end()
    }
}

impl Comparison {
    /// Compares side A with side B.
    pub fn of(mut a: Side, mut b: Side) -> Comparison {
        let are_whole = !a.operators_ended && !b.operators_ended;
        for side in [&mut a, &mut b] {
            join_annotations(&mut side.names, are_whole);
        }
        let tables = ComparisonTables { a: &a, b: &b }.all();
        let mut comparison = Comparison { notes: notes(&a, &b), tables, a, b };
        comparison.leave_out_empty();
        comparison
    }

    /// Marks tables that are empty on both sides as data for programs only, and names them in a
    /// note.
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

    /// Returns the change of a subject; `None` if neither side has the subject's metric.
    pub fn change(&self, subject: &Subject) -> Option<Change> {
        match subject {
            Subject::Metric(metric) => change_of(&self.a, &self.b, metric.key),
            other => other.change(&self.a.host, &self.b.host),
        }
    }

    /// Whether a function of this name was sampled on either side.
    pub fn has_function(&self, name: &str) -> bool {
        let sorts = [HostNameKind::Python, HostNameKind::Function];
        let has = |side: &Side| sorts.iter().any(|sort| side.host.has_function(*sort, name));
        has(&self.a) || has(&self.b)
    }

    /// Names of all functions that were sampled.
    pub fn functions(&self) -> Vec<&str> {
        self.a.host.functions().chain(self.b.host.functions()).collect()
    }

    /// Returns the keys of the hardware facts that both sides have, but with different values.
    pub fn other_hardware(&self) -> Vec<&'static str> {
        self.a.facts.other_hardware(&self.b.facts)
    }

    /// Whether a condition trips. Returns `None` if its subject is unknown or wasn't measured. Also
    /// returns `None` if the result would not be due to the code, because the hardware differs or
    /// because the machine's load alone decides the result.
    pub fn trips(&self, gate: &Gate) -> Option<bool> {
        let subject = Subject::of(&gate.metric)?;
        if subject.of_hardware() && !self.other_hardware().is_empty() {
            return None;
        }
        let change = self.change(&subject)?;
        let (a, difference) = (change.a.get()?, change.difference()?);
        let trips = gate.trips(a, difference, change.error);
        let Some(without) = self.without_load(&subject) else { return Some(trips) };
        // The time without a core varies, which makes the interval of the change without load too
        // wide. The step times without lost cores have a narrower interval, so prefer them.
        let of_steps = change_of(&self.a, &self.b, WITHOUT_LOST_CORES);
        let of_steps = of_steps.filter(|_| change.repeats.is_some());
        let alone = match of_steps {
            Some(steps) => gate.trips(steps.a.get()?, steps.difference()?, steps.error),
            None => gate.trips(a, without, None),
        };
        (alone == trips).then_some(trips)
    }

    /// Returns the change of a wall time without the effect of the machine's load, if that effect
    /// alone changes the verdict.
    pub fn without_load(&self, subject: &Subject) -> Option<f64> {
        match subject {
            Subject::Metric(metric) => self.change(subject)?.without_load(metric),
            _ => None,
        }
    }
}
