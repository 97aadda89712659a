//! Tests of several Python interpreters in one process: the functions of each are named, on the
//! thread that runs them.

use std::path::Path;

use serde_json::Value;
use tprof_tests::{Job, Scratch, document, need, traced};

use crate::python_stacks::pythons;

/// Functions, the thread that runs them, and the seconds that they run on a core.
const FUNCTIONS: [(&str, &str, f64); 5] = [
    ("victim_first", "main", 0.4),
    ("victim_second", "main", 0.2),
    ("victim_outer", "main", 0.2),
    ("victim_third", "third", 0.4),
    ("victim_fourth", "fourth", 0.2),
];

/// Number of samples of a thread in a second on a core.
const RATE: u32 = 499;

/// Returns the time of samples whose Python frames were lost, s.
fn lost_s(document: &Value) -> f64 {
    let losses = document["completeness"]["losses"].as_array().unwrap().iter();
    let frames = losses.filter(|loss| loss["what"] == "Python frames of CPU samples");
    frames.filter_map(|loss| loss["count"].as_f64()).sum::<f64>() / f64::from(RATE)
}

fn rows<'d>(document: &'d Value, table: &str) -> &'d [Value] {
    document["tables"][table].as_array().unwrap()
}

#[test]
fn functions_of_all_interpreters_are_named() {
    need!(!pythons().is_empty(), "there is no Python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/python_interpreters.py");
    for python in pythons() {
        let name = python.display().to_string();
        let scratch = Scratch::new();
        let job = Job::new(&python).arg(&script);
        let options = ["--mem", "off", "--sample-rate", &RATE.to_string()];
        let run = traced(&job, &options, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{name}: {:?}", run.outcome);
        let cpu = document("cpu", &run.run);
        for (function, _, seconds) in FUNCTIONS {
            let mut of = rows(&cpu, "functions").iter().filter(|row| row["function"] == function);
            let ns = of.next().and_then(|row| row["total_ns"].as_f64()).unwrap_or(0.0);
            // On a busy machine the sampler may come too late to read Python's frames. It counts
            // those samples as lost.
            let share = ns / 1e9 / seconds;
            let with_lost = share + lost_s(&cpu) / seconds;
            assert!(share < 1.2 && with_lost >= 0.8, "{name}: {function}: {ns} ns: {cpu:#}");
        }
        let threads = document("threads", &run.run);
        for (function, thread, _) in FUNCTIONS.iter().filter(|(_, thread, _)| *thread != "main") {
            let mut of = rows(&threads, "threads").iter().filter(|row| row["name"] == *thread);
            let ran_in = of.next().and_then(|row| row["ran_in"].as_str()).unwrap_or_default();
            assert!(ran_in.starts_with(function), "{name}: {thread}: {threads:#}");
        }
        // All interpreters share one lock, which one thread holds at a time.
        let sum = |key: &str| -> f64 {
            rows(&threads, "threads").iter().filter_map(|row| row[key].as_f64()).sum()
        };
        assert!(sum("held_gil_ns") <= 1.1 * sum("running_ns"), "{name}: {threads:#}");
    }
}
