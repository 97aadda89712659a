//! Tests of SmallReads, ReadTwice, SlowStorage, BlockingIo and NetworkWait on recorded calls on files.

use tprof_trace::model::{FileCalls, FileKind, FileOperation, Sample, Thread, ThreadState};

use super::host::add_stack;
use super::job::{Job, MS, ask};
use crate::outcome::Outcome;

const MIB: u64 = 1 << 20;
/// The job lasts for 10 seconds.
const LENGTH: u64 = 10_000 * MS;
const DISK: &str = "nfs4 at /data (server:/export)";

/// A job of one thread that is on a core all the time, but for the waits that a test adds.
struct FilesJob {
    job: Job,
    samples: Vec<Sample>,
    calls: Vec<FileCalls>,
}

impl FilesJob {
    fn new() -> FilesJob {
        let mut job = Job::new(1, LENGTH);
        let frames =
            [["recv", "", "libc.so.6"], ["fetch", "load.c", "train"], ["main", "train.c", "train"]];
        add_stack(&mut job, 1, &frames);
        FilesJob { job, samples: Vec::new(), calls: Vec::new() }
    }

    fn wait(&mut self, from_ms: u64, ms: u64) {
        self.samples.push(Sample {
            state: ThreadState::Io,
            time_ns: from_ms * MS,
            weight_ns: ms * MS,
            ..Sample::default()
        });
    }

    /// Adds a wait for what the peer sends.
    fn receives(&mut self, from_ms: u64, ms: u64) {
        self.wait(from_ms, ms);
        self.samples.last_mut().unwrap().stack = 1;
    }

    /// Adds calls on a socket, in the second second.
    fn on_socket(&mut self, peer: &str, operation: FileOperation, calls: u64, bytes: u64) {
        let row = FileCalls { calls, bytes, busy_ns: MS, ..FileCalls::default() };
        self.calls(peer, operation, 1000, row);
        let row = self.calls.last_mut().unwrap();
        (row.kind, row.file_system) = (FileKind::Socket, self.job.fixture.name(""));
    }

    /// Adds calls of one operation on one file.
    fn calls(&mut self, path: &str, operation: FileOperation, at_ms: u64, row: FileCalls) {
        let row = FileCalls {
            start_ns: at_ms * MS,
            duration_ns: row.busy_ns,
            kind: FileKind::File,
            file: self.job.fixture.name(path),
            file_system: self.job.fixture.name(DISK),
            operation,
            ..row
        };
        self.calls.push(row);
    }

    fn reads(&mut self, path: &str, at_ms: u64, calls: u64, bytes: u64, ms: u64, storage: u64) {
        let storage_bytes = Some(storage);
        let row =
            FileCalls { calls, bytes, busy_ns: ms * MS, storage_bytes, ..FileCalls::default() };
        self.calls(path, FileOperation::Read, at_ms, row);
    }

    fn opens(&mut self, path: &str, at_ms: u64, calls: u64, ms: u64) {
        let row = FileCalls { calls, busy_ns: ms * MS, ..FileCalls::default() };
        self.calls(path, FileOperation::Open, at_ms, row);
    }

    fn asked(mut self, rule: &str) -> Outcome {
        let waits = std::mem::take(&mut self.samples);
        let ran = (0..LENGTH / MS).map(|at| Sample {
            state: ThreadState::Running,
            time_ns: at * MS + MS / 2,
            weight_ns: MS,
            cpu: Some(0),
            ..Sample::default()
        });
        let is_waiting = |sample: &Sample| {
            let within = |wait: &Sample| {
                (wait.time_ns..wait.time_ns + wait.weight_ns).contains(&sample.time_ns)
            };
            waits.iter().any(within)
        };
        let mut samples: Vec<Sample> = ran.filter(|sample| !is_waiting(sample)).collect();
        samples.extend(&waits);
        samples.sort_by_key(|sample| sample.time_ns);
        let writer = &mut self.job.fixture.writer;
        writer.write(&mut samples).unwrap();
        self.calls.sort_by_key(|row| row.start_ns);
        writer.write(&mut self.calls).unwrap();
        ask(&self.job.fixture.finish(), rule)
    }
}

