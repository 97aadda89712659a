use super::*;
use std::path::{Path, PathBuf};
use tprof_trace::model::{CopyKind, Kernel, MemoryCopy, SpanKind};
use tprof_trace::{TraceFile, TraceRow};
use tprof_wire::calls::{FUNCTIONS, may_be_left_to_hooks};

const S: u64 = 1_000_000_000;
const STREAM: u64 = 0x7f00;
const NUMBER: u64 = 1 << 32 | 13;
const STUB: u64 = 0x10;

/// Returns a `ByOrder` that knows one stream and one kernel of thread 0.
fn joining() -> ByOrder {
    let mut all = ByOrder::default();
    all.is_from(Handle::Stream(STREAM, 0, NUMBER), 0);
    all.is_from(Handle::Kernel(STUB, hash_of("k")), 0);
    all
}

fn call(start_ns: u64) -> StartingCall {
    let row = Span { start_ns, duration_ns: 5, ..Span::default() };
    StartingCall { row, stream: STREAM, work: StartedWork::Kernel(STUB), may_be_captured: false }
}

fn ran(correlation: u32, start_ns: u64) -> RanWork {
    RanWork { correlation, start_ns, stream: NUMBER, work: StartedWork::Kernel(hash_of("k")) }
}

fn joined(rows: Vec<Span>) -> Vec<(u64, Option<u64>)> {
    let mut rows: Vec<_> = rows.iter().map(|row| (row.start_ns, row.correlation)).collect();
    rows.sort();
    rows
}

#[test]
fn the_nth_launch_of_a_kernel_joins_its_nth_record() {
    let mut all = joining();
    (0..3).for_each(|at| all.ran(ran(10 + 2 * at, 1000 + 100 * u64::from(at))));
    (0..3).for_each(|at| all.called(call(500 + 10 * at)));
    all.called(StartingCall { stream: 0x999, ..call(600) });
    assert_eq!(joined(all.settle(S, false)), []);
    let pairs = [(500, Some(10)), (510, Some(12)), (520, Some(14)), (600, None)];
    assert_eq!(joined(all.settle(4 * S, false)), pairs);
    assert_eq!(all.found, WithoutCall { unknown: 1, ..WithoutCall::default() });
}

#[test]
fn a_lost_record_affects_only_its_own_stretch() {
    let mut all = joining();
    // Two launches, a wait, two launches of which one has lost its record, a wait, and two
    // launches. CUPTI records the waits.
    for (first, at) in [(10, 1000), (20, 2000), (30, 3000)] {
        all.called(call(at));
        all.called(call(at + 10));
        all.ran(ran(first, at + 50));
        if first != 20 {
            all.ran(ran(first + 1, at + 60));
        }
        all.recorded(first + 2, at + 100);
    }
    let rows = joined(all.settle(100 * S, true));
    let none = [(2000, None), (2010, None)];
    let first = [(1000, Some(10)), (1010, Some(11))];
    let last = [(3000, Some(30)), (3010, Some(31))];
    assert_eq!(rows, [first, none, last].concat());
    assert_eq!(all.found, WithoutCall { missing_kernels: 1, unclear: 1, ..WithoutCall::default() });
}

#[test]
fn work_of_a_call_that_cupti_recorded_joins_no_other_call() {
    let mut all = joining();
    // Between two launches that hooks saw, CUPTI recorded a launch of the same kernel by the
    // driver.
    all.called(call(1000));
    all.called(call(3000));
    for (number, at) in [(10, 1050), (11, 2050), (12, 3050)] {
        all.ran(ran(number, at));
    }
    all.recorded(11, 2000);
    assert_eq!(joined(all.settle(9 * S, false)), [(1000, Some(10)), (3000, Some(12))]);
    // The record of this call comes too late. Its work was already joined with another call, which
    // counts as contradicted.
    all.recorded(12, 3000);
    assert_eq!(all.found, WithoutCall { contradicted: 1, ..WithoutCall::default() });
}

#[test]
fn work_that_began_before_a_call_does_not_join_it() {
    let mut all = joining();
    all.called(call(10_000_000));
    all.ran(ran(10, 1_000_000));
    assert_eq!(joined(all.settle(S, true)), [(10_000_000, None)]);
    assert_eq!(all.found, WithoutCall { unclear: 1, ..WithoutCall::default() });
}

#[test]
fn calls_during_a_capture_need_no_record() {
    let mut all = joining();
    all.called(StartingCall { may_be_captured: true, ..call(900) });
    all.called(call(1000));
    all.ran(ran(10, 1050));
    assert_eq!(joined(all.settle(9 * S, false)), [(900, None), (1000, Some(10))]);
    // This call was made during another thread's capture, but its work was not captured into a
    // graph.
    all.called(StartingCall { may_be_captured: true, ..call(9 * S) });
    all.ran(ran(20, 9 * S + 50));
    assert_eq!(joined(all.settle(20 * S, false)), [(9 * S, Some(20))]);
    assert_eq!(all.found, WithoutCall::default());
}

