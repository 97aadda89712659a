//! Tests the exported tables by reading them with other tools.

#[path = "../../export/tests/common/mod.rs"]
mod common;

use common::{NASTY, SMALL, readers};
use serde_json::{Value, json};
use std::path::Path;
use tprof_export::{ExportError, Options, Slice};
use tprof_tables::read::{Batch, OpenRun, Request};
use tprof_tables::{Scope, Values, catalogue, csv, json as tables_json, parquet};
use tprof_trace::RunDir;

fn options(output: &Path) -> Options<'static> {
    Options { output: Some(output.to_path_buf()), ..Options::default() }
}

#[test]
fn duckdb_pandas_and_polars_read_the_parquet() {
    let dir = tempfile::tempdir().unwrap();
    let counts = common::write_run(dir.path(), SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("parquet");
    let written = parquet::export(&run, &options(&out)).unwrap();
    assert_eq!((written.paths, written.left_out), (vec![out.clone()], 0));
    let about: Value =
        serde_json::from_slice(&std::fs::read(out.join("_tprof.json")).unwrap()).unwrap();
    assert_eq!(about["tables"]["spans"]["rows"], counts[0].spans + counts[1].spans);
    assert_eq!(about["tables"]["map_events"]["rows"], 0);
    assert!(out.join("map_events/none.parquet").exists(), "a table without rows has its columns");
    let Some(read) = readers::python("tables.py", &[&out]) else { return };
    let [a, b] = [counts[0], counts[1]];
    assert_eq!(read["duckdb"], json!([[0, a.kernels, a.kernel_ns], [1, b.kernels, b.kernel_ns]]));
    let both = (a.kernels + b.kernels, a.kernel_ns + b.kernel_ns);
    assert_eq!(read["pandas"], json!([both.0, both.1]));
    assert_eq!(read["polars"], json!([[both.0, both.1]]));
    // Each kernel has one launch. It begins three quarters of an operator's time after its launch.
    let each = (common::STEP_NS - 2_000_000) / SMALL.operators;
    assert_eq!(read["launches"], json!([both.0, both.0 * (each - each / 4)]));
    assert_eq!(read["nulls"], both.0, "no graph launched a kernel");
    assert_eq!(read["ranks"], json!([0, 1]));
    assert!(read["names"].as_array().unwrap().contains(&NASTY.into()));
}

#[test]
fn ranks_in_one_file_have_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    common::write_run(dir.path(), common::Job { ranks: 5, ..SMALL });
    let run = RunDir::open(dir.path()).unwrap();
    let (apart, together) = (dir.path().join("apart"), dir.path().join("together"));
    parquet::export(&run, &options(&apart)).unwrap();
    let compact = Options { files_of_ranks: Some(2), ..options(&together) };
    parquet::export(&run, &compact).unwrap();
    let files = |of: &Path| -> Vec<String> {
        let names = std::fs::read_dir(of).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let kernels = ["ranks-0-1.parquet", "ranks-2-3.parquet", "ranks-4.parquet"];
    assert_eq!(files(&together.join("kernels")), kernels);
    assert_eq!(files(&apart.join("kernels")).len(), 5);
    let read = |of: &Path| readers::python("same.py", &[of]);
    assert_eq!(read(&together), read(&apart));
}

#[test]
fn only_requested_tables_are_written_under_the_requested_name() {
    let dir = tempfile::tempdir().unwrap();
    common::write_run(dir.path(), SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("out");
    let wanted =
        Options { tables: Some(&["runs", "kernels"]), run_name: Some("other-1"), ..options(&out) };
    parquet::export(&run, &wanted).unwrap();
    let names = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["_tprof.json", "kernels", "runs"]);
    assert!(out.join("runs/other-1.parquet").exists());
    let about: Value =
        serde_json::from_slice(&std::fs::read(out.join("_tprof.json")).unwrap()).unwrap();
    assert_eq!(about["run"], "other-1");
    assert_eq!(about["tables"].as_object().unwrap().len(), 2);
}

#[test]
fn many_rows_take_many_row_groups() {
    let dir = tempfile::tempdir().unwrap();
    let job = common::Job { steps: 40, operators: 2000, ranks: 1 };
    let counts = common::write_run(dir.path(), job);
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("parquet");
    parquet::export(&run, &options(&out)).unwrap();
    let about: Value =
        serde_json::from_slice(&std::fs::read(out.join("_tprof.json")).unwrap()).unwrap();
    assert!(counts[0].spans > 1 << 17);
    assert_eq!(about["tables"]["spans"]["rows"], counts[0].spans);
    if let Some(read) = readers::python("tables.py", &[&out]) {
        assert_eq!(read["duckdb"], json!([[0, counts[0].kernels, counts[0].kernel_ns]]));
    }
}

/// Splits CSV into lines of fields.
fn fields(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field, mut quoted) = (vec![], vec![], String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            c => field.push(c),
        }
    }
    rows
}

