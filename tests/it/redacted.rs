//! `--redact` removes the texts in arguments of spans, whatever library recorded them.

use serde_json::{Value, json};
use std::path::Path;
use tprof_tests::{Job, Scratch, need_some, program, rank_file, rows, traced};
use tprof_trace::model::Span;

use crate::python_stacks::pythons;

/// Returns the arguments of a job's own spans by name, and all texts of its file.
fn recorded(job: &Job, options: &[&str]) -> (Vec<(String, Value)>, String) {
    let scratch = Scratch::new();
    let run = traced(job, options, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let file = rank_file(&run.run, 0);
    let spans = rows::<Span>(&file);
    let own = spans.iter().filter(|span| file.name(span.category) == "tprof");
    let arguments = own.map(|span| {
        let arguments = serde_json::from_str(file.name(span.args)).unwrap_or(Value::Null);
        (file.name(span.name).to_owned(), arguments)
    });
    let arguments = arguments.collect();
    (arguments, file.names().map(|(_, name)| format!("{name}\n")).collect())
}

/// Checks the arguments of spans under `--redact`, and that without it their texts are kept.
#[track_caller]
fn check(job: &Job, expected: &[(&str, Value)]) {
    let (arguments, texts) = recorded(job, &["--redact"]);
    for (name, expected) in expected {
        let found = arguments.iter().find(|(found, _)| found == name);
        assert_eq!(found.map(|(_, arguments)| arguments), Some(expected), "{name}");
    }
    assert!(!texts.contains("sesame"), "{texts}");
    let (_, texts) = recorded(job, &[]);
    assert!(texts.contains("/sesame-text"), "{texts}");
}

#[test]
fn spans_of_the_table_keep_numbers() {
    let expected = [
        ("named", json!({"path": null, "batch": 3, "in": null})),
        ("described", json!({"path": null, "batch": 3})),
    ];
    check(&Job::new(program("own_spans")).arg("secret"), &expected);
}

#[test]
fn spans_of_rust_keep_numbers_and_known_categories() {
    let expected = [
        ("described", json!({"path": null, "batch": 3, "category": "io"})),
        ("custom", json!({"loss": "NaN", "category": null})),
        ("later", json!({"path": null, "batch": 3})),
    ];
    check(&Job::new(env!("CARGO_BIN_EXE_sdk")).arg("secret"), &expected);
}

#[test]
fn spans_of_python_keep_numbers() {
    let python = need_some!(pythons().into_iter().next().ok_or("there is no Python"));
    let script =
        "import tprof\nwith tprof.range('named', path='/sesame-text', batch=3, rate=0.5): pass";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let job = Job::new(python).args(["-B", "-c", script]).env("PYTHONPATH", folder);
    check(&job, &[("named", json!({"path": null, "batch": 3, "rate": 0.5}))]);
}

#[test]
fn a_title_that_a_process_gave_itself_keeps_its_program() {
    let script = "exec -a 'worker --key /sesame-text' \"$0\"";
    let job = Job::new("bash").args(["-c", script]).arg(program("short"));
    for (options, is_kept) in [(&["--redact"][..], false), (&[], true)] {
        let scratch = Scratch::new();
        let run = traced(&job, options, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let file = rank_file(&run.run, 0);
        let names: String = file.names().map(|(_, name)| format!("{name}\n")).collect();
        let all = names + &std::fs::read_to_string(run.run.join("run.json")).unwrap();
        assert_eq!(all.contains("sesame"), is_kept, "{all}");
        assert!(all.contains("worker"), "{all}");
    }
}
