//! Tests of DataWait in three situations: other processes run beside the workers, workers are still
//! starting, and one worker has all the work.

use tprof_trace::model::{
    FileCalls, FileKind, FileOperation, Process, Sample, Stack, Symbol, Thread, ThreadState,
};

use super::job::{Job, MS, ask};
use crate::outcome::Outcome;

const QUEUES: &str = "/lib/python3.14/multiprocessing/queues.py";
const BOOT: (&str, &str) = ("BaseProcess._bootstrap", "/lib/python3.14/multiprocessing/process.py");
const SPAWN: (&str, &str) = ("spawn_main", "/lib/python3.14/multiprocessing/spawn.py");
const IMPORT: (&str, &str) = ("_find_and_load", "<frozen importlib._bootstrap>");
const TORCH: (&str, &str) = ("<module>", "/lib/site-packages/torch/__init__.py");
/// For each item, the driving thread waits for this long and then works for [`WORKS`].
const WAITS: u64 = 16 * MS;
const WORKS: u64 = 4 * MS;
const ITEMS: u64 = 50;
const ITEM: u64 = WAITS + WORKS;

/// A job whose driving thread takes items from a queue, while other processes run.
struct WorkersJob {
    job: Job,
    stacks: u32,
    rows: Vec<Sample>,
}

impl WorkersJob {
    fn new() -> WorkersJob {
        WorkersJob::waits_in(&[("Queue.get", QUEUES), ("main", "/me/train.py")])
    }

    /// The same, where the driving thread waits in these functions, innermost first.
    fn waits_in(functions: &[(&str, &str)]) -> WorkersJob {
        let mut made = WorkersJob { job: Job::new(1, ITEMS * ITEM), stacks: 0, rows: Vec::new() };
        let get = made.stack(0, functions);
        let train = made.stack(0, &[("main", "/me/train.py")]);
        for item in 0..ITEMS {
            made.wait(0, get, ThreadState::Io, item * ITEM, WAITS);
            made.ran(0, train, item * ITEM + WAITS, WORKS);
        }
        made
    }

    /// Adds a process with one thread. `number` is the index of both.
    fn process(&mut self, number: u32, start_ns: u64) {
        let (command, exe) = (self.job.fixture.name("python -c x"), self.job.fixture.name(""));
        let (pid, parent, rank) = (4711 + number * 10, 4711, Some(0));
        let memory = tprof_trace::model::MemoryRecording::Off;
        let row = Process { process: number, pid, parent, rank, command, exe, start_ns, memory };
        self.job.fixture.writer.process(&row);
        let thread = Thread { thread: number, process: number, tid: pid, start_ns };
        self.job.fixture.writer.thread(&thread);
    }

    /// Adds a stack of Python functions, innermost first, and returns its id.
    fn stack(&mut self, process: u32, functions: &[(&str, &str)]) -> u32 {
        self.stacks += 1;
        let stack = self.stacks;
        let frames: Vec<u64> =
            (0..functions.len()).map(|at| u64::from(stack) * 16 + at as u64).collect();
        for (&address, (function, file)) in frames.iter().zip(functions) {
            let [function, file, module] =
                [*function, *file, "[python]"].map(|text| self.job.fixture.name(text));
            let symbol = Symbol { process, address, depth: 0, function, file, line: 7, module };
            self.job.fixture.writer.symbol(&symbol);
        }
        self.job.fixture.writer.stack(&Stack { process, stack, end: 0, frames });
        stack
    }

    fn wait(&mut self, process: u32, stack: u32, state: ThreadState, from: u64, length: u64) {
        let (thread, time_ns, weight_ns) = (process, from, length);
        self.rows.push(Sample {
            process,
            thread,
            stack,
            state,
            time_ns,
            weight_ns,
            ..Sample::default()
        });
    }

    /// Adds a sample on a core for each millisecond.
    fn ran(&mut self, process: u32, stack: u32, from: u64, length: u64) {
        let (thread, state, cpu) = (process, ThreadState::Running, Some(0));
        self.rows.extend((0..length / MS).map(|at| {
            let time_ns = from + at * MS + MS / 2;
            Sample {
                process,
                thread,
                stack,
                state,
                time_ns,
                weight_ns: MS,
                cpu,
                ..Sample::default()
            }
        }));
    }

    /// Adds a process that waits at one place for the whole time.
    fn idles(&mut self, process: u32, functions: &[(&str, &str)], state: ThreadState) {
        self.process(process, 0);
        let stack = self.stack(process, functions);
        self.wait(process, stack, state, 0, ITEMS * ITEM);
    }

    /// Adds a service of `multiprocessing` that polls once per `period`.
    fn polls(&mut self, process: u32, period: u64) {
        self.process(process, 0);
        let stack = self.stack(process, &[("service", "/me/service.py"), BOOT]);
        for at in 0..ITEMS * ITEM / period {
            self.wait(process, stack, ThreadState::Poll, at * period, period - MS / 20);
        }
    }

