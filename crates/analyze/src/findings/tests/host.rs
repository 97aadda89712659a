//! DataLoadBound, SyncBound, DeviceAllocations, Recompilation.

use super::job::{Job, MS, US};

const NEXT: &str = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";

/// A step of 100 ms: 10 ms of loading, of which the device is idle for the last.
fn loading(idle_us: u64) -> Job {
    let mut job = Job::new(1, 100 * MS);
    job.range(10 * MS, 10 * MS, NEXT);
    job.busy(0, 20 * MS - idle_us * US);
    job.kernel(20 * MS, 20 * MS + 10 * US, 100 * MS, "k");
    job
}

#[test]
fn a_device_that_is_idle_while_data_is_loaded_waits_for_it() {
    let outcome = loading(8000).ask("DataLoadBound");
    let (finding, places) = &outcome.found[0];
    // Idle for 8.01 ms, less than the loading takes.
    assert_eq!(finding.bound_ns, 8 * MS + 10 * US);
    assert!(finding.seen.contains("idle for 8.0 ms a step (8.0 %)"), "{}", finding.seen);
    assert_eq!((places[0].thread, places[0].process), (Some(4712), Some(4711)));
    let clear = loading(900).ask("DataLoadBound").clear.unwrap();
    assert_eq!(clear, "loading takes 10.0 ms a step; the device waits for 900.0 us of it");
}

#[test]
fn idle_time_without_a_range_that_loads_is_undecided() {
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 50 * MS);
    job.kernel(60 * MS, 60 * MS, 100 * MS, "k");
    assert!(job.ask("DataLoadBound").undecided.is_some());
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 100 * MS);
    let clear = job.ask("DataLoadBound").clear.unwrap();
    assert_eq!(clear, "the device hardly waits for the host");
}

#[test]
fn a_job_without_a_device_waits_for_its_data_too() {
    let mut job = Job::new(1, 100 * MS);
    job.range(20 * MS, 30 * MS, NEXT);
    assert_eq!(job.bound("DataLoadBound"), Some(30 * MS));
}

/// A step of 100 ms in which the host waits for the first kernel, and launches
/// the next one only afterwards.
fn waiting(gap_us: u64) -> Job {
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 50 * MS);
    job.range(4 * MS, 47 * MS, "aten::item");
    job.call(5 * MS, 45 * MS + US, "cudaStreamSynchronize");
    let start = 50 * MS + gap_us * US;
    job.kernel(start - 2 * US, start, 100 * MS, "k");
    job
}

#[test]
fn a_wait_after_which_the_device_is_idle_binds() {
    let outcome = waiting(10_000).ask("SyncBound");
    let finding = &outcome.found[0].0;
    // The host waits for 45 ms, but the device is idle for only 10 of them.
    assert_eq!(finding.bound_ns, 10 * MS);
    assert!(finding.seen.contains("aten::item (45.0 ms)"), "{}", finding.seen);
    let clear = waiting(900).ask("SyncBound").clear.unwrap();
    assert_eq!(clear, "waits of 45.0 ms a step; the device then idles for 900.0 us");
}

#[test]
fn gaps_after_a_wait_are_not_launch_bound() {
    assert_eq!(waiting(999).bound("LaunchBound"), None);
}

#[test]
fn calls_for_device_memory_are_gained_at_most() {
    let job = |long_us: u64| {
        let mut job = Job::new(1, 100 * MS);
        job.busy(0, 100 * MS);
        job.call(10 * MS, long_us * US, "cudaMalloc");
        job.call(10 * MS + long_us * US / 2, long_us * US, "cudaFree");
        job
    };
    // They overlap by half, and count once.
    assert_eq!(job(2000).bound("DeviceAllocations"), Some(3 * MS));
    assert_eq!(job(600).bound("DeviceAllocations"), None, "0.9 % of a step");
}

#[test]
fn code_that_is_loaded_after_the_first_step_is_compiled_again() {
    let job = |at: u64, long_us: u64| {
        let mut job = Job::new(2, 100 * MS);
        job.busy(0, 200 * MS);
        job.call(at, long_us * US, "cuModuleLoadData");
        job
    };
    assert_eq!(job(150 * MS, 5000).bound("Recompilation"), Some(5 * MS));
    assert_eq!(job(150 * MS, 1999).bound("Recompilation"), None, "below 1 % of two steps");
    let first = job(50 * MS, 5000).ask("Recompilation");
    assert_eq!(first.clear.unwrap(), "no step after the first compiles or loads code");
}

#[test]
fn a_trace_that_cannot_show_compilation_says_so() {
    let mut job = Job::new(2, 100 * MS);
    job.busy(0, 200 * MS);
    let said = job.ask("Recompilation").undecided.unwrap();
    assert_eq!(said.why, "nothing in the trace would show compilation");
    let mut job = Job::new(1, 100 * MS);
    job.busy(0, 100 * MS);
    let said = job.ask("Recompilation").undecided.unwrap();
    assert_eq!(said.why, "a first step cannot be told from later ones");
}
