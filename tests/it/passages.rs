//! Stacks look as without tprof: no function of tprof's libraries is between functions of the job.
//! Time in tprof itself is attributed to tprof.

use std::path::Path;

use tprof_tests::{
    EXACT, Job, Refused, Scratch, document, has_native, memory_report, program, skip, stack, tprof,
    traced,
};

/// Parts of the names of functions in tprof's libraries.
const OWN: [&str; 2] = ["tprof_preload", "tprof_inject"];

fn is_own(frame: &str) -> bool {
    OWN.iter().any(|part| frame.contains(part))
}

/// Returns the stacks of CPU samples that contain a function, outermost function first.
fn sampled(run: &Path, with: &str) -> Vec<Vec<String>> {
    let job = tprof(["export", "--to", "folded", "-o", "-", "--weight", "cpu"]).arg(run);
    let outcome = job.run_in(run.parent().unwrap());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let stacks = outcome.stdout.lines().map(|line| line.rsplit_once(' ').unwrap().0);
    let stacks = stacks.map(|stack| stack.split(';').map(str::to_owned).collect::<Vec<_>>());
    stacks.filter(|stack| stack.iter().any(|frame| frame == with)).collect()
}

#[test]
fn no_frame_of_tprof_lies_between_frames_of_the_job() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("threads_work")), EXACT, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let sites = memory_report(&run.run).sites(|frame| frame.starts_with("victim_works"));
    assert!(!sites.is_empty());
    for site in &sites {
        let frames = stack(site);
        assert!(!frames.iter().any(|frame| is_own(frame)), "{frames:#?}");
        let at = frames.iter().position(|frame| frame.starts_with("victim_works")).unwrap();
        assert!(frames[at + 1].contains("libc.so"), "{frames:#?}");
    }
    if !has_native(&document("host", &run.run)) {
        return skip(Refused::PerfEvents);
    }
    let stacks = sampled(&run.run, "victim_works");
    let mut of_libc = 0;
    let mut of_tprof = 0;
    for stack in &stacks {
        let at = stack.iter().position(|frame| frame == "victim_works").unwrap();
        assert!(!stack[..at].iter().any(|frame| is_own(frame)), "{stack:#?}");
        let inner = &stack[at + 1..];
        let real = inner.iter().position(|frame| frame.trim_start_matches('_') == "realloc");
        of_libc += usize::from(real == Some(0));
        // No function of tprof lies between the job's function and the C library's `realloc`.
        assert!(real.is_none_or(|at| !inner[..at].iter().any(|frame| is_own(frame))), "{stack:#?}");
        of_tprof += usize::from(inner.first().is_some_and(|frame| is_own(frame)));
    }
    // Each call costs time in tprof, which records an event, and in libc, so both must have
    // samples.
    assert!(of_libc > 0 && of_tprof > 0, "{of_libc} and {of_tprof} of {stacks:#?}");
}

#[test]
fn threads_of_python_begin_with_functions_of_the_interpreter() {
    let scratch = Scratch::new();
    let code = "import threading, time\n\
                def spin():\n\
                \x20   end = time.thread_time() + 0.3\n\
                \x20   while time.thread_time() < end:\n\
                \x20       sum(range(1000))\n\
                one = threading.Thread(target=spin)\n\
                one.start()\n\
                one.join()\n";
    let job = Job::new("/usr/bin/python3").arg("-c").arg(code);
    let run = traced(&job, &["--mem", "off"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    if !has_native(&document("host", &run.run)) {
        return skip(Refused::PerfEvents);
    }
    let stacks = sampled(&run.run, "spin");
    assert!(!stacks.is_empty());
    for stack in &stacks {
        assert!(!stack.iter().any(|frame| is_own(frame)), "{stack:#?}");
    }
    let report = document("cpu", &run.run);
    for tree in ["top_down", "bottom_up", "functions"] {
        let rows = report["tables"][tree].to_string();
        assert!(!rows.contains("thread_main"), "{tree}: {rows}");
    }
}