#[track_caller]
fn only(outcome: &Outcome) -> (&str, &str, u64) {
    let [(finding, _)] = outcome.found.as_slice() else { panic!("{outcome:?}") };
    (&finding.subject, &finding.seen, finding.bound_ns)
}

#[test]
fn many_small_files_are_found_with_the_time_to_open_and_read_them() {
    let mut made = FilesJob::new();
    for at in 0..40 {
        let path = format!("/data/{at}.jpg");
        made.opens(&path, at * 10, 50, 20);
        made.reads(&path, at * 10, 100, MIB, 30, 0);
    }
    let outcome = made.asked("SmallReads");
    let (file, seen, bound_ns) = only(&outcome);
    assert_eq!((file, bound_ns), ("/data/*.jpg", 40 * 50 * MS));
    assert!(seen.contains("4,000 reads of 10.2 KiB on average"), "{seen}");
    assert!(
        seen.contains("and opening files with 20.5 KiB on average 2,000 times, take"),
        "{seen}"
    );
}

#[test]
fn a_data_set_with_a_directory_for_each_class_is_one_finding() {
    let mut made = FilesJob::new();
    for class in 0..20 {
        for at in 0..4 {
            let path = format!("/data/train/{class}/{at}.jpg");
            made.opens(&path, class * 100 + at * 10, 20, 5);
            made.reads(&path, class * 100 + at * 10, 40, MIB, 10, 0);
        }
    }
    let outcome = made.asked("SmallReads");
    let (file, _, bound_ns) = only(&outcome);
    assert_eq!((file, bound_ns), ("/data/train/*/*.jpg", 80 * 15 * MS));
}

#[test]
fn what_the_bytes_take_in_large_requests_is_no_gain() {
    let mut made = FilesJob::new();
    made.reads("/data/a.bin", 0, 10_000, 50 * MIB, 2000, 0);
    // 100 MiB a second.
    made.reads("/data/b.bin", 4000, 100, 100 * MIB, 1000, 100 * MIB);
    let outcome = made.asked("SmallReads");
    let (file, seen, bound_ns) = only(&outcome);
    assert_eq!((file, bound_ns), ("/data/a.bin", 1500 * MS));
    assert!(seen.contains("Large requests to the same file system"), "{seen}");
}

#[test]
fn large_reads_and_few_small_ones_are_no_problem() {
    let mut made = FilesJob::new();
    made.reads("/data/a.bin", 0, 10_000, 10_000 * MIB, 2000, 0);
    made.reads("/data/b.bin", 5000, 999, 999, 2000, 0);
    assert!(made.asked("SmallReads").no_problem.is_some());
    assert!(FilesJob::new().asked("SmallReads").unchecked.is_some(), "nothing was recorded");
}

#[test]
fn a_second_pass_from_storage_is_found_and_one_from_memory_is_not() {
    let pass = |made: &mut FilesJob, at_ms, storage| {
        made.opens("/data/a.bin", at_ms, 1, 0);
        made.reads("/data/a.bin", at_ms + 1, 64, 64 * MIB, 1000, storage);
    };
    let mut made = FilesJob::new();
    pass(&mut made, 0, 64 * MIB);
    pass(&mut made, 2000, 64 * MIB);
    let outcome = made.asked("ReadTwice");
    let (file, seen, bound_ns) = only(&outcome);
    assert_eq!((file, bound_ns), ("/data/a.bin", 1000 * MS));
    assert!(seen.contains("at most 64.0 MiB to read, but 128.0 MiB came from storage"), "{seen}");

    let mut made = FilesJob::new();
    pass(&mut made, 0, 64 * MIB);
    pass(&mut made, 2000, 0);
    assert!(made.asked("ReadTwice").no_problem.is_some());

    // The two openings may have read different parts.
    let mut made = FilesJob::new();
    pass(&mut made, 0, 64 * MIB);
    pass(&mut made, 2000, 64 * MIB);
    made.calls.iter_mut().for_each(|row| row.jumps = row.calls.min(1));
    assert!(made.asked("ReadTwice").no_problem.is_some());
}