    /// Adds reads of many small files by a process.
    fn reads_files(&mut self, process: u32, ms: u64) {
        let [file, file_system] =
            ["/data/*.jpg", "ext4 at / (/dev/vda)"].map(|text| self.job.fixture.name(text));
        let mut reads = vec![FileCalls {
            process,
            thread: process,
            file,
            file_system,
            kind: FileKind::File,
            operation: FileOperation::Read,
            calls: 5_000,
            bytes: 5_000 << 10,
            busy_ns: ms * MS,
            duration_ns: ITEMS * ITEM,
            ..FileCalls::default()
        }];
        self.job.fixture.writer.write(&mut reads).unwrap();
    }

    fn asked(mut self) -> Outcome {
        self.rows.sort_by_key(|row| row.time_ns);
        self.job.fixture.writer.write(&mut self.rows).unwrap();
        ask(&self.job.fixture.finish(), "DataWait")
    }
}

/// Adds helper processes: Python's fork server and resource tracker, a service on a socket, and
/// processes that poll.
fn helpers(made: &mut WorkersJob) {
    let tracker = ("main", "/lib/python3.14/multiprocessing/resource_tracker.py");
    made.idles(10, &[tracker, ("<module>", "<string>")], ThreadState::Io);
    let server = ("main", "/lib/python3.14/multiprocessing/forkserver.py");
    made.idles(11, &[server, ("<module>", "<string>")], ThreadState::Poll);
    made.idles(12, &[("serve", "/me/service.py"), BOOT], ThreadState::Io);
    made.polls(13, 7 * MS);
    made.polls(14, 90 * MS);
}

#[test]
fn a_computing_worker_is_the_advice_despite_waiting_helpers() {
    let mut made = WorkersJob::new();
    made.process(1, 0);
    let make = made.stack(1, &[("make", "/me/data.py"), BOOT]);
    let full = made.stack(1, &[("Queue.put", QUEUES), ("feed", "/me/data.py"), BOOT]);
    for item in 0..ITEMS {
        made.ran(1, make, item * ITEM, WAITS);
        made.wait(1, full, ThreadState::Lock, item * ITEM + WAITS, WORKS);
    }
    helpers(&mut made);
    let outcome = made.asked();
    let [(finding, _)] = &outcome.found[..] else { panic!("{:?}", outcome.found) };
    assert!(finding.advice.starts_with("Make make (data.py:7) cheaper"), "{}", finding.advice);
    assert!(!finding.seen.contains("They wait themselves"), "{}", finding.seen);
}

/// Adds a worker that mostly waits, at `fetch`, and that puts an item into the queue right before
/// the driving thread continues.
fn fetches(made: &mut WorkersJob) {
    made.process(1, 0);
    let read = made.stack(1, &[("fetch", "/me/data.py"), BOOT]);
    let (wait_ns, put_ns) = (ITEM - MS / 2, MS / 2);
    for item in 0..ITEMS {
        let from = (item * ITEM + WAITS).saturating_sub(wait_ns);
        let until = item * ITEM + WAITS - put_ns;
        made.wait(
            1,
            read,
            ThreadState::Sleep,
            from.max(item.saturating_sub(1) * ITEM),
            until - from,
        );
    }
}

#[test]
fn a_waiting_worker_is_the_advice_despite_another_busy_process() {
    const BUSY: u64 = 200 * MS;
    const SLEEPS: u64 = 20 * MS;
    let mut made = WorkersJob::new();
    fetches(&mut made);
    made.process(2, 0);
    let busy = made.stack(2, &[("compress", "/me/archive.py"), BOOT]);
    let sleeps = made.stack(2, &[("idle", "/me/archive.py"), BOOT]);
    for at in 0..ITEMS * ITEM / (BUSY + SLEEPS) {
        made.ran(2, busy, at * (BUSY + SLEEPS), BUSY);
        made.wait(2, sleeps, ThreadState::Sleep, at * (BUSY + SLEEPS) + BUSY, SLEEPS);
    }
    let outcome = made.asked();
    let [(finding, _)] = &outcome.found[..] else { panic!("{:?}", outcome.found) };
    let waits = "Shorten what the workers wait for at fetch (data.py:7)";
    assert!(finding.advice.starts_with(waits), "{}", finding.advice);
    assert!(!finding.seen.contains("compress"), "{}", finding.seen);
}

#[test]
fn a_waiting_worker_is_distinguished_from_idle_helper_processes() {
    let mut made = WorkersJob::new();
    fetches(&mut made);
    helpers(&mut made);
    let outcome = made.asked();
    let [(finding, _)] = &outcome.found[..] else { panic!("{:?}", outcome.found) };
    let waits = "Shorten what the workers wait for at fetch (data.py:7)";
    assert!(finding.advice.starts_with(waits), "{}", finding.advice);
    for helper in ["main", "serve", "service", "<string>"] {
        assert!(
            !finding.seen.contains(&format!("{helper} (")) || helper == "main",
            "{}",
            finding.seen
        );
    }
}

