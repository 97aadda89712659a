//! `report cpu --lines` shows time by source line, and options choose a part of it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use tprof_tests::{Job, Scratch, assert_refused, has_native_or_skip, need, program, tprof, traced};

/// A rate with enough samples to compare shares.
const OFTEN: &[&str] = &["--sample-rate", "997", "--mem", "off"];
const PYTHON: &str = "/usr/bin/python3";
const SOURCE: &str = include_str!("../programs/lines.py");

/// Records a run of the Python program, which is copied to the scratch folder; `None` if this
/// machine can't take samples.
fn recorded(scratch: &Scratch) -> Option<(PathBuf, PathBuf)> {
    let script = scratch.write("lines.py", SOURCE);
    // tprof shows no source that is as new as the process, because it could have changed since
    // then.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let run = traced(&Job::new(PYTHON).arg(&script), OFTEN, scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let report = lines(&run.run, &[]);
    if !has_native_or_skip(&report) {
        return None;
    }
    Some((run.run, script))
}

fn lines(run: &Path, options: &[&str]) -> Value {
    let job = tprof(["report", "cpu", "--lines", "--json"]).args(options).arg(run);
    let outcome = job.run_in(run.parent().unwrap()).expect_code(0);
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// Returns the number of the line with a marker.
fn line_of(marker: &str) -> u64 {
    let marker = format!("# line: {marker}");
    1 + SOURCE.lines().position(|line| line.ends_with(&marker)).unwrap() as u64
}

/// Returns the row of a line of a function. A generator in the function is a function of its own.
#[track_caller]
fn row(report: &Value, function: &str, line: u64) -> Value {
    let rows = report["tables"]["lines"].as_array().unwrap();
    let is_it = |row: &&Value| {
        row["line"] == line
            && row["function"] == function
            && row["file"].as_str().is_some_and(|file| file.ends_with("/lines.py"))
    };
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no line {line} in {rows:#?}")).clone()
}

/// Returns the time of a function over all its lines.
#[track_caller]
fn of_function(report: &Value, function: &str, key: &str) -> Value {
    let rows = report["tables"]["line_functions"].as_array().unwrap();
    let begins = format!("{function} (");
    let is_it =
        |row: &&Value| row["place"].as_str().is_some_and(|place| place.starts_with(&begins));
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no {function} in {rows:#?}"))[key].clone()
}

/// Checks a value to within 10 %, for samples of a second on a busy machine.
#[track_caller]
fn is_near(value: &Value, expected: f64) {
    let value = value.as_f64().unwrap() / 1e9;
    assert!((value / expected - 1.0).abs() < 0.10, "{value} s of {expected} s");
}

#[test]
fn lines_that_run_and_lines_that_wait_have_time_and_source() {
    need!(Path::new(PYTHON).exists(), "there is no /usr/bin/python3");
    let scratch = Scratch::new();
    let Some((run, _)) = recorded(&scratch) else { return };
    let report = lines(&run, &[]);
    let first = &report["tables"]["lines"][0];
    let hot = row(&report, "hot", line_of("hot"));
    assert_eq!(first["file"], hot["file"], "{first:#?}");
    is_near(&of_function(&report, "hot", "total_ns"), 0.6);
    // A Python stack is read a moment after the sample was taken, sometimes on another line.
    assert!(hot["total_ns"].as_u64() > Some(300_000_000), "{hot:#?}");
    assert_eq!(hot["own"], true);
    let text = "total += sum(list(range(50000)))  # line: hot";
    assert_eq!(hot["source"], text);
    let waited = lines(&run, &["--sort", "waited", "--mine"]);
    let idle = &waited["tables"]["lines"][0];
    assert_eq!(idle["line"], line_of("idle"), "{idle:#?}");
    is_near(&idle["self_waited_ns"], 0.45);
}

#[test]
fn time_in_libraries_counts_for_the_users_line_that_calls_them() {
    need!(Path::new(PYTHON).exists(), "there is no /usr/bin/python3");
    let scratch = Scratch::new();
    let Some((run, _)) = recorded(&scratch) else { return };
    let line = line_of("library");
    let all = row(&lines(&run, &[]), "through_library", line);
    let mine = lines(&run, &["--mine"]);
    let own = row(&mine, "through_library", line);
    // The function's total time is compared. Its own time excludes the comprehension on that line,
    // which is a function of its own before Python 3.12.
    is_near(&of_function(&mine, "through_library", "total_ns"), 0.3);
    assert!(all["self_ns"].as_u64() < own["self_ns"].as_u64(), "{all:#?} {own:#?}");
    let rows = mine["tables"]["lines"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["own"] == true), "{rows:#?}");
    let sum: u64 = rows.iter().map(|row| row["self_ns"].as_u64().unwrap()).sum();
    // The program's own functions run for 0.9 s.
    is_near(&sum.into(), 0.9);
}

#[test]
fn a_source_that_changed_after_the_run_is_named_and_not_shown() {
    need!(Path::new(PYTHON).exists(), "there is no /usr/bin/python3");
    let scratch = Scratch::new();
    let Some((run, script)) = recorded(&scratch) else { return };
    std::fs::write(&script, SOURCE.replace("hot", "fast")).unwrap();
    let report = lines(&run, &[]);
    let hot = row(&report, "hot", line_of("hot"));
    assert_eq!(hot["source"], Value::Null);
    assert_eq!(hot["source_missing"], "the file changed since it was recorded");
    let text = tprof(["report", "cpu", "--lines"]).arg(&run).run_in(scratch.path()).stdout;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("lines.py is not shown: the file changed since it was recorded"),
        "{text}"
    );
    assert!(!text.contains("# line: hot"), "{text}");
    std::fs::remove_file(&script).unwrap();
    let hot = row(&lines(&run, &[]), "hot", line_of("hot"));
    assert_eq!(hot["source_missing"], "the file cannot be read here");
}

#[test]
fn the_page_shows_lines_with_their_source() {
    need!(Path::new(PYTHON).exists(), "there is no /usr/bin/python3");
    let scratch = Scratch::new();
    let Some((run, _)) = recorded(&scratch) else { return };
    tprof(["export", "--to", "report"]).arg(&run).run_in(scratch.path()).expect_code(0);
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("Functions and their lines"), "no lines in the page");
    assert!(page.contains("copy.deepcopy([[i] for i in range(2000)])"), "no source in the page");
}