#[test]
fn one_long_reading_is_not_a_second_one() {
    let mut made = FilesJob::new();
    // Only the header at first, then all.
    made.opens("/data/a.bin", 0, 1, 0);
    made.reads("/data/a.bin", 1, 1, MIB, 10, MIB);
    made.opens("/data/a.bin", 100, 1, 0);
    for at in 0..10 {
        made.reads("/data/a.bin", 101 + at * 100, 10, 10 * MIB, 90, 10 * MIB);
    }
    assert!(made.asked("ReadTwice").no_problem.is_some());
}

#[test]
fn a_second_with_less_than_half_of_the_best_rate_is_slow_storage() {
    let mut made = FilesJob::new();
    for second in 0..6 {
        let bytes = if second == 3 { 40 * MIB } else { 200 * MIB };
        made.reads("/data/a.bin", second * 1000, 100, bytes, 1000, bytes);
    }
    let outcome = made.asked("SlowStorage");
    let (file_system, seen, bound_ns) = only(&outcome);
    assert_eq!(file_system, DISK);
    // At 200 MiB a second, the 40 MiB take 200 ms.
    assert!(bound_ns.abs_diff(800 * MS) < MS, "{bound_ns}");
    assert!(seen.contains("begins 3.00 s after the start"), "{seen}");
    let mut made = FilesJob::new();
    for second in 0..6 {
        made.reads("/data/a.bin", second * 1000, 100, (150 + second) * MIB, 1000, 150 * MIB);
    }
    assert!(made.asked("SlowStorage").no_problem.is_some());
}

#[test]
fn readers_beside_the_driving_thread_cost_only_what_it_waits_for_data() {
    let mut made = FilesJob::new();
    let reader = Thread { thread: 1, process: 0, tid: 4713, start_ns: 0 };
    made.job.fixture.writer.thread(&reader);
    made.reads("/data/a.bin", 0, 10_000, 50 * MIB, 2000, 0);
    made.calls.iter_mut().for_each(|row| row.thread = 1);
    let outcome = made.asked("SmallReads");
    assert!(outcome.found.is_empty(), "nobody waits for them: {outcome:?}");
}

#[test]
fn waits_for_files_have_the_bytes_and_rates_of_their_calls() {
    let mut made = FilesJob::new();
    made.wait(1000, 1000);
    made.reads("/data/a.bin", 1000, 200, 200 * MIB, 1000, 100 * MIB);
    let outcome = made.asked("BlockingIo");
    let (subject, seen, _) = only(&outcome);
    assert_eq!(subject, "files");
    let expected = "Its calls: read 200.0 MiB of /data/a.bin in 200 calls at 200.0 MiB/s (1.00 s, 50.0 % from memory).";
    assert!(seen.contains(expected), "{seen}");
    let mut made = FilesJob::new();
    made.wait(1000, 1000);
    let outcome = made.asked("BlockingIo");
    assert!(!only(&outcome).1.contains("Its calls"), "{outcome:?}");
}

#[test]
fn calls_outside_of_the_judged_time_are_counted_beside_those_in_it() {
    let mut made = FilesJob::new();
    made.wait(1000, 1000);
    let sync = |calls, ms: u64| FileCalls { calls, busy_ns: ms * MS, ..FileCalls::default() };
    made.calls("/out/a.bin", FileOperation::Sync, 1000, sync(10, 600));
    // Two more begin after the job's step: `report io` lists them too.
    made.calls("/out/a.bin", FileOperation::Sync, LENGTH / MS + 1, sync(2, 100));
    made.calls("/out/b.bin", FileOperation::Sync, 1700, sync(1, 200));
    for (at, file) in ["/out/c", "/out/d"].into_iter().enumerate() {
        made.calls(file, FileOperation::Sync, 1900 + at as u64, sync(3, 50));
    }
    let outcome = made.asked("BlockingIo");
    let (_, seen, _) = only(&outcome);
    let expected = "Its calls: synced /out/a.bin in 10 of the run's 12 calls (600.0 ms of 700.0 ms); \
                    synced /out/b.bin in 1 call (200.0 ms); synced /out/c in 3 calls (50.0 ms); \
                    on other files: synced in 3 calls (50.0 ms).";
    assert!(seen.contains(expected), "{seen}");
}

