//! Tests how hooked calls, the plugin's calls and its tasks become one row.

use super::super::HookedCall;
use super::super::communicators::JoinCall;
use super::*;
use tprof_trace::TraceFile;
use tprof_wire::calls::Number;
use tprof_wire::nccl::Context;

const MS: u64 = 1_000_000;
/// The texts that records refer to by id; the ids begin at 1.
const TEXTS: [&str; 7] = ["AllReduce", "Send", "Recv", "ncclFloat32", "RING", "LL", "world"];
const ALL_REDUCE: u32 = 1;
const SEND: u32 = 2;
const RECV: u32 = 3;
const FLOAT: u32 = 4;
const RING: u32 = 5;
const LL: u32 = 6;
const WORLD: u32 = 7;
const MAIN: ThreadIndex = 0;
const OTHER: ThreadIndex = 1;
/// A thread of NCCL itself, which serves communicators that do not block.
const NCCLS: ThreadIndex = 9;
const ADDRESS: u64 = 0x1000;
const CONTEXT: u64 = 3;
const HASH: u64 = 77;

struct Process {
    all: Collectives,
    gpu: Gpu,
    writer: TraceWriter,
    directory: tempfile::TempDir,
}

impl Process {
    /// Returns a process with one communicator of eight ranks, which hooks recorded.
    fn hooked() -> Process {
        let mut process = Process::unhooked();
        process.all.joined(JoinCall {
            number: Number::ncclCommInitRank as u32,
            address: ADDRESS,
            identity: 0xabc,
            size: 8,
            rank: 3,
            parent: 0,
            detail: 0,
        });
        process
    }

    fn unhooked() -> Process {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rank-0.tprof");
        let mut gpu = Gpu::new(0, String::new(), std::path::Path::new(""), false);
        gpu.define(&TEXTS);
        Process {
            all: Collectives::new(0),
            gpu,
            writer: TraceWriter::create(&path, &Default::default()).unwrap(),
            directory,
        }
    }

    /// Lets NCCL initialise the plugin for the communicator.
    fn served(mut self) -> Process {
        let (ranks, rank) = (8, 3);
        self.all.communicators.context(Context {
            context: CONTEXT,
            hash: HASH,
            version: 5,
            nodes: 1,
            ranks,
            rank,
            name: WORLD,
        });
        self
    }

    fn hook(&mut self, thread: ThreadIndex, function: &'static str, at_ms: u64, count: u64) {
        self.hook_with(thread, function, at_ms, count, None);
    }

    fn hook_with(
        &mut self,
        thread: ThreadIndex,
        function: &'static str,
        at_ms: u64,
        count: u64,
        peer: Option<u32>,
    ) {
        let call = HookedCall {
            thread,
            function,
            start_ns: at_ms * MS,
            end_ns: (at_ms + 4) * MS,
            address: ADDRESS,
            count,
            data_type: 7,
            stream: 5,
            peer,
        };
        self.all.called(&call, &mut self.writer);
    }

    fn plugin_call(&mut self, thread: ThreadIndex, at_ms: u64, id: u64) {
        let of = Call {
            id,
            context: CONTEXT,
            count: 10,
            stream: 5,
            function: ALL_REDUCE,
            data_type: FLOAT,
            root: 0,
            captured: 0,
        };
        self.all.reported.calls.push(Timed { thread, time_ns: at_ms * MS, record: of });
    }

    fn task(&mut self, thread: ThreadIndex, at_ms: u64, of: Task) {
        self.all.reported.tasks.push(Timed { thread, time_ns: at_ms * MS, record: of });
    }

    fn write(&mut self, now_ms: u64, last: bool) {
        self.all.write(now_ms * MS, last, &self.gpu, &mut self.writer).unwrap();
    }

    /// Ends the process and returns all rows in its file.
    fn rows(mut self) -> Rows {
        self.write(60_000, true);
        self.writer.finish().unwrap();
        let file = TraceFile::open(&self.directory.path().join("rank-0.tprof")).unwrap();
        let (rows, problems) = file.rows();
        assert!(problems.is_empty(), "{problems:?}");
        Rows { file, rows }
    }
}

struct Rows {
    file: TraceFile,
    rows: Vec<Collective>,
}

impl Rows {
    /// Returns each row's start in milliseconds, operation, sequence number and algorithm.
    fn facts(&self) -> Vec<(u64, &str, Option<u64>, &str)> {
        let name = |id: Option<NameId>| id.map_or("", |id| self.file.name(id));
        let of = |row: &Collective| {
            (row.start_ns / MS, self.file.name(row.name), row.sequence, name(row.algorithm))
        };
        self.rows.iter().map(of).collect()
    }
}

