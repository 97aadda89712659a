//! `tprof report host` divides a job's main thread in the same way as the job measures itself, and
//! names the lines.

use crate::planted::{Planted, seconds};
use tprof_tests::{EXACT, Job, Scratch, document, has_native_or_skip, program, traced};

#[test]
fn a_hot_line_of_python_has_its_time_on_a_core() {
    let Some(planted) = Planted::run("hot") else { return };
    planted.near(planted.lines("victim_spins", "cpu_ns", false), "cpu", 0.05);
    let here = planted.lines("victim_spins", "cpu_ns", true);
    assert!(here > 0.5 * planted.truth["cpu"], "{here}: {:#?}", planted.table("lines"));
    planted.is_found("HotFunction", "cpu", 0.05);
    planted.hardly(&["data", "gil", "lock", "file_io", "socket", "other", "unknown"]);
}

#[test]
fn waiting_for_a_worker_process_is_a_data_wait_at_its_line() {
    let Some(planted) = Planted::run("data") else { return };
    planted.near(planted.part("data"), "data", 0.1);
    planted.near(planted.lines("victim_takes", "wait_ns", true), "data", 0.1);
    planted.is_found("DataWait", "data", 0.1);
    planted.hardly(&["gil", "file_io", "socket", "collective", "unknown"]);
}

#[test]
fn contention_for_the_gil_is_not_a_lock_of_the_programs() {
    let Some(planted) = Planted::run("gil") else { return };
    // While the thread is off its core in the loop, it waits for the GIL or for a core; the other
    // threads end with it.
    let gil = planted.part("gil");
    let ready = planted.part("no_core");
    assert!(gil <= 1.1 * planted.truth["gil"] + 0.02, "{gil} of {:?}", planted.truth);
    let known = gil + ready + planted.part("unknown");
    assert!(known >= 0.9 * planted.truth["gil"], "{known} of {:?}", planted.truth);
    assert!(gil > 0.25 * planted.truth["gil"], "{gil} of {:?}", planted.truth);
    let waited = planted.lines("victim_contends", "wait_ns", false);
    assert!(waited > 0.9 * gil, "{waited} of {gil}: {:#?}", planted.table("lines"));
    planted.hardly(&["data", "file_io", "socket"]);
}

#[test]
fn a_lock_that_another_thread_holds_is_waited_for_at_its_line() {
    let Some(planted) = Planted::run("lock") else { return };
    planted.near(planted.lines("victim_locks", "wait_ns", true), "lock", 0.1);
    planted.is_found("LockContention", "lock", 0.1);
    planted.hardly(&["data", "file_io", "socket", "unknown"]);
}

#[test]
fn waits_of_30_ms_for_a_pipe_keep_their_line() {
    let Some(planted) = Planted::run("file") else { return };
    planted.near(planted.part("file_io"), "file_io", 0.1);
    planted.near(planted.lines("victim_reads", "wait_ns", true), "file_io", 0.1);
    planted.is_found("BlockingIo", "file_io", 0.1);
    planted.hardly(&["data", "gil", "lock", "socket", "unknown"]);
}

#[test]
fn waits_of_30_ms_for_a_peer_keep_their_line() {
    let Some(planted) = Planted::run("socket") else { return };
    planted.near(planted.part("socket"), "socket", 0.1);
    planted.near(planted.lines("victim_receives", "wait_ns", true), "socket", 0.1);
    planted.is_found("NetworkWait", "socket", 0.1);
    planted.hardly(&["data", "gil", "file_io", "unknown"]);
}

/// Waits as short as these end before the sampler has noticed them, so the place that it reads may
/// belong to another wait. The fewer places it could read, the larger the error that the report
/// prints.
#[test]
fn short_waits_of_two_lines_keep_their_lines() {
    let Some(planted) = Planted::run("naps") else { return };
    planted.near(planted.part("other"), "other", 0.1);
    for (function, key) in [("victim_naps_long", "long"), ("victim_naps_short", "short")] {
        let found = planted.lines(function, "wait_ns", false);
        let error = planted.error(function) / planted.truth[key];
        assert!(error < 1.0, "{key}: {error}: {:#?}", planted.host);
        planted.near(found, key, 0.15 + error);
    }
}

/// Two switches within a few microseconds make the kernel take hundreds of samples afterwards,
/// which must not hide the waits.
#[test]
fn waits_after_a_burst_of_switches_keep_their_places() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("burst_naps")), &["--activities", "cpu"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let host = document("host", &run.run);
    if !has_native_or_skip(&host) {
        return;
    }
    let parts = host["tables"]["parts"].as_array().unwrap();
    let of = |part| parts.iter().find(|row| row["part"] == part).map_or(0.0, seconds("wall_ns"));
    assert!(of("other") > 1.0 && of("unknown") < 0.1 * of("other"), "{parts:#?}");
}

#[test]
fn time_without_a_free_core_is_a_part_of_its_own() {
    let Some(planted) = Planted::run("core") else { return };
    planted.near(planted.part("no_core"), "no_core", 0.1);
    if !planted.others_had_the_cores() {
        planted.is_found("NoFreeCore", "no_core", 0.1);
    }
    planted.near(planted.lines("victim_spins", "cpu_ns", false), "cpu", 0.1);
    planted.hardly(&["data", "gil", "lock", "socket", "unknown"]);
}

#[test]
fn start_up_is_a_part_of_its_own_and_names_the_slow_module() {
    let Some(planted) = Planted::run("imports") else { return };
    let start_up = seconds("wall_ns")(&planted.table("start_up")[0]);
    assert!(start_up >= 0.95 * planted.truth["start_up"], "{start_up} of {:?}", planted.truth);
    let modules = planted.table("imports").iter();
    let slow = modules.filter(|row| row["module"] == "victim_slow").map(seconds("wall_ns")).sum();
    // The module's part is between the start-up's CPU time and its wall time, because ready time
    // has a stack only if it is long.
    let (cpu, wall) = (planted.truth["imported"], planted.truth["start_up"]);
    assert!((0.9 * cpu..=1.1 * wall).contains(&slow), "{slow} of {cpu} to {wall}");
    planted.near(planted.running(), "after", 0.1);
}

/// Three threads on two processors make records faster than the collector reads them, so they wait
/// for room in their rings.
#[test]
fn waiting_for_tprof_is_not_a_wait_of_the_thread() {
    let scratch = Scratch::new();
    let job = Job::sh("printf 1 | \"$1\" 1500000 2").arg(program("bursts"));
    let run = traced(&job, EXACT, &scratch);
    assert_eq!(run.outcome.code, Some(48), "{:?}", run.outcome);
    let host = document("host", &run.run);
    if !has_native_or_skip(&host) {
        return;
    }
    let places = host["tables"]["places"].as_array().unwrap();
    let text = |row: &serde_json::Value, key| row[key].as_str().unwrap_or_default().to_owned();
    let waits = ["tprof", "lock", "other", "file_io", "socket"];
    let in_tprof = |row: &&serde_json::Value| {
        waits.contains(&&*text(row, "part")) && text(row, "library").starts_with("libtprof")
    };
    let parts: Vec<_> = places.iter().filter(in_tprof).map(|row| text(row, "part")).collect();
    assert!(!parts.is_empty() && parts.iter().all(|part| part == "tprof"), "{places:#?}");
}
