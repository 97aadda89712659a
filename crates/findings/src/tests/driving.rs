//! Tests of NoFreeCore and DataInline, and of the notes on other programs and on few samples.

use tprof_document::Cell;
use tprof_trace::model::{Module, Sample, Stack, Symbol, Thread, ThreadState};

use super::super::tables;
use super::job::{Job, MS, ask, judged};

const LOADER: &str = "/lib/torch/utils/data/dataloader.py";

/// Builds a job of two steps of 100 ms, in twenty periods of 10 ms. In `of_ten` of every ten
/// periods, the driving thread is ready to run but has no core. In `sampled` of the other periods,
/// it has a sample on a core.
fn without_core(of_ten: u64, sampled: u64) -> Job {
    let mut job = Job::new(2, 100 * MS);
    let symbol = Symbol {
        process: 0,
        address: 16,
        depth: 0,
        function: job.fixture.name("train_step"),
        file: job.fixture.name("train.py"),
        line: 3,
        module: job.fixture.name("[python]"),
    };
    job.fixture.writer.symbol(&symbol);
    job.fixture.writer.stack(&Stack { process: 0, stack: 1, end: 0, frames: vec![16] });
    let row = |at: u64| match at % 10 < of_ten {
        true => Sample { time_ns: at * 10 * MS, state: ThreadState::Runnable, ..Sample::default() },
        false => Sample {
            time_ns: (at + 1) * 10 * MS - 1,
            state: ThreadState::Running,
            stack: 1,
            cpu: Some(0),
            ..Sample::default()
        },
    };
    let rows = (0..20).map(row).map(|row| Sample { weight_ns: 10 * MS, ..row });
    let mut left = sampled;
    let mut rows: Vec<Sample> = rows
        .filter(|row| {
            let keep = row.state != ThreadState::Running || left > 0;
            left -= u64::from(row.state == ThreadState::Running && left > 0);
            keep
        })
        .collect();
    job.fixture.writer.write(&mut rows).unwrap();
    job
}

#[test]
fn time_of_other_programs_is_a_note_and_not_a_finding() {
    let rank = judged(&without_core(5, 20).fixture.finish(), "rank 0");
    let body = tables::body(&[rank]);
    assert_eq!(
        body.notes[0],
        "the machine was busy: 50.0 % of the driving thread's time was lost to other programs; \
         wall times below are inflated"
    );
    let rows = |key: &str| &body.tables.iter().find(|table| table.key == key).unwrap().rows;
    assert!(rows("findings").iter().all(|row| row[2] != "NoFreeCore".into()));
    let lost = &rows("lost_to_others")[0];
    assert_eq!((&lost[1], &lost[2]), (&Cell::from(100 * MS), &Cell::from(0.5)));
    let quiet = tables::body(&[judged(&without_core(0, 20).fixture.finish(), "rank 0")]);
    assert!(quiet.notes.iter().all(|note| !note.contains("busy")), "{:?}", quiet.notes);
}

#[test]
fn with_few_samples_a_note_says_what_to_record() {
    let notes = |sampled| {
        let rank = judged(&without_core(0, sampled).fixture.finish(), "rank 0");
        tables::body(&[rank]).notes
    };
    let few = "only 5 samples of the driving thread lie in the judged time, too few to divide it by \
               function: use `--sample-rate 999` or record 50 steps";
    assert!(notes(5).iter().any(|note| note == few), "{:?}", notes(5));
    assert!(notes(20).iter().all(|note| !note.contains("too few")), "{:?}", notes(20));
}

#[test]
fn loading_by_the_driving_thread_has_the_line_of_the_dataset() {
    let mut job = Job::new(2, 100 * MS);
    let fetch = ("_MapDatasetFetcher.fetch", "/lib/torch/utils/data/_utils/fetch.py");
    let next = ("_SingleProcessDataLoaderIter._next_data", LOADER);
    let stacks: [&[(&str, &str)]; 2] = [
        &[("Events.__getitem__", "/me/events.py"), fetch, next],
        &[("train_step", "/me/train.py")],
    ];
    for (stack, functions) in (1_u32..).zip(stacks) {
        let frames: Vec<u64> =
            (0..functions.len()).map(|at| u64::from(stack) * 16 + at as u64).collect();
        for (&address, (function, file)) in frames.iter().zip(functions) {
            let [function, file, module] =
                [function, file, &"[python]"].map(|text| job.fixture.name(text));
            let symbol = Symbol { process: 0, address, depth: 0, function, file, line: 22, module };
            job.fixture.writer.symbol(&symbol);
        }
        job.fixture.writer.stack(&Stack { process: 0, stack, end: 0, frames });
    }
    let row = |at: u64| Sample {
        time_ns: (at + 1) * 10 * MS - 1,
        weight_ns: 10 * MS,
        state: ThreadState::Running,
        stack: if at % 10 < 8 { 1 } else { 2 },
        cpu: Some(0),
        ..Sample::default()
    };
    let mut rows: Vec<Sample> = (0..20).map(row).collect();
    job.fixture.writer.write(&mut rows).unwrap();
    let file = job.fixture.finish();
    let outcome = ask(&file, "DataInline");
    let (finding, _) = &outcome.found[0];
    assert_eq!((finding.bound_ns, finding.line.as_ref().unwrap().line), (160 * MS, 22));
    assert_eq!(
        finding.seen,
        "The driving thread loads the data itself for 160.0 ms (80.0 %), 80.0 % of its CPU time: Events.__getitem__ (events.py:22) 160.0 ms."
    );
    let workers = "num_workers=4, persistent_workers=True) a step takes 20.0 ms at best in place of \
                   100.0 ms";
    assert!(finding.advice.contains(workers), "{}", finding.advice);
    // The time is no wait for workers, and the function that loads isn't reported as hot.
    assert!(ask(&file, "DataWait").found.is_empty());
    let hot = ask(&file, "HotFunction");
    assert_eq!(hot.found.len(), 1);
    assert_eq!(hot.found[0].0.subject, "train_step");
}