#[test]
fn lines_of_a_compiled_program_come_from_its_debug_information() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("cpu_ranges")), OFTEN, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let report = lines(&run.run, &[]);
    if !has_native_or_skip(&report) {
        return;
    }
    let rows = report["tables"]["lines"].as_array().unwrap();
    let outer = rows.iter().filter(|row| row["function"] == "spin_outer");
    let outer: Vec<&Value> = outer.collect();
    assert!(!outer.is_empty(), "{rows:#?}");
    for row in &outer {
        assert!(row["file"].as_str().unwrap().ends_with("/cpu_ranges.c"), "{row:#?}");
        assert!(row["line"].as_u64().is_some_and(|line| line > 0), "{row:#?}");
    }
    let sum: u64 = outer.iter().map(|row| row["self_ns"].as_u64().unwrap()).sum();
    is_near(&sum.into(), 0.4);
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_name() {
    need!(Path::new(PYTHON).exists(), "there is no /usr/bin/python3");
    let scratch = Scratch::new();
    let Some((run, _)) = recorded(&scratch) else { return };
    let run = run.to_str().unwrap();
    let refused = |words: &[&str], named: &[&str]| {
        let job = tprof(["report", "cpu", run]).args(words);
        assert_refused(&job.run_in(scratch.path()), named);
    };
    refused(&["--sort", "totl"], &["unknown sort key `totl`", "--sort total"]);
    refused(&["--thread", "pythn3"], &["--thread `pythn3` matches nothing", "--thread python3"]);
    refused(&["--thread", "nosuch"], &["the threads are main (1)"]);
    let job = tprof(["report", "kernels", run, "--sort", "total"]);
    assert_refused(&job.run_in(scratch.path()), &["--sort", "cpu"]);
    let main = lines(Path::new(run), &["--thread", "main"]);
    is_near(&of_function(&main, "hot", "total_ns"), 0.6);
    let other = Scratch::new();
    let sleep = traced(&Job::new("sleep").arg("0.2"), OFTEN, &other);
    let job = tprof(["report", "cpu", "--mine"]).arg(&sleep.run);
    assert_refused(&job.run_in(scratch.path()), &["--mine leaves nothing", "leave out --mine"]);
}
