//! Counts are exact with threads, too: with threads that end in every way, and threads that free
//! other threads' blocks.

use crate::sums::exact_in_threads;
use tprof_tests::{Expected, Job, Refused, Report, can_mount, need, program};

#[test]
fn allocations_in_the_destructors_of_a_thread_are_counted() {
    exact_in_threads(&Job::new(program("tls_keys")).arg("50"));
    exact_in_threads(&Job::new(program("tls_cxx")));
}

#[test]
fn every_end_of_a_thread_is_counted() {
    exact_in_threads(&Job::new(program("thread_ends")));
    exact_in_threads(&Job::new(program("thread_names")));
}

#[test]
fn threads_on_small_stacks_and_coroutines_are_counted() {
    exact_in_threads(&Job::new(program("small_stacks")));
    exact_in_threads(&Job::new(program("coroutines")));
}

#[test]
fn twelve_thousand_threads_are_counted() {
    exact_in_threads(&Job::new(program("many_threads")).args(["10000", "2000"]).limit(180));
}

#[test]
fn blocks_handed_over_between_threads_are_counted_with_their_peak() {
    let runs = ["1000", "200000"].map(|n| exact_in_threads(&Job::new(program("handover")).arg(n)));
    // The C library allocates the same for the program's only thread in both runs, so the
    // differences from the program's own sums must be equal.
    let rest = |(report, wanted): &(Report, Expected)| {
        [
            report.total("allocations") - wanted.allocations,
            report.total("frees") - wanted.frees,
            report.total("allocated_bytes") - wanted.bytes,
            report.total("live_at_exit_bytes") - wanted.live,
            report.total("peak_bytes") - wanted.peak,
        ]
    };
    let [few, many] = [rest(&runs[0]), rest(&runs[1])];
    assert_eq!(few, many, "allocations, frees, bytes, live, peak");
    assert!(few[4] == few[3] && (0..1024).contains(&few[4]), "{few:?}");
}

#[test]
fn a_full_dev_shm_loses_nothing() {
    need!(can_mount(), Refused::Mounts);
    let small = "mount -t tmpfs -o size=64m tmpfs /dev/shm && exec \"$@\"";
    exact_in_threads(
        &Job::new(program("shm_full")).under(["unshare", "-m", "sh", "-c", small, "sh"]),
    );
}

#[test]
fn exceptions_are_counted() {
    exact_in_threads(&Job::new(program("exceptions")));
}
