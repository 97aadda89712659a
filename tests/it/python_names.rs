//! Threads have the names that Python gives them, on every installed Python.

use std::path::Path;

use tprof_tests::{Job, Scratch, document, program, skip, traced};

use crate::python_stacks::pythons;

const NAMES: [&str; 5] = ["after", "starts a worker", "reader of data", "idler", "Zähler"];

fn has_names(python: &Path, under: Option<&str>) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/python_names.py");
    let job = Job::new(python).arg("-B").arg(script);
    let job = under.map_or(job.clone(), |wrapper| job.under([program(wrapper)]));
    let scratch = Scratch::new();
    let run = traced(&job, &["--mem", "off"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let threads = document("threads", &run.run);
    let rows = threads["tables"]["threads"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    for name in NAMES {
        assert!(names.contains(&name), "{}: no {name} among {names:?}", python.display());
    }
    assert!(!names.contains(&"before"), "{names:?}");
}

#[test]
fn threads_and_processes_have_the_names_that_python_gives_them() {
    let pythons = pythons();
    if pythons.is_empty() {
        return skip("there is no Python from 3.8 on");
    }
    for python in pythons {
        has_names(&python, None);
    }
}

#[test]
fn threads_have_their_names_without_perf_events() {
    let Some(python) = pythons().pop() else { return skip("there is no Python from 3.8 on") };
    has_names(&python, Some("no_perf"));
}
