//! Tests of the rule MachineErrors.

use tprof_facts::machine_errors::MachineError;
use tprof_trace::model::{Counter, Mark, MarkKind, ProcessEnd, counter, property};

use super::super::outcome::Outcome;
use super::job::{Job, MS};

const WATCHED: &str = r#"{"kernel_log":null,"network":null,"are_pids_of_host":true}"#;

/// A job of 20 steps of 100 ms, of which the steps from `slow` on last 400 ms, for `count` steps.
fn job(slow: u64, count: u64) -> Job {
    let mut job = Job::new(0, 0);
    let mut start_ns = 0;
    for step in 0..20 {
        let is_slow = (slow..slow + count).contains(&step);
        let length_ns = if is_slow { 400 * MS } else { 100 * MS };
        job.range(start_ns, length_ns, &format!("ProfilerStep#{step}"));
        start_ns += length_ns;
    }
    job.fact(property::MACHINE, WATCHED);
    job
}

fn mark(job: &mut Job, time_ns: u64, error: &MachineError) {
    let name = job.fixture.name(&error.to_string());
    let kind = MarkKind::MachineError;
    job.fixture.writer.mark(Mark { time_ns, process: None, name, kind });
}

fn count(job: &mut Job, device: Option<u32>, name: &str, totals: &[(u64, f64)]) {
    let name = job.fixture.name(name);
    for &(time_ns, value) in totals {
        job.fixture.writer.counter(Counter { time_ns, process: None, device, name, value });
    }
}

fn kernel(line: &str) -> MachineError {
    MachineError::of_kernel_line(line).unwrap()
}

fn ask(job: Job) -> Outcome {
    job.ask("MachineErrors")
}

#[test]
fn an_error_in_a_slow_step_is_found_with_the_time_that_it_may_have_cost() {
    // Steps 10 and 11 last from 1.0 to 1.8 s.
    let server = kernel("nfs: server data-1 not responding, still trying");
    let mut slow = job(10, 2);
    mark(&mut slow, 1_200 * MS, &server);
    let outcome = ask(slow);
    let (finding, _) = &outcome.found[0];
    assert_eq!(
        finding.seen,
        "file server not responding (kernel): nfs: server data-1 not responding, still trying: once on \
         this host, after 1.20 s. What followed: step 10 took 400.0 ms, median 100.0 ms."
    );
    assert_eq!((finding.bound_ns, outcome.found.len()), (300 * MS, 1));
    // The same error in a step as long as the others.
    let mut usual = job(10, 2);
    mark(&mut usual, 500 * MS, &server);
    let outcome = ask(usual);
    assert!(outcome.found.is_empty(), "{outcome:?}");
    let clear = outcome.no_problem.unwrap();
    assert_eq!(
        clear,
        "nothing followed the machine's errors; tprof watched the kernel's log and the network"
    );
}

#[test]
fn a_lost_device_is_found_alone_and_is_critical_if_the_process_failed() {
    let mut alone = job(0, 0);
    mark(&mut alone, 500 * MS, &MachineError::xid(79, 0));
    let outcome = ask(alone);
    let (finding, _) = &outcome.found[0];
    assert_eq!(finding.what, "a GPU was lost");
    assert!(finding.seen.ends_with("Nothing failed after it in this rank."), "{}", finding.seen);
    assert_eq!(finding.share, Some(0.1));

    // The driver and the kernel tell of the same error.
    let mut failed = job(0, 0);
    let devices =
        r#"{"devices":[{"index":0,"pci":"00000000:3B:00.0","uuid":"GPU-0","errors":{}}]}"#;
    failed.fact("nvml", devices);
    mark(&mut failed, 500 * MS, &MachineError::xid(79, 0));
    let line = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.";
    mark(&mut failed, 510 * MS, &kernel(line));
    failed.fixture.writer.process_end(0, 2_500 * MS, ProcessEnd::Exited(1));
    let outcome = ask(failed);
    let [(finding, _)] = &outcome.found[..] else { panic!("{outcome:?}") };
    assert!(finding.seen.contains("once on this host"), "{}", finding.seen);
    assert!(finding.seen.contains("process 4711 ended with status 1, 2.00 s later"));
    assert_eq!(finding.share, Some(1.0));
}