/// Returns a task of a plugin before version 5, which doesn't name its call.
fn old_task(count: u64, sequence: u64) -> Task {
    Task {
        context: CONTEXT,
        hash: HASH,
        sequence,
        count,
        kind: task_kind::COLLECTIVE,
        function: ALL_REDUCE,
        data_type: FLOAT,
        algorithm: RING,
        protocol: LL,
        channels: 2,
        rank: 3,
        ..Task::default()
    }
}

/// Returns the task of a send to rank `peer` or a receive from it.
fn exchange(function: u32, peer: u32, channels: u32) -> Task {
    Task {
        kind: task_kind::POINT_TO_POINT,
        function,
        peer: peer + 1,
        channels,
        algorithm: 0,
        protocol: 0,
        ..old_task(10, 99)
    }
}

#[test]
fn a_hooked_call_a_plugin_call_within_it_and_its_task_are_one_row() {
    let mut process = Process::hooked().served();
    process.hook(MAIN, "ncclAllReduce", 10, 10);
    process.plugin_call(MAIN, 11, 500);
    process.task(NCCLS, 30, Task { call: 500, ..old_task(10, 4) });
    let found = process.rows();
    assert_eq!(found.facts(), [(10, "all_reduce", Some(4), "RING")]);
    let row = &found.rows[0];
    assert_eq!(
        (row.duration_ns, row.thread),
        (Some(4 * MS), Some(MAIN)),
        "the times are the hook's"
    );
    assert_eq!(
        (row.communicator, row.group_size),
        (Some(HASH), Some(8)),
        "the number is the plugin's"
    );
    assert_eq!((row.bytes, row.channels), (Some(40), Some(2)));
}

#[test]
fn a_plugin_call_outside_the_hooked_call_is_a_separate_row() {
    for (thread, at_ms) in [(MAIN, 15), (MAIN, 9), (OTHER, 11)] {
        let mut process = Process::hooked().served();
        process.hook(MAIN, "ncclAllReduce", 10, 10);
        process.plugin_call(thread, at_ms, 500);
        assert_eq!(process.rows().rows.len(), 2, "at {at_ms} ms by thread {thread}");
    }
}

#[test]
fn only_one_plugin_call_joins_a_hooked_call() {
    // `ncclBcast` calls `ncclBroadcast`. The plugin reports only one of them.
    let mut process = Process::hooked().served();
    process.hook(MAIN, "ncclAllReduce", 10, 10);
    process.plugin_call(MAIN, 11, 500);
    process.plugin_call(MAIN, 12, 501);
    assert_eq!(process.rows().rows.len(), 2);
}

#[test]
fn a_plugin_call_waits_for_its_hook_until_its_thread_calls_again() {
    let mut process = Process::hooked().served();
    process.plugin_call(MAIN, 11, 500);
    process.write(2_000, false);
    assert_eq!(
        process.all.reported.calls.len(),
        1,
        "the hook's record of the call may still arrive"
    );
    process.hook(MAIN, "ncclAllReduce", 10, 10);
    process.write(3_000, false);
    assert_eq!(process.all.reported.calls.len(), 0);
    process.plugin_call(MAIN, 4_000, 501);
    process.plugin_call(MAIN, 4_100, 502);
    process.write(5_000, false);
    assert_eq!(process.all.reported.calls.len(), 1, "only the latest call of a thread waits");
    assert_eq!(process.rows().rows.len(), 3);
}

#[test]
fn later_tasks_of_a_call_are_replays_without_rows() {
    let mut process = Process::hooked().served();
    process.hook(MAIN, "ncclAllReduce", 10, 10);
    process.plugin_call(MAIN, 11, 500);
    process.task(MAIN, 12, Task { call: 500, ..old_task(10, 4) });
    process.write(1_000, false);
    process.write(7_000, false);
    assert!(process.all.rows.is_empty(), "the row is written");
    process.task(MAIN, 8_000, Task { call: 500, ..old_task(10, 4) });
    process.write(9_000, false);
    assert!(process.all.is_empty(), "the replay waits for nothing");
    let found = process.rows();
    assert_eq!(found.facts(), [(10, "all_reduce", Some(4), "RING")]);
}