#[test]
fn csv_has_every_row_and_no_text_that_is_a_formula() {
    let dir = tempfile::tempdir().unwrap();
    let counts = common::write_run(dir.path(), SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("csv");
    csv::export(&run, &options(&out)).unwrap();
    let kernels = fields(&std::fs::read_to_string(out.join("kernels.csv")).unwrap());
    assert_eq!(kernels.len() as u64, 1 + counts[0].kernels + counts[1].kernels);
    let column = |name: &str| kernels[0].iter().position(|column| column == name).unwrap();
    assert!(kernels.iter().all(|row| row.len() == kernels[0].len()));
    let sum: u64 =
        kernels[1..].iter().map(|row| row[column("duration_ns")].parse::<u64>().unwrap()).sum();
    assert_eq!(sum, counts[0].kernel_ns + counts[1].kernel_ns);
    assert!(kernels[1..].iter().any(|row| row[column("name")] == NASTY));
    assert!(kernels[1..].iter().all(|row| row[column("graph")].is_empty()));
    assert_eq!(kernels[1][column("rank")], "0");
    assert_eq!(kernels.last().unwrap()[column("rank")], "1");
    assert_eq!(kernels[1][column("host")], "node0");
    let ranks = fields(&std::fs::read_to_string(out.join("ranks.csv")).unwrap());
    assert_eq!(ranks.len(), 1 + 2, "{ranks:?}");
}

#[test]
fn json_is_one_document_with_its_columns() {
    let dir = tempfile::tempdir().unwrap();
    let counts = common::write_run(dir.path(), SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("tables.json");
    tables_json::export(&run, &options(&out)).unwrap();
    let json: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(
        (&json["tables_version"], &json["start_unix_ns"]),
        (&2.into(), &common::UNIX.into())
    );
    let kernels = &json["ranks"][1]["tables"]["kernels"];
    let rows = kernels["rows"].as_array().unwrap();
    assert_eq!(rows.len() as u64, counts[1].kernels);
    let columns: Vec<_> =
        kernels["columns"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    let at = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let sum: u64 = rows.iter().map(|row| row[at("duration_ns")].as_u64().unwrap()).sum();
    assert_eq!(sum, counts[1].kernel_ns);
    assert!(rows.iter().all(|row| row[at("graph")].is_null()));
    assert!(rows.iter().any(|row| row[at("name")] == NASTY));
    let frames = &json["ranks"][0]["tables"]["stack_frames"]["rows"];
    assert_eq!(frames[0][3], "main");
}

#[test]
fn a_dataset_appears_completely_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    common::write_run(dir.path(), SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("dataset");
    let nothing =
        Slice { from_ns: Some(SMALL.steps * common::STEP_NS + 1_999_000), ..Slice::default() };
    let error = parquet::export(&run, &Options { slice: nothing, ..options(&out) });
    assert!(matches!(error.unwrap_err(), ExportError::EmptySlice));
    let sized = Options { max_bytes: Some(1 << 20), ..options(&out) };
    assert!(matches!(
        parquet::export(&run, &sized),
        Err(ExportError::NoMaxSize { format: "parquet" })
    ));
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), SMALL.ranks as usize, "{left:?}");
    let nowhere = csv::export(&run, &options(&dir.path().join("no/tables")));
    assert!(
        matches!(nowhere, Err(ExportError::NoDirectory { .. })) && !dir.path().join("no").exists()
    );
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("mine"), "x").unwrap();
    assert!(matches!(parquet::export(&run, &options(&out)), Err(ExportError::Exists { .. })));
    parquet::export(&run, &Options { force: true, ..options(&out) }).unwrap();
    assert!(!out.join("mine").exists() && out.join("kernels").exists());
}

/// Returns the rows of a file's table that a request selects.
fn read(run: &OpenRun, file: usize, table: &str, request: &Request) -> Vec<Batch> {
    let mut batches = Vec::new();
    let problems = run.read_rank(file, table, request, &mut |batch| {
        batches.push(batch);
        true
    });
    assert_eq!(problems.unwrap(), Vec::<String>::new(), "{table}");
    batches
}

