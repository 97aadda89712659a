//! The module `tprof` of Python, in real processes: what it records, and that programs do the same
//! with and without tprof.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tprof_tests::{EXACT, Job, Scratch, need, need_some, traced};
use tprof_trace::model::{MarkKind, Span};
use tprof_trace::{TraceFile, TraceRow};

use crate::python_stacks::pythons;

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn job(python: &Path, program: &str) -> Job {
    let script = folder("programs/python_module").join(program);
    Job::new(python).arg("-B").arg(script).env("PYTHONPATH", folder("../python"))
}

fn rows<R: TraceRow>(file: &TraceFile) -> Vec<R> {
    let (rows, problems) = file.rows();
    assert!(problems.is_empty(), "{problems:?}");
    rows
}

fn file_of(run: &Path) -> TraceFile {
    TraceFile::open(&run.join("rank-0.tprof")).unwrap()
}

/// How many spans of each name a program has recorded itself.
fn spans(file: &TraceFile) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for span in rows::<Span>(file).iter().filter(|span| file.name(span.category) == "tprof") {
        *counts.entry(file.name(span.name).to_owned()).or_default() += 1;
    }
    counts
}

fn marks(file: &TraceFile, kind: MarkKind) -> Vec<String> {
    let of = file.marks().iter().filter(|mark| mark.kind == kind);
    of.map(|mark| file.name(mark.name).to_owned()).collect()
}

#[test]
fn programs_do_the_same_without_tprof_and_under_it_are_recorded() {
    need!(!pythons().is_empty(), "there is no Python");
    for python in pythons() {
        let what = python.display();
        let job = job(&python, "core.py");
        let scratch = Scratch::new();
        let native = job.run_in(scratch.cwd()).expect_code(0);
        assert!(native.stdout.ends_with("exits\n"), "{what}: {native:?}");
        let run = traced(&job, EXACT, &scratch);
        assert_eq!(run.outcome, native, "{what}");

        let file = file_of(&run.run);
        // The program runs twice: by exec, and then to its end.
        let spans = spans(&file);
        for (name, count) in [
            ("around", 2),
            ("around a fork", 2),
            ("async with", 2 * 3),
            ("asynchronous generator", 2 * 3),
            ("at exit", 1),
            ("at the end", 1),
            ("class", 2),
            ("coroutine", 2 * 4),
            ("fails", 2),
            ("generator", 2 * 2),
            ("of the child", 2),
            ("shared", 2 * 4 * 200),
            ("static", 2),
            ("with bytes", 2 * 4),
            ("within", 2 * 4),
        ] {
            assert_eq!(spans.get(name), Some(&count), "{what}: {name} in {spans:?}");
        }
        assert!(spans["recursive"] > 2 * 100, "{what}: {spans:?}");
        let marks = marks(&file, MarkKind::Mark);
        let long = format!("{}…", "é".repeat(3800 / 2));
        let names = ["collected", "exit", "in the child", "sub", "surrogate \\ud800"];
        for name in names.into_iter().chain([long.as_str(), "(no name)"]) {
            assert!(marks.iter().any(|mark| mark == name), "{what}: no {name} in {marks:?}");
        }
        assert!(!marks.iter().any(|mark| mark == "not recorded"), "{what}: recorded when off");
    }
}

#[test]
fn steps_values_and_arguments_are_those_of_the_program() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let scratch = Scratch::new();
    let run = traced(&job(&python, "core.py").arg("again"), EXACT, &scratch);
    let file = file_of(&run.run);
    let steps = [0, 1, 2, 3, 4, 5, 100, 101].map(|step| format!("step {step}"));
    assert_eq!(marks(&file, MarkKind::Step), steps);
    let values = file.counters().to_vec();
    let of = |name: &str| -> Vec<f64> {
        let rows = values.iter().filter(|row| file.name(row.name) == name);
        rows.map(|row| row.value).collect()
    };
    assert_eq!(of("loss"), [7.0, 0.5]);
    assert!(of("no number").len() == 2 && of("no number").iter().all(|value| value.is_nan()));

    let spans = rows::<Span>(&file);
    let of = |name: &str| -> Vec<&Span> {
        spans.iter().filter(|span| file.name(span.name) == name).collect()
    };
    for span in of("generator") {
        let expected =
            r#"{"batch":3,"nan":"nan","of":"<object>","style":"start/end","where":"gpu"}"#;
        assert_eq!(file.name(span.args), expected);
    }
    let mut numbers: Vec<&str> = of("with bytes").iter().map(|span| file.name(span.args)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, ["", r#"{"number":1}"#, r#"{"number":2}"#, r#"{"number":3}"#]);
    // A coroutine's ends after others of its thread have begun: by its own number.
    let outer = of("coroutine");
    for within in of("within").into_iter().chain(of("async with")) {
        let end = |span: &Span| span.start_ns + span.duration_ns;
        let inside =
            |outer: &&&Span| outer.start_ns <= within.start_ns && end(outer) >= end(within);
        assert!(outer.iter().any(|outer| inside(&outer)), "{within:?}");
    }
}
