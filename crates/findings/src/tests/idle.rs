//! Tests of LowUtilization, GpuGaps and LaunchBound.

use super::job::{Job, MS, US};

#[test]
fn kernels_that_are_launched_one_by_one_are_launch_bound() {
    // Ten kernels with gaps of `gap_us` before them. The host launches each one only shortly before
    // it starts.
    let job = |gap_us: u64| {
        let mut job = Job::new(1, 10 * MS);
        for at in 0..10 {
            let (start, end) = (at * MS + gap_us * US, (at + 1) * MS);
            job.kernel(start - 2 * US, start, end, "k");
        }
        job
    };
    // The gap before the first kernel counts too, so there are ten gaps of 100 us.
    assert_eq!(job(100).bound("LaunchBound"), Some(10 * 100 * US));
    assert_eq!(job(9).bound("LaunchBound"), None, "0.9 % of a step");
}

#[test]
fn only_the_launching_part_of_a_gap_is_launch_bound() {
    let mut job = Job::new(1, 10 * MS);
    for at in 0..5 {
        let start = 2 * at * MS + MS;
        job.range(start - MS, 800 * US, "Python GC");
        job.kernel(start - 2 * US, start, start + MS, "k");
    }
    let outcome = job.ask("LaunchBound");
    let (finding, _) = &outcome.found[0];
    assert_eq!(finding.bound_ns, 5 * 200 * US);
    assert!(finding.seen.contains("the median gap is 200.0 us"), "{}", finding.seen);
}

#[test]
fn pinning_memory_in_steps_has_its_own_text() {
    let mut job = Job::new(10, 10 * MS);
    for step in 0..10 {
        let at = step * 10 * MS;
        job.call(at, 2 * MS, "cudaHostAlloc");
        job.kernel(at + 2 * MS, at + 2 * MS + 10 * US, at + 10 * MS, "k");
    }
    let outcome = job.ask("DeviceAllocations");
    let (finding, _) = &outcome.found[0];
    assert_eq!(finding.what, "the driver pins and releases host memory");
    assert!(finding.seen.contains("cudaHostAlloc"), "{}", finding.seen);
    assert!(finding.bound_ns >= 10 * 2 * MS, "{}", finding.bound_ns);
}

#[test]
fn a_gap_before_work_that_was_already_launched_is_not_launch_bound() {
    let mut job = Job::new(1, 10 * MS);
    job.kernel(0, 0, 4 * MS, "k");
    job.kernel(MS, 4 * MS + 900 * US, 10 * MS, "k");
    assert_eq!(job.bound("LaunchBound"), None);
}

#[test]
fn a_long_gap_has_the_range_in_which_the_host_was() {
    let job = |gap_us: u64| {
        let mut job = Job::new(1, 100 * MS);
        job.busy(0, 40 * MS);
        let start = 40 * MS + gap_us * US;
        job.range(40 * MS, gap_us * US, "save checkpoint");
        job.kernel(start - 2 * US, start, 100 * MS, "k");
        job
    };
    let outcome = job(5000).ask("GpuGaps");
    let (finding, places) = &outcome.found[0];
    assert_eq!((finding.bound_ns, finding.places), (5 * MS, 1));
    assert!(finding.seen.contains("save checkpoint (5.0 ms)"), "{}", finding.seen);
    assert_eq!((places[0].start_ns, places[0].end_ns), (40 * MS, 45 * MS));
    // Gaps are reported from 1 % of a step on, which is 1 ms here.
    assert_eq!(job(1000).bound("GpuGaps"), Some(MS));
    assert_eq!(job(999).bound("GpuGaps"), None);
    assert_eq!(
        job(999).ask("GpuGaps").no_problem.unwrap(),
        "no gap of 1.0 ms or more in the steps"
    );
}

#[test]
fn a_long_gap_of_launched_work_differs_from_a_late_host() {
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 40 * MS);
    job.kernel(MS, 60 * MS, 100 * MS, "k");
    let seen = &job.ask("GpuGaps").found[0].0.seen;
    assert!(seen.contains("For 20.0 ms of this time the next work was launched already"), "{seen}");
    assert!(!seen.contains("host had launched nothing"), "{seen}");
}

#[test]
fn parts_that_are_idle_for_over_half_have_low_utilization() {
    // A step of 30 ms, which the rule divides into 30 parts. The device is idle for `idle_us` of
    // the fourth part.
    let job = |idle_us: u64| {
        let mut job = Job::new(1, 30 * MS);
        job.busy(0, 3 * MS);
        job.busy(3 * MS + idle_us * US, 30 * MS);
        job
    };
    assert_eq!(job(600).bound("LowUtilization"), Some(600 * US));
    assert_eq!(job(500).bound("LowUtilization"), None);
}

#[test]
fn without_a_device_rules_about_devices_are_unchecked() {
    for rule in ["LowUtilization", "GpuGaps", "LaunchBound", "SyncBound", "SmallBatches"] {
        let unchecked = Job::new(1, MS).ask(rule).unchecked.unwrap();
        assert_eq!(unchecked.why, "no kernel, copy or memset was recorded", "{rule}");
    }
}

#[test]
fn without_calls_a_launch_cannot_be_late() {
    let mut job = Job::new(0, MS);
    let row = tprof_trace::model::Kernel { duration_ns: MS, ..Default::default() };
    job.fixture.kernel(row, "k");
    let unchecked = job.ask("LaunchBound").unchecked.unwrap();
    assert_eq!(unchecked.why, "which call launched which kernel was not recorded");
}

#[test]
fn calls_with_unknown_names_leave_rules_on_calls_unchecked() {
    for rule in ["SyncBound", "DeviceAllocations"] {
        let mut job = Job::new(1, 10 * MS);
        job.fixture.call(0, 0, US, "urEnqueueKernelLaunch", 77);
        let row = tprof_trace::model::Kernel {
            start_ns: 2 * US,
            duration_ns: MS,
            correlation: Some(77),
            ..Default::default()
        };
        job.fixture.kernel(row, "k");
        let unchecked = job.ask(rule).unchecked.unwrap();
        assert_eq!(unchecked.why, "no CUDA or HIP runtime call was recorded", "{rule}");
    }
}