#[test]
fn an_old_task_belongs_to_the_first_call_of_its_operation_and_bytes() {
    let mut process = Process::hooked();
    process.hook(MAIN, "ncclAllReduce", 10, 20);
    process.hook(MAIN, "ncclAllReduce", 20, 10);
    process.hook(MAIN, "ncclAllReduce", 30, 10);
    process.task(MAIN, 11, old_task(20, 1));
    process.task(MAIN, 21, old_task(10, 2));
    process.task(MAIN, 31, old_task(10, 3));
    let wanted = [(10, Some(1)), (20, Some(2)), (30, Some(3))];
    let found = process.rows();
    let numbers: Vec<_> = found.facts().iter().map(|row| (row.0, row.2)).collect();
    assert_eq!(numbers, wanted);
}

#[test]
fn an_old_task_does_not_join_a_call_that_begins_later() {
    let mut process = Process::hooked();
    process.hook(MAIN, "ncclAllReduce", 50, 10);
    process.task(MAIN, 40, old_task(10, 1));
    let found = process.rows();
    assert_eq!(
        found.facts(),
        [(40, "all_reduce", Some(1), "RING"), (50, "all_reduce", Some(0), "")]
    );
}

#[test]
fn an_old_task_of_an_nccl_thread_joins_a_thread_without_tasks() {
    let mut process = Process::hooked();
    process.hook(OTHER, "ncclAllReduce", 5, 10);
    process.task(OTHER, 6, old_task(10, 1));
    process.write(1_000, false);
    // The first thread enqueues tasks itself, so a task of NCCL's thread belongs to the main
    // thread's call.
    process.hook(OTHER, "ncclAllReduce", 10, 10);
    process.hook(MAIN, "ncclAllReduce", 20, 10);
    process.task(NCCLS, 30, old_task(10, 2));
    let found = process.rows();
    let of_main = found.rows.iter().find(|row| row.thread == Some(MAIN)).unwrap();
    assert_eq!((of_main.sequence, of_main.start_ns), (Some(2), 20 * MS));
    assert_eq!(found.rows.len(), 3);
}

#[test]
fn sends_and_receives_join_calls_with_the_same_other_rank() {
    let mut process = Process::hooked();
    process.hook_with(MAIN, "ncclSend", 10, 10, Some(1));
    process.hook_with(MAIN, "ncclSend", 20, 10, Some(2));
    process.hook_with(MAIN, "ncclRecv", 30, 10, Some(2));
    process.task(MAIN, 31, exchange(SEND, 2, 4));
    process.task(MAIN, 32, exchange(RECV, 2, 2));
    process.task(MAIN, 33, exchange(SEND, 1, 1));
    let found = process.rows();
    let of = |row: &Collective| (row.start_ns / MS, row.peer, row.channels, row.sequence);
    let rows: Vec<_> = found.rows.iter().map(of).collect();
    // Sends and receives have no sequence number within their communicator.
    let wanted =
        [(10, Some(1), Some(1), None), (20, Some(2), Some(4), None), (30, Some(2), Some(2), None)];
    assert_eq!(rows, wanted);
}

#[test]
fn an_unhooked_row_lasts_from_its_call_to_the_start_of_its_group() {
    let mut process = Process::unhooked().served();
    process.plugin_call(MAIN, 10, 500);
    process.plugin_call(MAIN, 12, 501);
    for (id, at_ms) in [(500, 20), (501, 22)] {
        process.task(MAIN, at_ms, Task { call: id, group: 6, ..old_task(10, id) });
    }
    process.task(MAIN, 40, Task { call: 0, ..old_task(30, 7) });
    let found = process.rows();
    let of = |row: &Collective| (row.start_ns / MS, row.duration_ns.map(|ns| ns / MS), row.bytes);
    let rows: Vec<_> = found.rows.iter().map(of).collect();
    // Operations in one group begin at the same time.
    let wanted = [(10, Some(10), Some(40)), (12, Some(8), Some(40)), (40, Some(0), Some(120))];
    assert_eq!(rows, wanted);
    assert_eq!(found.file.communicators().len(), 1);
    assert_eq!(found.file.name(found.file.communicators()[0].name), "world");
}

#[test]
fn a_group_whose_end_is_not_recorded_closes_at_its_limit() {
    let mut process = Process::hooked();
    process.all.group_begins(MAIN);
    let many = super::super::MAX_GROUP as u64 + 10;
    for at_ms in 0..many {
        process.hook(MAIN, "send", at_ms, at_ms);
    }
    assert_eq!(process.all.rows.values().filter(|row| row.is_open).count(), 0);
    assert_eq!(process.rows().rows.len() as u64, many, "no row is lost");
}
