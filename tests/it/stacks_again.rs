//! A stack that is assembled from the last walk of its thread and a newly walked part equals the
//! stack that a whole walk finds.

use std::path::Path;

use tprof_tests::{Job, Kind, Scratch, build, program, skip, traced};

use crate::python_stacks::pythons;

/// Runs a job in which every remembered stack is walked again. Returns the output of that check.
fn checked(job: &Job, options: &[&str]) -> String {
    let scratch = Scratch::new();
    let found = scratch.path().join("found");
    let options = [&["--mem", "exact", "--activities", "mem"], options].concat();
    let run = traced(&job.clone().env("TPROF_TEST_STACKS", &found), &options, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{}: {:?}", job.name(), run.outcome);
    std::fs::read_to_string(&found).unwrap_or_default()
}

/// Compares runs of a program whose stacks are the same each time: some guesses hit and some miss.
#[track_caller]
fn is_the_same(job: &Job, options: &[&str]) {
    let found = checked(job, options);
    assert!(found.contains("checked\n"), "{}: nothing was remembered: {found:?}", job.name());
    let is_guessed = options.is_empty();
    assert!(!is_guessed || found.contains("guessed\n"), "{}: nothing was guessed", job.name());
    assert!(!found.contains("differs"), "{}: {found}", job.name());
}

#[test]
fn in_c_with_frames_of_every_sort() {
    for kind in [Kind::Plain, Kind::FramePointers] {
        is_the_same(&Job::new(build("stacks_alike", kind).unwrap()).arg("200000"), &[]);
    }
}

#[test]
fn through_signals_jumps_coroutines_and_exceptions() {
    for job in [
        Job::new(program("coroutines")),
        Job::new(program("stacks_gone")),
        Job::new(program("exceptions")),
        Job::new(program("fork_threads")),
    ] {
        is_the_same(&job, &[]);
    }
    // A timer's interrupts decide whether a stack of this program is walked at all. If they
    // interrupt no hook, all stacks but the first are guessed, and none of these is walked again.
    let found = checked(&Job::new(program("handler_jump")), &[]);
    assert!(found.contains("checked\n") || found.contains("guessed\n"), "{found:?}");
    assert!(!found.contains("differs"), "{found}");
    // On a slow machine, this program's handler leaves no time for the interrupted code, and walks
    // through a handler are not remembered.
    let found = checked(&Job::new(program("handler_malloc")).arg("2000"), &[]);
    assert!(!found.contains("differs"), "{found}");
}

#[test]
fn while_code_comes_and_goes() {
    let job = Job::new(program("dlopen_loop")).arg("400");
    let job = job.arg(program("plugin")).arg(program("other_plugin"));
    is_the_same(&job, &[]);
}

#[test]
fn in_python() {
    let Some(python) = pythons().pop() else { return skip("there is no Python from 3.8 on") };
    let script = "import json, re, decimal\n\
        data = [{'a': i, 'b': [str(i)] * 9, 'c': decimal.Decimal(i)} for i in range(4000)]\n\
        text = json.dumps(data, default=str)\n\
        assert len(json.loads(text)) == len(re.findall('\"a\"', text))";
    let job = Job::new(python).arg("-c").arg(script).env("PYTHONMALLOC", "malloc");
    is_the_same(&job, &[]);
    is_the_same(&job, &["--stacks", "python"]);
}

#[test]
fn in_a_compiler() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/stacks_alike.c");
    let job = Job::new("gcc").args(["-O2", "-S", "-o", "/dev/null"]).arg(source);
    is_the_same(&job, &[]);
}