#[test]
fn nothing_is_joined_if_a_record_is_missing_at_the_end() {
    let mut all = joining();
    (0..3).for_each(|at| all.called(call(1000 + 10 * at)));
    (0..2).for_each(|at| all.ran(ran(10 + at, 1050 + u64::from(at))));
    assert_eq!(joined(all.settle(S, true)), [(1000, None), (1010, None), (1020, None)]);
    assert_eq!(all.found, WithoutCall { missing_kernels: 1, unclear: 2, ..WithoutCall::default() });
}

#[test]
fn a_long_queue_waits_for_its_records() {
    let mut all = joining();
    (0..100).for_each(|at| all.called(call(S + at)));
    for second in 1..100 {
        assert_eq!(all.settle(second * S, false), []);
    }
    (0..100).for_each(|at| all.ran(ran(10 + at, (100 + u64::from(at)) * S)));
    let rows = all.settle(300 * S, false);
    assert_eq!(rows.iter().filter(|row| row.correlation.is_some()).count(), 100);
}

#[test]
fn a_handle_has_the_meaning_of_the_time_of_the_call() {
    let mut all = joining();
    // The stream was destroyed, and a new one got its handle. The same happened to the kernel.
    all.is_from(Handle::Stream(STREAM, 0, NUMBER + 1), 2000);
    all.is_from(Handle::Kernel(STUB, hash_of("other")), 2000);
    // The handle of a default stream means a different stream in each thread.
    all.is_from(Handle::Stream(LEGACY_STREAM, 0, NUMBER + 2), 0);
    all.is_from(Handle::Stream(LEGACY_STREAM, 1, NUMBER + 3), 0);
    all.called(call(1000));
    all.called(call(3000));
    for thread in [0, 1] {
        let row = Span { thread, start_ns: 5000, ..Span::default() };
        all.called(StartingCall {
            row,
            stream: LEGACY_STREAM,
            work: StartedWork::Copy(8),
            may_be_captured: false,
        });
    }
    all.ran(RanWork { stream: NUMBER + 3, work: StartedWork::Copy(8), ..ran(7, 5050) });
    all.ran(RanWork {
        stream: NUMBER + 1,
        work: StartedWork::Kernel(hash_of("other")),
        ..ran(5, 3050)
    });
    all.ran(ran(3, 1050));
    all.ran(RanWork { stream: NUMBER + 2, work: StartedWork::Copy(8), ..ran(6, 5060) });
    let rows = joined(all.settle(9 * S, false));
    assert_eq!(rows, [(1000, Some(3)), (3000, Some(5)), (5000, Some(6)), (5000, Some(7))]);
}

/// The result of replaying a recorded run: how many calls were joined with the right work, with the
/// wrong work, or not at all.
#[derive(Debug, Default, PartialEq, Eq)]
struct Judged {
    right: usize,
    wrong: usize,
    not_joined: usize,
}

fn rows_of<R: TraceRow>(file: &TraceFile) -> Vec<R> {
    let (rows, problems) = file.rows();
    assert!(problems.is_empty(), "{problems:?}");
    rows
}

/// Calls in the recorded runs that CUPTI doesn't record any more (`agent/src/gpu/kinds.rs`).
const UNRECORDED: [&str; 7] = [
    "cudaGetErrorString",
    "cuGetErrorString",
    "cuKernelGetName",
    "cuDriverGetVersion",
    "cuCtxGetLimit",
    "cuDeviceGet",
    "cuGetProcAddress",
];

/// Time between two of the agent's own calls, ns (`agent/src/gpu/agent.rs`).
const MARK_NS: u64 = 10_000_000;

/// Doubles a number, so that an unused number is free before each.
fn room(number: u64) -> u32 {
    2 * number as u32
}

