//! `tprof report host` divides a job's main thread as the job measures itself, and names the
//! lines.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tprof_tests::{Job, Refused, Scratch, document, skip, traced};

/// A planted job's report, and what it measured itself, in seconds.
struct Planted {
    host: Value,
    findings: Value,
    truth: HashMap<String, f64>,
    source: String,
    way: &'static str,
}

/// Parts in which a thread is on a core.
const RUNNING: [&str; 5] = ["python", "native", "allocator", "page_fault", "gc"];

impl Planted {
    fn run(way: &'static str) -> Option<Planted> {
        let script: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/planted.py");
        if !Path::new("/usr/bin/python3").exists() {
            skip("there is no /usr/bin/python3");
            return None;
        }
        let scratch = Scratch::new();
        let job = Job::new("/usr/bin/python3").arg("-B").arg(&script).arg(way);
        let run = traced(&job, &["--mem", "off"], &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let expected = run.outcome.stdout.lines().filter_map(|line| line.strip_prefix("expect "));
        let pairs = expected.map(|pair| pair.split_once('=').unwrap());
        let truth = pairs.map(|(key, s)| (key.to_owned(), s.parse().unwrap())).collect();
        let host = document("host", &run.run);
        let blind = host["completeness"]["blind"].as_array().unwrap();
        if blind.iter().any(|entry| entry["what"] == "CPU samples of native code") {
            skip(Refused::PerfEvents);
            return None;
        }
        let source = std::fs::read_to_string(&script).unwrap();
        let findings = document("findings", &run.run);
        let planted = Planted { host, findings, truth, source, way };
        planted.parts_add_up();
        Some(planted)
    }

    fn table(&self, name: &str) -> &[Value] {
        self.host["tables"][name].as_array().map_or(&[], Vec::as_slice)
    }

    fn parts_add_up(&self) {
        let sum: u64 = self.table("parts").iter().map(|row| row["wall_ns"].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), self.table("drivers")[0]["wall_ns"].as_u64(), "{:#?}", self.host);
        let places: f64 = self.table("places").iter().map(seconds("wall_ns")).sum();
        assert!((places - sum as f64 / 1e9).abs() < 0.05 * places, "{places} {sum}");
    }

    /// Seconds of a part.
    fn part(&self, part: &str) -> f64 {
        let of = self.table("parts").iter().filter(|row| row["part"] == part);
        of.map(seconds("wall_ns")).sum()
    }

    fn running(&self) -> f64 {
        RUNNING.iter().map(|part| self.part(part)).sum()
    }

    /// Seconds of lines of a function, or only of the planted line.
    fn lines(&self, function: &str, key: &'static str, only_here: bool) -> f64 {
        let line = self.here().unwrap_or(0);
        assert!(line > 0 || !only_here, "no line is marked for {}", self.way);
        let of = self.table("lines").iter().filter(|row| {
            row["function"] == function
                && row["file"].as_str().unwrap().ends_with("programs/planted.py")
                && (!only_here || row["line"] == line)
        });
        of.map(seconds(key)).sum()
    }

    #[track_caller]
    fn near(&self, found: f64, key: &str, share: f64) {
        let truth = self.truth[key];
        // A sample stands for 10 ms, and the edges of start-up are as fine as that.
        let most = (share * truth).max(0.02);
        assert!((found - truth).abs() <= most, "{key}: {found} of {truth}: {:#?}", self.host);
    }

    /// The first finding but of what the machine's load and any start make is this rule's, of
    /// that size, and on the planted line, if it names one.
    #[track_caller]
    fn is_found(&self, rule: &str, key: &str, share: f64) {
        let findings = self.findings["tables"]["findings"].as_array().unwrap();
        let of_machine = |row: &&Value| row["rule"] == "NoFreeCore" || row["rule"] == "StartUp";
        let first = findings.iter().find(|row| row["rule"] == rule || !of_machine(row));
        let first = first.unwrap_or_else(|| panic!("nothing is found: {:#?}", self.findings));
        assert_eq!(first["rule"], rule, "{findings:#?}");
        self.near(seconds("gain_total_ns")(first), key, share);
        if !first["line"].is_null() {
            assert_eq!(first["line"].as_u64(), self.here(), "{first:#?}");
            assert!(first["file"].as_str().unwrap().ends_with("programs/planted.py"), "{first:#?}");
        }
        // What was not planted is not found.
        let planted = ["DataWait", "GilContention", "LockContention", "BlockingIo"];
        let others = findings
            .iter()
            .filter(|row| row["rule"] != rule && planted.iter().any(|other| row["rule"] == *other));
        let others: Vec<&Value> =
            others.filter(|row| row["gain_share"].as_f64().unwrap() > 0.05).collect();
        assert!(others.is_empty(), "{others:#?}");
    }

    /// Number of the planted line.
    fn here(&self) -> Option<u64> {
        let here = format!("# HERE {}", self.way);
        let line = self.source.lines().position(|line| line.ends_with(&here))?;
        Some(line as u64 + 1)
    }

    /// Waits of other parts are a small share of the wall time.
    #[track_caller]
    fn hardly(&self, parts: &[&str]) {
        let wall = seconds("wall_ns")(&self.table("drivers")[0]);
        for part in parts {
            assert!(self.part(part) < 0.05 * wall, "{part}: {:#?}", self.table("parts"));
        }
    }
}

fn seconds(key: &'static str) -> impl Fn(&Value) -> f64 {
    move |row| row[key].as_f64().unwrap_or_else(|| panic!("no {key}: {row}")) / 1e9
}

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
fn waiting_for_a_worker_process_is_waiting_for_data_at_the_line_that_takes_it() {
    let Some(planted) = Planted::run("data") else { return };
    planted.near(planted.part("data"), "data", 0.1);
    planted.near(planted.lines("victim_takes", "wait_ns", true), "data", 0.1);
    planted.is_found("DataWait", "data", 0.1);
    planted.hardly(&["gil", "file_io", "socket", "collective", "unknown"]);
}

#[test]
fn contention_for_the_gil_is_not_a_lock_of_the_programs() {
    let Some(planted) = Planted::run("gil") else { return };
    // Off its core within the loop, the thread waits for the GIL or for a core; both hogs are
    // joined after it.
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
    planted.is_found("BlockingIo", "socket", 0.1);
    planted.hardly(&["data", "gil", "file_io", "unknown"]);
}

#[test]
fn time_without_a_free_core_is_a_part_of_its_own() {
    let Some(planted) = Planted::run("core") else { return };
    planted.near(planted.part("no_core"), "no_core", 0.1);
    planted.is_found("NoFreeCore", "no_core", 0.1);
    planted.near(planted.lines("victim_spins", "cpu_ns", false), "cpu", 0.1);
    planted.hardly(&["data", "gil", "lock", "socket", "unknown"]);
}

#[test]
fn start_up_is_apart_and_names_the_slow_module() {
    let Some(planted) = Planted::run("imports") else { return };
    let start_up = seconds("wall_ns")(&planted.table("start_up")[0]);
    assert!(start_up >= 0.95 * planted.truth["start_up"], "{start_up} of {:?}", planted.truth);
    let modules = planted.table("imports").iter();
    let slow = modules.filter(|row| row["module"] == "victim_slow").map(seconds("wall_ns")).sum();
    // Between its CPU time and its wall time: ready time has a stack only where it is long.
    let (cpu, wall) = (planted.truth["imported"], planted.truth["start_up"]);
    assert!((0.9 * cpu..=1.1 * wall).contains(&slow), "{slow} of {cpu} to {wall}");
    planted.near(planted.running(), "after", 0.1);
}