#[test]
fn errors_that_were_corrected_or_are_of_another_device_are_not_found() {
    let mut noted = job(0, 0);
    mark(&mut noted, 500 * MS, &MachineError::xid(63, 0));
    // A program's own fault that nothing followed.
    mark(&mut noted, 500 * MS, &MachineError::xid(31, 0));
    count(&mut noted, Some(0), counter::GPU_ECC_CORRECTED, &[(400 * MS, 0.0), (500 * MS, 9.0)]);
    count(&mut noted, None, counter::TCP_RETRANSMITTED, &[(0, 0.0), (1_000 * MS, 900.0)]);
    assert!(ask(noted).found.is_empty());

    let mut other = job(0, 0).device(9);
    let uuid = other.fixture.name("GPU-0");
    let device = tprof_trace::model::Device { uuid, ..Default::default() };
    other.fixture.writer.device(&device);
    let devices =
        r#"{"devices":[{"index":5,"uuid":"GPU-5","errors":{}},{"index":6,"uuid":"GPU-0"}]}"#;
    other.fact("nvml", devices);
    mark(&mut other, 500 * MS, &MachineError::xid(79, 5));
    mark(&mut other, 600 * MS, &MachineError::xid(74, 6));
    let outcome = ask(other);
    let [(finding, _)] = &outcome.found[..] else { panic!("{outcome:?}") };
    assert_eq!(finding.what, "a link of NVLink failed");
}

#[test]
fn uncorrected_errors_that_only_a_counter_has_are_found_and_not_told_twice() {
    let rise = [(400 * MS, 0.0), (500 * MS, 2.0)];
    let mut counted = job(0, 0);
    count(&mut counted, Some(0), counter::GPU_ECC_UNCORRECTED, &rise);
    count(&mut counted, None, "infiniband_link_downed/mlx5_0:1", &rise);
    let whats = |outcome: Outcome| -> Vec<String> {
        outcome.found.into_iter().map(|(finding, _)| finding.what).collect()
    };
    assert_eq!(
        whats(ask(counted)),
        [
            "a link of the network went down",
            "the memory of a GPU had errors that could not be corrected"
        ]
    );
    let mut told = job(0, 0);
    count(&mut told, Some(0), counter::GPU_ECC_UNCORRECTED, &rise);
    mark(&mut told, 450 * MS, &MachineError::xid(48, 0));
    assert_eq!(whats(ask(told)), ["a GPU had a fault"]);
}

#[test]
fn packets_sent_again_are_found_only_where_slow_steps_have_clearly_more() {
    // Steps 10 and 11 last from 1.0 to 1.8 s.
    let of = |in_slow: f64| {
        let mut job = job(10, 2);
        let totals = [
            (0, 0.0),
            (1_000 * MS, 20.0),
            (1_800 * MS, 20.0 + in_slow),
            (2_600 * MS, 36.0 + in_slow),
        ];
        count(&mut job, None, counter::TCP_RETRANSMITTED, &totals);
        ask(job)
    };
    let outcome = of(800.0);
    let [(finding, places)] = &outcome.found[..] else { panic!("{outcome:?}") };
    assert_eq!(
        finding.seen,
        "TCP segments sent again on this host: 1000.0/s in slow steps and 20.0/s in the others, in 2 \
         slow steps. The slowest: step 10 took 400.0 ms, median 100.0 ms, and 1 more slow step."
    );
    assert_eq!((finding.bound_ns, places.len()), (600 * MS, 2));
    assert!(of(32.0).found.is_empty());
}

#[test]
fn a_killed_process_is_found_unless_the_cgroup_counted_the_kill() {
    let line =
        |pid| kernel(&format!("Out of memory: Killed process {pid} (train.py) total-vm:9kB"));
    let found = |pid, kills: Option<f64>| {
        let mut job = job(0, 0);
        mark(&mut job, 500 * MS, &line(pid));
        if let Some(kills) = kills {
            count(&mut job, None, counter::CGROUP_OOM_KILLS, &[(600 * MS, kills)]);
        }
        ask(job).found.len()
    };
    assert_eq!(found(4711, None), 1);
    assert_eq!(found(4711, Some(0.0)), 1);
    assert_eq!(found(4711, Some(1.0)), 0);
    assert_eq!(found(99, None), 0);
}

#[test]
fn another_programs_kill_counts_if_the_whole_machine_lacked_memory() {
    let found = |whose: &str| {
        let mut job = job(10, 2);
        let line = format!("{whose}ut of memory: Killed process 99 (other) total-vm:9kB");
        mark(&mut job, 1_200 * MS, &kernel(&line));
        ask(job).found.len()
    };
    assert_eq!((found("O"), found("Memory cgroup o")), (1, 0));
}

#[test]
fn without_a_watch_the_rule_is_not_checked() {
    let mut blind = Job::new(3, 100 * MS);
    blind.fact(property::MACHINE, r#"{"kernel_log":"denied","network":"denied"}"#);
    assert!(ask(blind).unchecked.is_some(), "nothing can be said of what nobody saw");
    assert!(Job::new(3, 100 * MS).ask("MachineErrors").unchecked.is_some());
    let mut denied = Job::new(3, 100 * MS);
    denied.fact(property::MACHINE, r#"{"kernel_log":"/dev/kmsg: denied","network":null}"#);
    let clear = ask(denied).no_problem.unwrap();
    assert_eq!(
        clear,
        "the machine reported no error; tprof watched the network; the kernel's log was not readable: /dev/kmsg: \
         denied"
    );
}
