//! Builds the JSON Schema (draft 2020-12) of everything that tprof prints as JSON: `tprof report
//! --schema`.
//!
//! The schemas of the summary and the report on memory are derived from their Rust types. Which
//! tables and columns another report has depends on the run, so their schemas are made from a list
//! of all tables, [`TableList`].
//!
//! Three text files describe the output. `tables.txt` lists all tables and columns, and
//! `objects.txt` the members of all other objects; a commit that changes the output shows up in
//! their diff. `meanings.txt` says what each key means.

mod meanings;
#[cfg(test)]
mod object_list;
mod table_list;

use serde_json::{Map, Value, json};
use tprof_analyze::Report;
use tprof_diff::{Comparison, ManyRuns};
use tprof_document::{Document, REPORT_VERSION, Unit, View};
use tprof_rank::base::has_schema::{HasSchema, ObjectSchema, plain_field};
use tprof_rank::run::completeness::Completeness;
use tprof_rank::run::info::Run;

use meanings::Meanings;
pub use table_list::TableList;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Kinds of reports that are not made of tables.
const REPORTS: [&str; 2] = ["summary", "memory"];

/// Returns the schema, which has a definition for each kind of report, for several reports at once
/// and for comparisons. `more` has the definitions of other commands.
pub fn merged(more: Vec<(&str, Value)>) -> Value {
    let mut printed = Map::new();
    for kind in REPORTS {
        printed.insert(kind.to_owned(), report(kind));
    }
    let list = TableList::kept();
    for kind in list.kinds() {
        let tables = list.schema(kind);
        let schema = match kind {
            "diff" => comparison(tables),
            "compare" => many_runs(tables),
            "snapshot" => document(kind, "tprof ctl snapshot --json", tables),
            _ => document(kind, &format!("tprof report {kind} --json"), tables),
        };
        printed.insert(kind.to_owned(), schema);
    }
    let kinds = tprof_analyze::KINDS.iter().map(|kind| kind.name);
    printed.insert("several".to_owned(), several(REPORTS.into_iter().chain(kinds)));
    printed.extend(more.into_iter().map(|(name, schema)| (name.to_owned(), schema)));
    let any: Vec<Value> = printed.keys().map(|name| reference(name)).collect();
    let shared =
        [("run", Run::schema()), ("completeness", Completeness::schema()), ("side", side())];
    printed.extend(shared.map(|(name, schema)| (name.to_owned(), schema)));
    let meanings = Meanings::kept();
    for (name, schema) in &mut printed {
        meanings.describe(&place_of_object(name), schema);
    }
    json!({
        "$schema": DRAFT, "title": "JSON of tprof", "anyOf": any, "$defs": printed,
    })
}

/// Returns the place in `meanings.txt` that describes an object, given the name of the object's
/// definition. All reports that are made of tables have the place `document`.
fn place_of_object(name: &str) -> String {
    match name {
        "diff" => "comparison".to_owned(),
        "compare" => "runs".to_owned(),
        "memory" => "summary".to_owned(),
        kind if TableList::kept().kinds().any(|one| one == kind) => "document".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns a reference to the definition with this name.
fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// Returns the schema of the summary or the report on memory.
fn report(kind: &str) -> Value {
    let mut schema = Report::schema();
    let members = &mut schema["properties"];
    members["kind"] = json!({ "const": kind });
    members["version"] = version();
    members["run"] = reference("run");
    members["completeness"] = reference("completeness");
    titled(&format!("tprof report {kind} --json"), schema)
}

/// Returns the schema of several reports that one command prints together.
fn several<'a>(kinds: impl Iterator<Item = &'a str>) -> Value {
    let reports =
        kinds.fold(ObjectSchema::default(), |object, kind| object.some(kind, reference(kind)));
    let object = ObjectSchema::default()
        .plain("version", version())
        .plain("tprof", String::schema())
        .plain("reports", reports.finish());
    titled("tprof report KIND,KIND --json", object.finish())
}

fn version() -> Value {
    json!({ "const": REPORT_VERSION })
}

fn titled(title: &str, mut schema: Value) -> Value {
    schema["title"] = title.into();
    schema
}

/// Returns the schema of the documents of a kind.
fn document(kind: &str, command: &str, tables: Value) -> Value {
    let object = ObjectSchema::default()
        .plain("version", version())
        .plain("tprof", String::schema())
        .plain("kind", json!({ "const": kind }))
        .plain("run", reference("run"))
        .plain("problems", plain_field(|of: &Document| &of.problems))
        .plain("notes", plain_field(|of: &Document| &of.notes))
        .plain("completeness", reference("completeness"))
        .plain("tables", tables)
        .plain("shown", json!({ "type": "object", "additionalProperties": shown() }));
    titled(command, object.finish())
}

/// Returns the schema of how one table is displayed.
fn shown() -> Value {
    let column = ObjectSchema::default()
        .plain("key", String::schema())
        .plain("heading", String::schema())
        .plain("unit", json!({ "enum": Unit::ALL.map(Unit::name) }))
        .plain("signed", bool::schema());
    ObjectSchema::default()
        .plain("title", String::schema())
        .plain("about", String::schema())
        .plain("view", json!({ "enum": View::ALL.map(View::name) }))
        .plain("columns", json!({ "type": "array", "items": column.finish() }))
        .some("folded_from", u64::schema())
        .some("folded", String::schema())
        .plain("left_out", u64::schema())
        .finish()
}

/// Returns the schema of `tprof compare`, which has any number of runs in one table.
fn many_runs(tables: Value) -> Value {
    let object = ObjectSchema::default()
        .plain("version", version())
        .plain("tprof", String::schema())
        .plain("kind", json!({ "const": "compare" }))
        .plain("runs", json!({ "type": "array", "items": reference("side") }))
        .plain("notes", plain_field(|of: &ManyRuns| &of.notes))
        .plain("tables", tables);
    titled("tprof compare --json", object.finish())
}

/// Returns the schema of `tprof diff`.
fn comparison(tables: Value) -> Value {
    let object = ObjectSchema::default()
        .plain("version", version())
        .plain("tprof", String::schema())
        .plain("kind", json!({ "const": "diff" }))
        .plain("a", reference("side"))
        .plain("b", reference("side"))
        .plain("other_hardware", Vec::<String>::schema())
        .plain("notes", plain_field(|of: &Comparison| &of.notes))
        .plain("tables", tables);
    titled("tprof diff --json", object.finish())
}

/// Returns the schema of a run that is compared with others.
fn side() -> Value {
    ObjectSchema::default()
        .plain("run", reference("run"))
        .plain("completeness", reference("completeness"))
        .plain("problems", Vec::<String>::schema())
        .plain("ranks", u64::schema())
        .plain("steps", u64::schema())
        .plain("warm_up_steps", u64::schema())
        .finish()
}
