//! Traces that begin in the middle of a job.

use tprof_trace::model::Kernel;

use super::job::{Job, MS, US, judged};

/// Builds a step of 1 s. Two kernels are launched at once and wait for 493 ms for something that
/// the trace lacks; after that the device is busy.
fn cropped() -> Job {
    let mut job = Job::new(1, 1000 * MS);
    job.kernel(0, 493 * MS, 700 * MS, "first");
    job.kernel(10 * US, 700 * MS, 1000 * MS, "second");
    job
}

#[test]
fn work_that_waits_for_what_the_trace_lacks_costs_nothing() {
    for rule in ["GpuGaps", "LowUtilization", "LaunchBound", "SyncBound"] {
        let outcome = cropped().ask(rule);
        assert!(outcome.found.is_empty(), "{rule}: {outcome:?}");
    }
    let file = cropped().fixture.finish();
    // Nothing is known about the queue until the first launch had time to arrive, 100 us.
    assert_eq!(judged(&file, "rank 0").unknown_ns, 493 * MS - 101 * US);
}

#[test]
fn later_the_same_wait_is_a_gap() {
    let mut job = Job::new(1, 1000 * MS);
    job.kernel(0, 5 * US, 100 * MS, "first");
    job.kernel(10 * US, 593 * MS, 1000 * MS, "second");
    assert_eq!(job.bound("GpuGaps"), Some(493 * MS));
    // Another stream that joins later has no unknown beginning either.
    let mut job = Job::new(1, 1000 * MS);
    job.kernel(0, 5 * US, 100 * MS, "first");
    let row = Kernel { start_ns: 593 * MS, stream: 20, ..Kernel::default() };
    job.kernel_of(50 * MS, row, 1000 * MS, "second");
    assert_eq!(job.bound("GpuGaps"), Some(493 * MS));
}

#[test]
fn a_wait_that_is_open_at_the_start_waits_for_what_the_trace_lacks() {
    let mut job = Job::new(1, 1000 * MS);
    job.call(0, 493 * MS, "cudaDeviceSynchronize");
    job.kernel(493 * MS, 493 * MS + 5 * US, 1000 * MS, "k");
    let file = job.fixture.finish();
    let findings = judged(&file, "rank 0");
    assert_eq!(findings.unknown_ns, 493 * MS);
    assert!(findings.outcomes.iter().all(|outcome| outcome.found.is_empty()));
}

#[test]
fn a_host_that_is_late_from_the_start_is_still_late() {
    let mut job = Job::new(1, 1000 * MS);
    job.kernel(493 * MS, 493 * MS + 5 * US, 1000 * MS, "k");
    assert_eq!(job.bound("GpuGaps"), Some(493 * MS + 5 * US));
}

#[test]
fn gaps_between_work_from_before_the_trace_are_nobodys() {
    let mut job = Job::new(1, 1000 * MS);
    for (start_ns, correlation) in [(0, 901), (300 * MS, 902)] {
        let duration_ns = 10 * MS;
        let correlation = Some(correlation);
        job.fixture.kernel(Kernel { start_ns, duration_ns, correlation, ..Kernel::default() }, "k");
    }
    job.kernel(309 * MS, 310 * MS, 1000 * MS, "k");
    let file = job.fixture.finish();
    let findings = judged(&file, "rank 0");
    // The device had reached the step once it was done with these kernels.
    assert_eq!((findings.unknown_ns, findings.window_ns), (0, 690 * MS));
    assert!(
        findings.outcomes.iter().all(|outcome| outcome.found.is_empty()),
        "{:?}",
        findings.outcomes
    );
}
