//! Counts are exact: a victim's own sums and the report are the same numbers.

use crate::sums::{Recorded, exact, exact_in_threads, exact_when_sampled, recorded, same};
use tprof_tests::{
    DEFAULT, EXACT, Job, Kind, Scratch, build, expected, memory_report, need, need_some, program,
    report, traced,
};

/// Ways to leave in which the C library allocates nothing itself.
const WAYS: [&str; 10] = [
    "return",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "exit_group",
    "abort",
    "kill",
    "term",
    "segv",
];

#[test]
fn counts_are_exact_however_a_process_leaves() {
    for how in WAYS {
        let report = exact(&Job::new(program("leave")).args([how, "1000", "600"]));
        assert_eq!(report.0["processes"].as_array().unwrap().len(), 1, "{how}");
    }
}

#[test]
fn sampled_totals_are_exact_however_a_process_leaves() {
    for how in WAYS {
        exact_when_sampled(&Job::new(program("leave")).args([how, "1000", "600"]));
    }
}

/// The first `pthread_exit` loads libgcc_s, for which the C library allocates. These allocations
/// don't depend on what the victim does, so the test compares two runs.
#[test]
fn a_main_thread_that_calls_pthread_exit_is_counted_exactly() {
    for options in [EXACT, DEFAULT] {
        let rest = [["0", "0"], ["1000", "600"]].map(|counts| {
            let job = Job::new(program("leave")).arg("pthread_exit").args(counts);
            let Recorded { run, wanted, _scratch } = recorded(&job, options);
            let report = report(&run);
            assert_eq!(report.lost(), 0, "{}", report.0["completeness"]);
            [
                report.total("allocations") - wanted.allocations,
                report.total("frees") - wanted.frees,
                report.total("allocated_bytes") - wanted.bytes,
            ]
        });
        assert_eq!(rest[0], rest[1], "allocations, frees, bytes; {options:?}");
    }
}

#[test]
fn a_process_with_at_most_one_allocation_is_counted_exactly() {
    exact(&Job::new(program("leave")).args(["exit", "0", "0"]));
    exact(&Job::new(program("leave")).args(["kill", "1", "0"]));
}

#[test]
fn a_killed_process_with_full_rings_is_counted() {
    let job = Job::new(program("leave")).args(["kill", "400000", "300000"]);
    exact(&job);
    exact_when_sampled(&job);
}

#[test]
fn counts_do_not_depend_on_stacks() {
    for stacks in ["off", "fp", "dwarf"] {
        let scratch = Scratch::new();
        let job = Job::new(program("leave")).args(["kill", "5000", "3000"]);
        let run = traced(&job, &["--mem", "exact", "--stacks", stacks], &scratch);
        same(&report(&run.run), expected(&run.outcome.stdout), &job);
    }
}

/// Defines tests of single-threaded victims whose only allocations are their own.
macro_rules! exactly {
    ($($fact:ident: $job:expr;)*) => { $(
        #[test]
        fn $fact() {
            let job = $job;
            exact(&job);
            exact_when_sampled(&job);
        }
    )* };
}

exactly! {
    every_allocator_function_is_counted_once: Job::new(program("families")).arg("100");
    constructors_and_destructors_are_counted: Job::new(program("constructors"));
    all_processes_are_counted: Job::new(program("fork"));
    vfork_and_exec_are_counted: Job::new(program("vfork_exec"));
    handlers_on_an_alternate_stack_are_counted: Job::new(program("altstack"));
    handlers_that_interrupt_a_hook_are_counted: Job::new(program("handler_malloc")).args(["500", "expect"]);
    deep_recursion_is_counted: Job::new(program("deep"));
    counting_goes_on_without_descriptors: Job::new(program("close_fds")).arg("range");
}

#[test]
fn all_images_of_a_process_are_counted() {
    // The last image but one makes a thread, for which the C library allocates.
    let job = Job::new(program("exec_self"));
    let (report, _) = exact_in_threads(&job);
    let Recorded { run, _scratch, .. } = recorded(&job, DEFAULT);
    assert_eq!(self::report(&run).total("allocations"), report.total("allocations"));
}