/// A process that sleeps for a fixed time may by chance wake right before every third wait ends.
#[test]
fn a_process_that_wakes_in_step_with_some_waits_is_not_a_worker_beside_one_that_ends_them() {
    let mut made = WorkersJob::new();
    fetches(&mut made);
    made.process(2, 0);
    let looks = made.stack(2, &[("looks", "/me/service.py"), BOOT]);
    let mut from = 0;
    for wakes in (WAITS - MS / 10..ITEMS * ITEM).step_by(3 * ITEM as usize) {
        made.wait(2, looks, ThreadState::Sleep, from, wakes - from);
        from = wakes + MS / 20;
    }
    made.wait(2, looks, ThreadState::Sleep, from, ITEMS * ITEM - from);
    let outcome = made.asked();
    let [(finding, _)] = &outcome.found[..] else { panic!("{:?}", outcome.found) };
    assert!(finding.seen.contains("fetch (data.py:7)"), "{}", finding.seen);
    assert!(!finding.seen.contains("looks"), "{}", finding.seen);
}

#[test]
fn the_start_of_workers_is_a_separate_finding() {
    let mut made = WorkersJob::new();
    made.process(1, 0);
    let half = ITEMS / 2 * ITEM;
    let import = made.stack(1, &[TORCH, IMPORT, ("<module>", "/me/data.py"), SPAWN]);
    let make = made.stack(1, &[("make", "/me/data.py"), BOOT, SPAWN]);
    made.ran(1, import, 0, half);
    made.ran(1, make, half, half);
    let outcome = made.asked();
    let starts = outcome.found.iter().find(|(one, _)| one.subject == "start of workers");
    let (finding, _) = starts.unwrap();
    assert_eq!(finding.bound_ns, ITEMS / 2 * WAITS);
    assert!(finding.seen.contains("mostly in imports of torch"), "{}", finding.seen);
    let work = outcome.found.iter().find(|(one, _)| one.subject.is_empty());
    let (finding, _) = work.unwrap();
    assert_eq!(finding.bound_ns, ITEMS / 2 * WAITS);
    assert!(finding.advice.starts_with("Make make"), "{}", finding.advice);
}

#[test]
fn more_workers_are_not_advised_if_one_has_all_the_work() {
    let mut made = WorkersJob::new();
    for process in 1..5 {
        made.process(process, 0);
        let task = made.stack(process, &[("Queue.get", QUEUES), ("worker", "/lib/pool.py"), BOOT]);
        let slow =
            made.stack(process, &[("slow", "/me/data.py"), ("worker", "/lib/pool.py"), BOOT]);
        if process == 3 {
            made.ran(process, slow, 0, ITEMS * ITEM - MS);
        } else {
            made.wait(process, task, ThreadState::Io, 0, ITEMS * ITEM);
        }
    }
    let outcome = made.asked();
    let (finding, _) = &outcome.found[0];
    assert!(
        finding.advice.starts_with("Divide slow (data.py:7) more evenly"),
        "{}",
        finding.advice
    );
    assert!(finding.advice.contains("process 4741"), "{}", finding.advice);
}

#[test]
fn what_a_pool_computes_is_not_called_data() {
    let what = |functions: &[(&str, &str)]| {
        let mut made = WorkersJob::waits_in(functions);
        made.process(1, 0);
        let computes = made.stack(1, &[("simulates", "/me/simulate.py"), BOOT]);
        for item in 0..ITEMS {
            made.ran(1, computes, item * ITEM, WAITS);
        }
        let outcome = made.asked();
        let (finding, _) = outcome.found.first().unwrap_or_else(|| panic!("{outcome:?}"));
        (finding.what.clone(), finding.advice.clone())
    };
    const POOL: &str = "/lib/python3.14/multiprocessing/pool.py";
    let (what_of_pool, advice) =
        what(&[("ApplyResult.get", POOL), ("Pool.map", POOL), ("main", "/me/train.py")]);
    assert_eq!(what_of_pool, "the job waits for what its pool of workers computes");
    assert!(advice.contains("simulates") && !advice.contains("DataLoader"), "{advice}");
    let (what_of_queue, _) = what(&[("Queue.get", QUEUES), ("main", "/me/train.py")]);
    assert_eq!(what_of_queue, "the job waits for its next data");
}

#[test]
fn a_wait_for_data_that_workers_read_in_small_pieces_is_left_to_the_rule_on_reads() {
    let made = |ms| {
        let mut made = WorkersJob::new();
        made.process(1, 0);
        let stack = made.stack(1, &[("load", "/me/data.py"), BOOT]);
        made.ran(1, stack, 0, ITEMS * ITEM);
        made.reads_files(1, ms);
        made.asked()
    };
    let explained = made(ITEMS * WAITS / MS * 3 / 4);
    assert!(explained.found.is_empty() && explained.no_problem.is_some(), "{explained:?}");
    assert_eq!(made(ITEMS * WAITS / MS / 4).found.len(), 1);
}