/// Replays the records of a device in the order of their arrival, but without the correlations of
/// the calls that hooks see. Leaves out `lost` records of work from the middle.
fn replayed(file: &TraceFile, lost: usize) -> (Judged, WithoutCall) {
    let hooked: Vec<&str> = (0..)
        .zip(FUNCTIONS)
        .filter(|(number, _)| may_be_left_to_hooks(*number))
        .map(|(_, function)| function.name.text())
        .collect();
    let mut work: HashMap<u64, (RanWork, u64)> = HashMap::new();
    for row in rows_of::<Kernel>(file).iter().filter(|row| row.graph.is_none()) {
        let number = row.correlation.unwrap();
        let stream = u64::from(row.context) << 32 | row.stream;
        let of = StartedWork::Kernel(hash_of(file.name(row.name)));
        let ran = RanWork { correlation: room(number), start_ns: row.start_ns, stream, work: of };
        work.insert(number, (ran, row.start_ns + row.duration_ns));
    }
    for row in rows_of::<MemoryCopy>(file).iter().filter(|row| row.graph.is_none()) {
        let number = row.correlation.unwrap();
        let stream = u64::from(row.context) << 32 | row.stream;
        let of = if row.kind == CopyKind::Memset { StartedWork::Fill } else { StartedWork::Copy };
        let work_of = of(row.bytes.unwrap());
        let ran =
            RanWork { correlation: room(number), start_ns: row.start_ns, stream, work: work_of };
        work.insert(number, (ran, row.start_ns + row.duration_ns));
    }
    enum Event {
        Called(StartingCall),
        Recorded(u32, u64),
        Ran(RanWork),
    }
    // CUPTI's records arrive with the flush after the next one.
    let flushed = |end_ns: u64| (end_ns / S + 2) * S;
    let mut all = ByOrder::default();
    let mut events = Vec::new();
    let mut truth = HashMap::new();
    let mut numbers = Vec::new();
    for span in rows_of::<Span>(file) {
        let (Some(number), true) =
            (span.correlation, matches!(span.kind, SpanKind::Runtime | SpanKind::Driver))
        else {
            continue;
        };
        let end_ns = span.start_ns + span.duration_ns;
        numbers.push((span.start_ns, number));
        match work.get(&number).filter(|_| hooked.contains(&file.name(span.name))) {
            Some((ran, _)) => {
                // A hook reads its clock before the call begins.
                let row = Span { start_ns: span.start_ns - 100, correlation: None, ..span };
                truth.insert((row.start_ns, row.thread), number);
                all.is_from(Handle::Stream(ran.stream, 0, ran.stream), 0);
                if let StartedWork::Kernel(name) = ran.work {
                    all.is_from(Handle::Kernel(name, name), 0);
                }
                let (stream, work) = (ran.stream, ran.work);
                let call = StartingCall { row, stream, work, may_be_captured: false };
                events.push((end_ns, Event::Called(call)));
            }
            None if UNRECORDED.contains(&file.name(span.name)) => {}
            None => events.push((flushed(end_ns), Event::Recorded(room(number), span.start_ns))),
        }
    }
    // The agent's own calls are between those of the job.
    let mut last_ns = 0;
    numbers.sort();
    for (start_ns, number) in numbers {
        if start_ns > last_ns + MARK_NS {
            last_ns = start_ns;
            events.push((flushed(start_ns), Event::Recorded(room(number) - 1, start_ns - 200)));
        }
    }
    let mut in_order: Vec<_> = work.into_values().collect();
    in_order.sort_by_key(|(_, end_ns)| *end_ns);
    let middle = in_order.len() / 2;
    for (at, (ran, end_ns)) in in_order.into_iter().enumerate() {
        if !(middle..middle + lost).contains(&at) {
            events.push((flushed(end_ns), Event::Ran(ran)));
        }
    }
    events.sort_by_key(|(at_ns, _)| *at_ns);
    let mut judged = Judged::default();
    let mut judge = |rows: Vec<Span>| {
        for row in rows {
            match row.correlation {
                None => judged.not_joined += 1,
                Some(number) if number == u64::from(room(truth[&(row.start_ns, row.thread)])) => {
                    judged.right += 1
                }
                Some(_) => judged.wrong += 1,
            }
        }
    };
    let mut last_ns = 0;
    for (at_ns, event) in events {
        if at_ns > last_ns + S / 4 {
            judge(all.settle(at_ns, false));
            last_ns = at_ns;
        }
        match event {
            Event::Called(call) => all.called(call),
            Event::Recorded(number, start_ns) => all.recorded(number, start_ns),
            Event::Ran(ran) => all.ran(ran),
        }
    }
    judge(all.settle(last_ns + S, true));
    (judged, all.found)
}

/// Returns the recorded runs of an H200: those in the repository, and those in the folder of shared
/// data if there is one.
fn recorded_runs() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/gpu-runs");
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var_os("TPROF_SHARED_DATA").map_or(beside, PathBuf::from);
    let folders = [own, data.join("gpu-h200/runs")];
    let runs = folders.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten());
    let runs = runs.map(|entry| entry.unwrap()).map(|run| (run.file_name(), run.path()));
    let files: BTreeMap<_, _> = runs.map(|(name, run)| (name, run.join("rank-0.tprof"))).collect();
    files.into_values().filter(|file| file.is_file()).collect()
}

#[test]
fn on_a_device_order_joins_as_cuptis_numbers_do() {
    let runs = recorded_runs();
    assert!(!runs.is_empty());
    for path in runs {
        let file = TraceFile::open(&path).unwrap();
        let (whole, found) = replayed(&file, 0);
        assert_eq!((whole.wrong, whole.not_joined), (0, 0), "{}: {found:?}", path.display());
        // As many records are lost as a full buffer contains, or fewer in a short run.
        let lost = (whole.right / 20).min(5_000);
        let (cut, found) = replayed(&file, lost);
        assert_eq!(cut.wrong, 0, "{}: {found:?}", path.display());
        assert!(cut.right * 10 >= whole.right * 8, "{}: {cut:?} {found:?}", path.display());
    }
}
