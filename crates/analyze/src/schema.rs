//! JSON Schemas of everything that reports print, draft 2020-12: `docs/schema` has them as files.
//!
//! Schemas of the summary and the report on memory are derived from their types. The schema of a
//! report of tables is that of its tables. The run decides which tables it has, so several
//! documents are needed before a schema is complete.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::base::has_schema::{HasSchema, ObjectSchema, nullable, plain_field};
use crate::diff::{Comparison, ManyRuns};
use crate::document::{Document, REPORT_VERSION, Table, Unit};
use crate::report::summary::{Kind, Report};
use crate::run::completeness::Completeness;
use crate::run::info::Run;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

impl HasSchema for Kind {
    fn schema() -> Value {
        json!({ "enum": ["summary", "memory"] })
    }
}

/// The schema of the summary or the report on memory.
pub fn report(kind: &str) -> Value {
    let mut schema = Report::schema();
    schema["properties"]["kind"] = json!({ "const": kind });
    schema["properties"]["version"] = version();
    titled(&format!("tprof report {kind} --json"), schema)
}

/// The schema of several reports at once: the schemas of each are files beside this one.
pub fn several<'a>(kinds: impl Iterator<Item = &'a str>) -> Value {
    let reports = kinds.fold(ObjectSchema::default(), |object, kind| {
        object.some(kind, json!({ "$ref": format!("{kind}.json") }))
    });
    let object = ObjectSchema::default()
        .plain("version", version())
        .plain("tprof", String::schema())
        .plain("reports", reports.finish());
    titled("tprof report KIND,KIND --json", object.finish())
}

fn version() -> Value {
    json!({ "const": REPORT_VERSION })
}

fn titled(title: &str, schema: Value) -> Value {
    let mut titled = Map::new();
    titled.insert("$schema".to_owned(), json!(DRAFT));
    titled.insert("title".to_owned(), json!(title));
    if let Value::Object(members) = schema {
        titled.extend(members);
    }
    Value::Object(titled)
}

/// Tables of a kind of report, of all documents that were seen.
#[derive(Clone, Debug, Default)]
pub struct TablesSchema(BTreeMap<&'static str, Columns>);

/// Columns of a table: by key what they hold, and of how many tables they are.
#[derive(Clone, Debug, Default)]
struct Columns {
    tables: usize,
    columns: BTreeMap<&'static str, (Unit, usize)>,
}

impl TablesSchema {
    /// Adds what a document or comparison has.
    pub fn see(&mut self, tables: &[Table]) {
        for table in tables {
            let seen = self.0.entry(table.key).or_default();
            seen.tables += 1;
            for column in &table.columns {
                seen.columns.entry(column.key).or_insert((column.unit, 0)).1 += 1;
            }
        }
    }

    /// Keys of the tables.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Schema of the documents of a kind.
    pub fn document(&self, kind: &str, command: &str) -> Value {
        let object = ObjectSchema::default()
            .plain("version", version())
            .plain("tprof", String::schema())
            .plain("kind", json!({ "const": kind }))
            .plain("run", plain_field(|of: &Document| &of.run))
            .plain("problems", plain_field(|of: &Document| &of.problems))
            .plain("notes", plain_field(|of: &Document| &of.notes))
            .plain("completeness", plain_field(|of: &Document| &of.completeness))
            .plain("tables", self.tables());
        titled(command, object.finish())
    }

    /// Schema of any number of runs in one table.
    pub fn many_runs(&self) -> Value {
        let object = ObjectSchema::default()
            .plain("version", version())
            .plain("tprof", String::schema())
            .plain("kind", json!({ "const": "compare" }))
            .plain("runs", json!({ "type": "array", "items": side() }))
            .plain("notes", plain_field(|of: &ManyRuns| &of.notes))
            .plain("tables", self.tables());
        titled("tprof compare --json", object.finish())
    }

    /// The schema of comparisons.
    pub fn comparison(&self) -> Value {
        let object = ObjectSchema::default()
            .plain("version", version())
            .plain("tprof", String::schema())
            .plain("kind", json!({ "const": "diff" }))
            .plain("a", side())
            .plain("b", side())
            .plain("other_hardware", Vec::<String>::schema())
            .plain("notes", plain_field(|of: &Comparison| &of.notes))
            .plain("tables", self.tables());
        titled("tprof diff --json", object.finish())
    }

    fn tables(&self) -> Value {
        let add = |object: ObjectSchema, (key, columns): (&&str, &Columns)| {
            let rows = json!({ "type": "array", "items": columns.row() });
            object.some(key, rows).some(&format!("{key}_missing"), String::schema())
        };
        self.0.iter().fold(ObjectSchema::default(), add).finish()
    }
}

/// Schema of a run that is compared.
fn side() -> Value {
    ObjectSchema::default()
        .plain("run", Run::schema())
        .plain("completeness", Completeness::schema())
        .plain("problems", Vec::<String>::schema())
        .plain("ranks", u64::schema())
        .plain("steps", u64::schema())
        .plain("warm_up_steps", u64::schema())
        .finish()
}

impl Columns {
    /// Schema of a row.
    fn row(&self) -> Value {
        let mut row = ObjectSchema::default();
        for (key, (unit, tables)) in &self.columns {
            let value = nullable(of_unit(*unit));
            row = match *tables == self.tables {
                true => row.plain(key, value),
                false => row.some(key, value),
            };
        }
        let mut row = row.finish();
        // An estimate has its error beside it, and an unknown value its reason.
        let keys: Vec<&str> = self.columns.keys().copied().collect();
        row["patternProperties"] = json!({
            format!("^({})_missing$", keys.join("|")): { "type": "string" },
            format!("^error_({})$", keys.join("|")): { "type": ["number", "null"] },
        });
        row
    }
}

/// Schema of a column's values; all may be null.
fn of_unit(unit: Unit) -> Value {
    let (kind, about) = match unit {
        Unit::Text | Unit::Name => return json!({ "type": "string" }),
        Unit::Flag => return json!({ "type": "boolean" }),
        Unit::Id => return json!({ "type": "integer" }),
        Unit::Count => ("number", "how many"),
        Unit::Duration => ("number", "nanoseconds"),
        Unit::Time => ("number", "nanoseconds since the run began"),
        Unit::Bytes => ("number", "bytes"),
        Unit::BytesPerSecond => ("number", "bytes a second"),
        Unit::Share => ("number", "a share: 1 is all"),
        Unit::Number => return json!({ "type": "number" }),
    };
    json!({ "type": kind, "description": about })
}