#[test]
fn an_engine_reads_the_rows_that_are_exported() {
    let dir = tempfile::tempdir().unwrap();
    common::write_run(dir.path(), SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("tables.json");
    tables_json::export(&run, &options(&out)).unwrap();
    let json: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let run = OpenRun::open(dir.path()).unwrap();
    let mut seen = 0;
    for table in catalogue().into_iter().filter(|table| table.scope == Scope::Rank) {
        let all = Request { columns: (0..table.columns.len()).collect(), ..Request::default() };
        for file in 0..2 {
            let batches = read(&run, file, table.name, &all);
            let rows = json["ranks"][file]["tables"][table.name]["rows"].as_array().unwrap();
            assert_eq!(
                batches.iter().map(|batch| batch.rows).sum::<usize>(),
                rows.len(),
                "{}",
                table.name
            );
            seen += rows.len();
            for (at, row) in
                rows.iter().enumerate().take(batches.first().map_or(0, |first| first.rows))
            {
                for (column, value) in row.as_array().unwrap().iter().enumerate() {
                    // JSON lacks the first four columns, because they are in the object around the
                    // table.
                    let data = &batches[0].columns[column + 4];
                    let found = match &data.values {
                        _ if !data.valid[at] => Value::Null,
                        Values::Int(values) => values[at].into(),
                        Values::Id(values) => values[at].into(),
                        Values::Float(values) => values[at].into(),
                        Values::Bool(values) => values[at].into(),
                        Values::Text(texts) => (&*texts.distinct[texts.keys[at] as usize]).into(),
                    };
                    let same = found == *value
                        || found.as_f64().is_some_and(|f| Some(f) == value.as_f64());
                    assert!(
                        same,
                        "{}, row {at}, {}: {found} {value}",
                        table.name,
                        table.columns[column + 4].name
                    );
                }
            }
        }
    }
    assert!(seen > 500, "{seen} rows");
}

#[test]
fn an_engine_gets_only_the_columns_and_times_that_it_asks_for() {
    let dir = tempfile::tempdir().unwrap();
    let counts = common::write_run(dir.path(), SMALL);
    let run = OpenRun::open(dir.path()).unwrap();
    let kernels = catalogue().into_iter().find(|table| table.name == "kernels").unwrap();
    let at = |name: &str| kernels.columns.iter().position(|column| column.name == name).unwrap();
    let two = Request { columns: vec![at("class"), at("rank")], ..Request::default() };
    let batches = read(&run, 1, "kernels", &two);
    assert_eq!(batches.iter().map(|batch| batch.rows as u64).sum::<u64>(), counts[1].kernels);
    let [class, rank] = &batches[0].columns[..] else {
        panic!("{} columns", batches[0].columns.len())
    };
    assert!(matches!(&rank.values, Values::Id(ranks) if ranks.iter().all(|rank| *rank == 1)));
    assert!(
        matches!(&class.values, Values::Text(texts) if texts.distinct.iter().any(|text| &**text == "compute"))
    );
    let part = Request { from_ns: Some(common::STEP_NS as i64), ..two.clone() };
    let rows = read(&run, 1, "kernels", &part).iter().map(|batch| batch.rows as u64).sum::<u64>();
    assert!(0 < rows && rows <= counts[1].kernels, "{rows}");
    let mut passed_on = 0;
    let stopped = run.read_rank(0, "spans", &two, &mut |batch| {
        passed_on += batch.rows;
        false
    });
    assert!(stopped.unwrap().is_empty() && passed_on > 0);
}

#[test]
fn an_unreadable_block_is_reported_for_every_requested_time() {
    let dir = tempfile::tempdir().unwrap();
    common::write_run(dir.path(), common::Job { ranks: 1, ..SMALL });
    let path = dir.path().join("rank-0.tprof");
    let kernels = catalogue().into_iter().find(|table| table.name == "kernels").unwrap();
    let at = |name: &str| kernels.columns.iter().position(|column| column.name == name).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let (mut named, mut whole) = (0, 0);
    // Damage one byte of the file at a time. Some of these bytes are in the block of kernels.
    for place in (0..bytes.len()).step_by(97) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0xff;
        std::fs::write(&path, damaged).unwrap();
        let Ok(run) = OpenRun::open(dir.path()) else { continue };
        for (columns, from_ns) in [(vec![at("name")], Some(1)), (vec![at("registers")], None)] {
            let mut rows = 0;
            let request = Request { columns, from_ns, to_ns: None };
            let read = run.read_rank(0, "kernels", &request, &mut |batch| {
                rows += batch.rows;
                true
            });
            match read.map(|problems| problems.is_empty()) {
                Ok(true) => {
                    assert_eq!(rows as u64, SMALL.steps * SMALL.operators, "byte {place}");
                    whole += 1;
                }
                _ => named += 1,
            }
        }
    }
    assert!(named > 0 && whole > 0, "{named} named, {whole} whole");
}
