//! Tests on traces that begin in the middle of a job.

use tprof_trace::model::Kernel;

use super::job::{Job, MS, US, judged};

/// Builds a step of 1 s. The host launches two kernels at once. The first one begins only after 493
/// ms, so the device probably ran work that the trace lacks. After that the device is busy.
fn cropped() -> Job {
    let mut job = Job::new(1, 1000 * MS);
    job.kernel(0, 493 * MS, 700 * MS, "first");
    job.kernel(10 * US, 700 * MS, 1000 * MS, "second");
    job
}

#[test]
fn idle_time_behind_unrecorded_work_is_not_judged() {
    for rule in ["GpuGaps", "LowUtilization", "LaunchBound", "SyncBound"] {
        let outcome = cropped().ask(rule);
        assert!(outcome.found.is_empty(), "{rule}: {outcome:?}");
    }
    let file = cropped().fixture.finish();
    // The launch takes 1 us, and its work may take another 100 us to arrive. What the device did
    // after that, until the kernel began, is unknown.
    assert_eq!(judged(&file, "rank 0").unknown_ns, 493 * MS - 101 * US);
}

#[test]
fn the_same_idle_time_after_recorded_work_is_a_gap() {
    let mut job = Job::new(1, 1000 * MS);
    job.kernel(0, 5 * US, 100 * MS, "first");
    job.kernel(10 * US, 593 * MS, 1000 * MS, "second");
    assert_eq!(job.bound("GpuGaps"), Some(493 * MS));
    // A stream that is first used later has no unknown beginning either.
    let mut job = Job::new(1, 1000 * MS);
    job.kernel(0, 5 * US, 100 * MS, "first");
    let row = Kernel { start_ns: 593 * MS, stream: 20, ..Kernel::default() };
    job.kernel_of(50 * MS, row, 1000 * MS, "second");
    assert_eq!(job.bound("GpuGaps"), Some(493 * MS));
}

#[test]
fn a_wait_at_the_start_may_be_for_unrecorded_work() {
    let mut job = Job::new(1, 1000 * MS);
    job.call(0, 493 * MS, "cudaDeviceSynchronize");
    job.kernel(493 * MS, 493 * MS + 5 * US, 1000 * MS, "k");
    let file = job.fixture.finish();
    let findings = judged(&file, "rank 0");
    assert_eq!(findings.unknown_ns, 493 * MS);
    assert!(findings.outcomes.iter().all(|outcome| outcome.found.is_empty()));
}

#[test]
fn a_host_that_launches_late_at_the_start_makes_a_gap() {
    let mut job = Job::new(1, 1000 * MS);
    job.kernel(493 * MS, 493 * MS + 5 * US, 1000 * MS, "k");
    assert_eq!(job.bound("GpuGaps"), Some(493 * MS + 5 * US));
}

#[test]
fn gaps_between_work_launched_before_the_trace_are_not_judged() {
    let mut job = Job::new(1, 1000 * MS);
    for (start_ns, correlation) in [(0, 901), (300 * MS, 902)] {
        let duration_ns = 10 * MS;
        let correlation = Some(correlation);
        job.fixture.kernel(Kernel { start_ns, duration_ns, correlation, ..Kernel::default() }, "k");
    }
    job.kernel(309 * MS, 310 * MS, 1000 * MS, "k");
    let file = job.fixture.finish();
    let findings = judged(&file, "rank 0");
    // On the device, the step begins only when the device is done with these kernels. So the gaps
    // lie outside of the window.
    assert_eq!((findings.unknown_ns, findings.window_ns), (0, 690 * MS));
    assert!(
        findings.outcomes.iter().all(|outcome| outcome.found.is_empty()),
        "{:?}",
        findings.outcomes
    );
}