#[test]
fn events_after_a_jump_out_of_a_hook_are_counted() {
    let Recorded { run, wanted, _scratch } = recorded(&Job::new(program("handler_jump")), EXACT);
    let sites = memory_report(&run).sites(|frame| frame.starts_with("victim_take"));
    let sum = |name: &str| sites.iter().map(|site| site[name].as_i64().unwrap()).sum::<i64>();
    assert_eq!(
        (sum("allocations"), sum("bytes"), sum("live_bytes")),
        (wanted.allocations, wanted.bytes, wanted.live)
    );
}

#[test]
fn operators_new_and_delete_are_counted_once() {
    for kind in [Kind::Plain, Kind::StaticCxx] {
        let job = Job::new(need_some!(build("operators", kind)));
        let Recorded { run, wanted, _scratch } = recorded(&job, EXACT);
        let report = memory_report(&run);
        assert_eq!(report.lost(), 0);
        assert_eq!(report.in_victims("allocations"), wanted.allocations, "{kind:?}");
        assert_eq!(report.in_victims("live_bytes"), wanted.live, "{kind:?}");
        assert_eq!(report.in_victims("bytes"), wanted.bytes, "{kind:?}");
        // libstdc++ allocates its emergency pool and never frees it.
        assert_eq!(report.total("frees"), wanted.frees, "{kind:?}");
    }
}

#[test]
fn musl_programs_are_counted() {
    let program = need_some!(build("leave", Kind::Musl));
    for how in ["exit", "kill", "_exit"] {
        let job = Job::new(&program).args([how, "1000", "600"]);
        let Recorded { run, wanted, _scratch } = recorded(&job, EXACT);
        let report = memory_report(&run);
        if let Some(why) = report.blind("leave") {
            assert!(!why.is_empty());
            continue;
        }
        same(&report, wanted, &job);
    }
}

#[test]
fn a_preloaded_allocator_is_counted() {
    let library = format!("/usr/lib/{}-linux-gnu/libjemalloc.so.2", std::env::consts::ARCH);
    need!(std::fs::exists(&library).unwrap_or(false), "libjemalloc is not installed");
    let job = Job::new(program("leave")).args(["kill", "1000", "600"]).env("LD_PRELOAD", library);
    let Recorded { run, wanted, _scratch } = recorded(&job, EXACT);
    let report = memory_report(&run);
    assert_eq!(report.in_victims("allocations"), wanted.allocations);
    assert_eq!(report.in_victims("live_bytes"), wanted.live);
}

#[test]
fn every_exec_is_followed() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("exec_forms")), EXACT, &scratch);
    let report = memory_report(&run.run);
    // No hook can interpose a bare system call. tprof follows the new image nevertheless, because
    // the image inherits the environment.
    assert_eq!(report.in_victims("allocations"), 10);
    assert_eq!(report.in_victims("bytes"), 1230);
    let run = traced(&Job::new(program("spawn")), EXACT, &scratch);
    assert_eq!(memory_report(&run.run).in_victims("allocations"), 8 * 20);
}

#[test]
fn mapped_bytes_are_the_programs_own_sums() {
    for options in [EXACT, DEFAULT] {
        let scratch = Scratch::new();
        let run = traced(&Job::new(program("maps")), options, &scratch);
        let report = memory_report(&run.run);
        let maps = &report.only()["maps"];
        for word in run.outcome.stdout.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap();
            assert_eq!(maps[name].as_i64(), Some(value.parse().unwrap()), "{name} in {maps}");
        }
    }
}

#[test]
fn a_process_under_seccomp_is_recorded_or_reported_as_blind() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("seccomp")).arg("strict"), EXACT, &scratch);
    let report = memory_report(&run.run);
    // The 100,001 blocks are recorded, or counted as lost, or the process is reported as partly
    // blind.
    let seen = report.total("allocations") + report.lost();
    let blind = report.blind("seccomp").is_some();
    assert!(seen >= 100_001 || blind, "seen {seen}: {}", report.0["completeness"]);
}