#[test]
fn waits_that_small_reads_explain_are_reported_once() {
    let mut made = FilesJob::new();
    made.wait(1000, 2000);
    made.reads("/data/a.bin", 1000, 10_000, 50 * MIB, 2000, 0);
    let outcome = made.asked("BlockingIo");
    assert!(outcome.found.is_empty() && outcome.no_problem.is_some(), "{outcome:?}");
}

fn waits_for_a_peer(requests: u64, received: u64, connections: u64) -> (String, String) {
    let mut made = FilesJob::new();
    made.receives(1000, 4000);
    for (operation, calls, bytes) in [
        (FileOperation::Connect, connections, 0),
        (FileOperation::Write, requests, requests * 40),
        (FileOperation::Read, requests, received),
    ] {
        made.on_socket("socket 10.0.0.5:9000", operation, calls, bytes);
    }
    let outcome = made.asked("NetworkWait");
    let [(finding, _)] = outcome.found.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((finding.subject.as_str(), finding.bound_ns), ("peers", 4000 * MS));
    assert!(finding.seen.contains("fetch (load.c:3)"), "{}", finding.seen);
    (finding.seen.clone(), finding.advice.to_string())
}

#[test]
fn many_small_answers_of_a_peer_are_told_from_large_ones() {
    let (seen, advice) = waits_for_a_peer(2000, 2000 * 1024, 1);
    let expected = "2,000 requests had answers of 1.0 KiB on average, and each took 2.0 ms.";
    assert!(seen.contains(expected) && !seen.contains("connected 1 times"), "{seen}");
    assert!(advice.contains("in one request"), "{advice}");
    let (seen, advice) = waits_for_a_peer(10, 100 * MIB, 1);
    assert!(!seen.contains("requests had") && seen.contains("of socket 10.0.0.5:9000"), "{seen}");
    assert!(advice.contains("the peer may be slow"), "{advice}");
}

#[test]
fn a_connection_for_each_request_is_named() {
    let (seen, advice) = waits_for_a_peer(50, 50 * MIB, 50);
    assert!(seen.contains("It connected 50 times for 50 requests."), "{seen}");
    assert!(advice.contains("keep-alive"), "{advice}");
}

#[test]
fn many_ports_of_a_peer_and_many_peers_with_a_port_are_listed_together() {
    let seen = |peer: &dyn Fn(u32) -> String, count: u32| {
        let mut made = FilesJob::new();
        made.receives(1000, 4000);
        for at in 0..count {
            made.on_socket(&peer(at), FileOperation::Read, 10, MIB);
        }
        only(&made.asked("NetworkWait")).1.to_owned()
    };
    let of_ports = seen(&|at| format!("socket 10.0.0.5:{}", 40_000 + at), 16);
    assert!(of_ports.contains("read 16.0 MiB of socket 10.0.0.5:* in 160 calls"), "{of_ports}");
    let of_peers = seen(&|at| format!("socket 10.0.0.{at}:443"), 16);
    assert!(of_peers.contains("read 16.0 MiB of socket *:443 in 160 calls"), "{of_peers}");
    let few = seen(&|at| format!("socket 10.0.0.5:{}", 40_000 + at), 15);
    assert!(few.contains("of socket 10.0.0.5:40000"), "{few}");
}

#[test]
fn waits_for_peers_are_no_waits_for_files() {
    let mut made = FilesJob::new();
    made.receives(1000, 4000);
    let outcome = made.asked("BlockingIo");
    assert!(outcome.found.is_empty(), "{outcome:?}");
    let mut made = FilesJob::new();
    made.wait(1000, 4000);
    let outcome = made.asked("NetworkWait");
    assert!(outcome.found.is_empty(), "{outcome:?}");
}
