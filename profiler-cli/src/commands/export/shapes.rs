//! `shapes.json`: each operator with each list of input sizes, and how often it ran. Benchmarks of
//! kernels can be generated from this list.
//!
//! ```json
//! {"shapes_version": 1, "shapes": [
//!   {"operator": "aten::mm", "input_shapes": [[512, 64], [64, 32]], "input_types": ["float", "float"],
//!    "input_values": [], "runs": 12, "flops_per_run": 2097152, "bytes_per_run": 204800,
//!    "device_ns": 84000, "host_ns": 230000, …}]}
//! ```

use std::io::Write;

use serde_json::{Map, Value as Json, json};
use tprof_analyze::{KINDS, ReportRequest, make_reports};
use tprof_document::{Cell, Options as Analyze, Table, Value};
use tprof_export::{ExportError, Options, Written, shapes};
use tprof_trace::RunDir;
use tprof_trace::live::is_collector_alive;

use super::args::ExportArgs;
use super::failure;
use super::report::one_rank;
use crate::runs::failure::analyze_failure;

/// Version of the file. It rises when a key changes its meaning or is removed.
const SHAPES_VERSION: u32 = 1;

/// Columns of `report flops` that are copied unchanged.
const PLAIN: [&str; 9] = [
    "operator",
    "runs",
    "recomputed_runs",
    "flops_per_run",
    "device_ns",
    "host_ns",
    "family",
    "type",
    "kernel",
];
/// Columns of `report flops` whose texts are JSON.
const LISTS: [&str; 3] = ["input_shapes", "input_types", "input_values"];

/// Writes the file `shapes.json`.
pub fn export(run: &RunDir, args: &ExportArgs, options: &Options<'_>) -> anyhow::Result<Written> {
    let rank = one_rank(args, "the list of shapes")?;
    let failed = |error: &ExportError| failure::failure(&args.path, error);
    let mut output = shapes::create(run, options).map_err(|error| failed(&error))?;
    let kinds: Vec<_> = KINDS.iter().filter(|kind| kind.name == "flops").collect();
    let is_running = Some(is_collector_alive as _);
    let asked = Analyze { rank, is_running, ..Analyze::default() };
    let wanted = ReportRequest { reports: &[], kinds: &kinds };
    let made = make_reports(run.path(), &wanted, &asked, options.symbols)
        .map_err(|error| analyze_failure(&args.path, &error))?;
    let tables = made.documents.iter().flat_map(|document| &document.tables);
    let table = tables.into_iter().find(|table| table.key == "operators");
    let entries: Vec<Json> =
        table.map_or(Vec::new(), |table| table.rows.iter().map(|row| entry(table, row)).collect());
    let notes = match (entries.is_empty(), table) {
        (true, Some(table)) => vec![table.empty.clone()],
        _ => Vec::new(),
    };
    // Each entry is one line, so that people can read, cut and compare entries.
    let lines: Vec<String> = entries.iter().map(Json::to_string).collect();
    let lines = lines.join(",\n  ");
    write!(output, "{{\"shapes_version\": {SHAPES_VERSION}, \"shapes\": [\n  {lines}\n]}}\n")?;
    let path = output.keep().map_err(|error| failed(&error))?;
    Ok(Written { paths: path.into_iter().collect(), notes, ..Written::default() })
}

fn entry(table: &Table, row: &[Cell]) -> Json {
    let of = |key: &str| {
        let at = table.columns.iter().position(|column| column.key == key);
        at.and_then(|at| row[at].value())
    };
    let mut entry = Map::new();
    for key in PLAIN {
        entry.insert(key.to_owned(), of(key).map_or(Json::Null, value));
    }
    for key in LISTS {
        let list = match of(key) {
            Some(Value::Text(text)) => serde_json::from_str(text).unwrap_or_default(),
            _ => Json::Null,
        };
        entry.insert(key.to_owned(), if list.is_null() { json!([]) } else { list });
    }
    let runs = of("runs").and_then(Value::number).filter(|runs| *runs > 0.0);
    let each = |key: &str| match (of(key).and_then(Value::number), runs) {
        (Some(all), Some(runs)) => json!((all / runs).round() as u64),
        _ => Json::Null,
    };
    entry.insert("bytes_per_run".to_owned(), each("bytes"));
    Json::Object(entry)
}

fn value(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!(text),
        Value::Unsigned(number) => json!(number),
        Value::Signed(number) => json!(number),
        Value::Float(number) => json!(number),
        Value::Flag(flag) => json!(flag),
    }
}