#[test]
fn hot_code_without_names_has_no_line_and_the_advice_to_install_them() {
    let mut job = Job::new(2, 100 * MS);
    let (path, build_id) = (job.fixture.name("/usr/bin/gzip"), job.fixture.name(""));
    let (process, start, end, bias, time_ns) = (0, 4096, 8192, 0, 0);
    let module = Module { process, start, end, bias, path, build_id, time_ns };
    job.fixture.writer.module(&module);
    job.fixture.writer.stack(&Stack { process: 0, stack: 1, end: 0, frames: vec![5000] });
    let row = |at: u64| Sample {
        time_ns: (at + 1) * 10 * MS - 1,
        weight_ns: 10 * MS,
        state: ThreadState::Running,
        stack: 1,
        cpu: Some(0),
        ..Sample::default()
    };
    let mut rows: Vec<Sample> = (0..20).map(row).collect();
    job.fixture.writer.write(&mut rows).unwrap();
    let (finding, _) = &ask(&job.fixture.finish(), "HotFunction").found[0];
    let seen = "(gzip, no name) ran for 200.0 ms (100.0 %), 100.0 % of its thread's CPU time, by 20 \
                samples.";
    assert_eq!(finding.seen, seen);
    assert!(finding.advice.starts_with("Install the debug information of gzip"), "{finding:?}");
}

/// Builds a job whose driving thread waits for the end of two threads. Of each 100 ms, these wait for
/// locks for all of the time, or for 60 ms and run for the rest.
fn two_threads(only_wait: bool) -> Job {
    let mut job = Job::new(0, 0);
    let stacks: [&[(&str, &str, u32)]; 3] = [
        &[
            ("Thread.join", "/usr/lib/python3.11/threading.py", 1119),
            ("<module>", "/me/dead.py", 15),
        ],
        &[("first", "/me/dead.py", 6)],
        &[("second", "/me/dead.py", 11)],
    ];
    let mut rows = Vec::new();
    for (thread, functions) in stacks.iter().enumerate() {
        let (thread, stack) = (thread as u32, thread as u32 + 1);
        if thread > 0 {
            let (process, tid, start_ns) = (0, 4712 + thread, 0);
            job.fixture.writer.thread(&Thread { thread, process, tid, start_ns });
        }
        let frames: Vec<u64> =
            (0..functions.len() as u64).map(|at| stack as u64 * 16 + at).collect();
        for (&address, &(function, file, line)) in frames.iter().zip(*functions) {
            let [function, file, module] =
                [function, file, "[python]"].map(|text| job.fixture.name(text));
            let symbol = Symbol { process: 0, address, depth: 0, function, file, line, module };
            job.fixture.writer.symbol(&symbol);
        }
        job.fixture.writer.stack(&Stack { process: 0, stack, end: 0, frames });
        for at in 0..10 {
            let waited = if only_wait || thread == 0 { 100 * MS } else { 60 * MS };
            let time_ns = at * 100 * MS;
            let wait = Sample { time_ns, thread, stack, ..Sample::default() };
            rows.push(Sample { weight_ns: waited, state: ThreadState::Lock, ..wait });
            for run in 0..(100 * MS - waited) / (10 * MS) {
                rows.push(Sample {
                    time_ns: time_ns + waited + (run + 1) * 10 * MS - 1,
                    weight_ns: 10 * MS,
                    state: ThreadState::Running,
                    cpu: Some(1),
                    ..wait
                });
            }
        }
    }
    job.fixture.writer.write(&mut rows).unwrap();
    job
}

#[test]
fn threads_that_do_nothing_but_wait_for_locks_may_be_in_a_deadlock() {
    let advice = |only_wait| {
        let outcome = two_threads(only_wait).ask("LockContention");
        let (finding, _) = &outcome.found[0];
        assert_eq!(finding.subject, "threads");
        finding.advice.clone()
    };
    assert!(advice(true).contains("deadlock"), "{}", advice(true));
    assert!(advice(false).starts_with("Hold the lock for less time"), "{}", advice(false));
}
