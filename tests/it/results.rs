//! Tests of Python programs that ask for the results of a part of their run while it runs.

use tprof_tests::{EXACT, Job, Scratch, need_some, traced};

use crate::python_module::job;
use crate::python_stacks::pythons;

/// Returns the line of the output that begins with this name.
fn line<'a>(output: &'a str, name: &str) -> &'a str {
    let found = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("no {name} in {output}"))
}

fn program() -> Result<Job, &'static str> {
    let python = pythons().pop().ok_or("there is no Python")?;
    Ok(job(&python, "results.py").env("TPROF_BIN", tprof_tests::tprof_at()))
}

#[test]
fn the_results_of_a_part_are_complete_as_soon_as_it_ends() {
    let program = need_some!(program());
    let scratch = Scratch::new();
    let run = traced(&program, EXACT, &scratch);
    let out = &run.outcome.stdout;
    let has = |name: &str| line(out, name);
    // A part has all events from its beginning to the moment of the question, and no others.
    assert_eq!(has("not begun"), "{} None None []", "{:?}", run.outcome);
    assert_eq!(has("within"), "{'inside': 3}");
    assert_eq!(has("behind it"), "{'inside': 3, 'last': 1}");
    assert_eq!(has("again"), "{'inside': 3, 'last': 1} ['inside', 'last']");
    assert_eq!(has("allocated"), "True");
    assert_eq!(has("peak"), "True True");
    assert!(has("device").starts_with("None no kernel, copy or memset was recorded"), "{out}");
    assert!(has("text").starts_with("device time  unknown: no kernel"), "{out}");
    assert!(has("refused").starts_with("unknown order 'nothing'; there are count, "), "{out}");
    let cycles = "[{'step 2': 1, 'step 3': 1}, {'step 6': 1, 'step 7': 1}]";
    assert_eq!(has("cycles"), cycles);
    // The commands that tprof ran to read the results are not part of the job.
    let info = tprof_tests::run_info(&run.run, |_| true);
    assert_eq!(info["completeness"]["blind"], serde_json::json!([]), "{info}");
}

#[test]
fn without_tprof_results_are_unknown_with_a_hint() {
    let program = need_some!(program());
    let native = program.run_in(Scratch::new().cwd()).expect_code(0);
    let out = &native.stdout;
    let how = "nothing is recorded without tprof; to record this: tprof run -- python ...";
    assert_eq!(line(out, "behind it"), "{}");
    assert_eq!(line(out, "device"), format!("None {how}"));
    assert_eq!(line(out, "table"), how);
    assert_eq!(line(out, "text"), format!("device time  unknown: {how}"));
    assert_eq!(line(out, "cycles"), "[{}, {}]");
}

/// scripts/flops-check.sh checks the same with a model in PyTorch.
#[test]
fn operations_that_were_noted_ahead_are_counted_as_those_of_a_run() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let program = job(&python, "flops.py").env("TPROF_BIN", tprof_tests::tprof_at());
    let outcome = program.run_in(Scratch::new().cwd()).expect_code(0);
    assert_eq!(outcome.stdout, "counted\n");
}
