//! tprof remembers the last stack of each thread and walks only the part that changed. The
//! assembled stack must equal the stack that a whole walk finds.

use std::path::Path;

use tprof_tests::{Job, Kind, Scratch, build, program, skip, traced};

use crate::python_stacks::pythons;

/// Runs a job in a test mode of tprof that walks every remembered stack again and compares the two.
/// Returns the output of that comparison.
fn checked(job: &Job, options: &[&str]) -> String {
    let scratch = Scratch::new();
    let found = scratch.path().join("found");
    let options = [&["--mem", "exact", "--activities", "mem"], options].concat();
    let run = traced(&job.clone().env("TPROF_TEST_STACKS", &found), &options, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{}: {:?}", job.name(), run.outcome);
    std::fs::read_to_string(&found).unwrap_or_default()
}

/// Checks that remembered stacks equal whole walks, in a program that repeats the same stacks. Some
/// guesses must hit and some must miss.
#[track_caller]
fn assert_same_as_whole_walks(job: &Job, options: &[&str]) {
    let found = checked(job, options);
    assert!(found.contains("checked\n"), "{}: nothing was remembered: {found:?}", job.name());
    let is_guessed = options.is_empty();
    assert!(!is_guessed || found.contains("guessed\n"), "{}: nothing was guessed", job.name());
    assert!(!found.contains("differs"), "{}: {found}", job.name());
}

#[test]
fn remembered_stacks_are_right_in_c_with_all_kinds_of_frames() {
    for kind in [Kind::Plain, Kind::FramePointers] {
        assert_same_as_whole_walks(
            &Job::new(build("stacks_alike", kind).unwrap()).arg("200000"),
            &[],
        );
    }
}

#[test]
fn remembered_stacks_are_right_after_signals_jumps_and_exceptions() {
    for job in [
        Job::new(program("coroutines")),
        Job::new(program("stacks_gone")),
        Job::new(program("exceptions")),
        Job::new(program("fork_threads")),
    ] {
        assert_same_as_whole_walks(&job, &[]);
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
fn remembered_stacks_are_right_while_libraries_are_loaded_and_unloaded() {
    let job = Job::new(program("dlopen_loop")).arg("400");
    let job = job.arg(program("plugin")).arg(program("other_plugin"));
    assert_same_as_whole_walks(&job, &[]);
}

#[test]
fn remembered_stacks_are_right_in_python() {
    let Some(python) = pythons().pop() else { return skip("there is no Python from 3.8 on") };
    let script = "import json, re, decimal\n\
        data = [{'a': i, 'b': [str(i)] * 9, 'c': decimal.Decimal(i)} for i in range(4000)]\n\
        text = json.dumps(data, default=str)\n\
        assert len(json.loads(text)) == len(re.findall('\"a\"', text))";
    let job = Job::new(python).arg("-c").arg(script).env("PYTHONMALLOC", "malloc");
    assert_same_as_whole_walks(&job, &[]);
    assert_same_as_whole_walks(&job, &["--stacks", "python"]);
}

#[test]
fn remembered_stacks_are_right_in_a_compiler() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/stacks_alike.c");
    let job = Job::new("gcc").args(["-O2", "-S", "-o", "/dev/null"]).arg(source);
    assert_same_as_whole_walks(&job, &[]);
}
