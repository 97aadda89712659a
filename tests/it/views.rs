//! The SQL views have the same rows as the reports. DuckDB runs the views over an export of the
//! same run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tprof_tables::VIEWS;
use tprof_tests::view_pairs::{PAIRS, Pair, Rows, assert_same, rows};
use tprof_tests::{
    DEFAULT, Job, Refused, Scratch, Synthetic, client_python, document_with, skip, tprof, traced,
};

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn parted(row: &[Value], keys: usize) -> (Vec<String>, Vec<f64>) {
    let figures = row[keys..].iter().map(|value| value.as_f64().unwrap_or(f64::NAN));
    (row[..keys].iter().map(text).collect(), figures.collect())
}

fn reported(run: &Path, pair: &Pair) -> Rows {
    // None of these runs has marked steps, so this option makes the report cover the whole run.
    let options: &[&str] = if pair.of_whole_run { &["--steps-from", "explicit"] } else { &[] };
    let document = document_with(pair.report.0, run, options);
    let table = document["tables"][pair.report.1].as_array().cloned().unwrap_or_default();
    let is_wanted =
        |row: &Value| pair.leaves_out.is_none_or(|(key, value)| text(&row[key]) != value);
    let wanted = table.into_iter().filter(is_wanted);
    rows(wanted.map(|row| {
        let cells: Vec<Value> = pair.columns.iter().map(|key| row[*key].clone()).collect();
        parted(&cells, pair.keys)
    }))
}

/// Returns the rows of each pair's view in DuckDB.
fn viewed(python: &Path, dataset: &Path, scratch: &Scratch) -> Vec<Rows> {
    let views = scratch.join("views.sql");
    fs::write(&views, VIEWS.iter().map(|view| view.text).collect::<String>()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("readers/views.py");
    let mut command = Command::new(python);
    command.arg(script).arg(dataset).arg(views).args(PAIRS.iter().map(|pair| pair.query));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: Vec<Vec<Vec<Value>>> = serde_json::from_slice(&output.stdout).unwrap();
    let of_pair =
        |(of, pair): (Vec<Vec<Value>>, &Pair)| rows(of.iter().map(|row| parted(row, pair.keys)));
    all.into_iter().zip(PAIRS).map(of_pair).collect()
}

/// Compares all pairs on a run. Returns the number of rows of each pair.
fn compared(run: &Path, what: &str, scratch: &Scratch) -> Option<Vec<usize>> {
    let python = match client_python() {
        Ok(python) => python,
        Err(why) => {
            skip(why);
            return None;
        }
    };
    let dataset = scratch.join(format!("{what}-parquet"));
    let export = tprof(["export", "--to", "parquet", "--compact", "-o"]).arg(&dataset).arg(run);
    export.run_in(scratch.cwd()).expect_code(0);
    let mut counts = Vec::new();
    for (pair, viewed) in PAIRS.iter().zip(viewed(&python, &dataset, scratch)) {
        let reported = reported(run, pair);
        assert_same(what, pair, &viewed, &reported);
        counts.push(reported.len());
    }
    Some(counts)
}

/// Returns the public traces beside the checkout.
fn public_traces() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let data = std::env::var_os("TPROF_SHARED_DATA").map_or(beside, PathBuf::from).join("kineto");
    let names = ["dlrm_8rank_v100", "graphs_a100", "nccl_a100", "alexnet_cp", "diff_test_v100"];
    names.iter().map(|name| data.join(name)).filter(|path| path.is_dir()).collect()
}

#[test]
fn views_say_what_reports_say_of_public_traces() {
    let traces = public_traces();
    if traces.is_empty() {
        return skip(Refused::RealTraces);
    }
    let scratch = Scratch::new();
    for trace in traces {
        let name = trace.file_name().unwrap().to_string_lossy().into_owned();
        let run = scratch.join(&name);
        tprof(["import"]).arg(&trace).arg("-o").arg(&run).run_in(scratch.cwd()).expect_code(0);
        let Some(counts) = compared(&run, &name, &scratch) else { return };
        assert!(counts[..5].iter().all(|rows| *rows > 0), "{name}: {counts:?}");
    }
}

#[test]
fn views_say_what_reports_say_of_several_ranks() {
    let scratch = Scratch::new();
    let traces = scratch.join("traces");
    fs::create_dir(&traces).unwrap();
    for rank in 0..3 {
        let mut file = fs::File::create(traces.join(format!("rank-{rank}.json"))).unwrap();
        Synthetic { rank, ranks: 3, steps: 5 }.write(&mut file).unwrap();
    }
    let run = scratch.join("run");
    tprof(["import"]).arg(&traces).arg("-o").arg(&run).run_in(scratch.cwd()).expect_code(0);
    let Some(counts) = compared(&run, "synthetic", &scratch) else { return };
    // Every pair has rows except hot functions, because these traces have no samples.
    let empty: Vec<usize> = (0..PAIRS.len()).filter(|at| counts[*at] == 0).collect();
    let cpu = PAIRS.iter().position(|pair| pair.report == ("cpu", "functions")).unwrap();
    assert_eq!(empty, [cpu], "{counts:?}");
}

#[test]
fn hot_functions_are_those_of_the_report() {
    let scratch = Scratch::new();
    let job = Job::new("python3").args(["-c", "sum(i * i for i in range(6_000_000))"]);
    let run = traced(&job, DEFAULT, &scratch).run;
    let Some(counts) = compared(&run, "functions", &scratch) else { return };
    let at = PAIRS.iter().position(|pair| pair.report == ("cpu", "functions")).unwrap();
    assert!(counts[at] > 0, "{counts:?}");
}
