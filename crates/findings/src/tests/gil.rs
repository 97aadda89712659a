//! Tests that GilContention names the thread that holds the lock before the thread that waits.

use tprof_trace::model::{Sample, Stack, Symbol, Thread, ThreadState};

use super::job::{Job, MS, ask};

/// Builds a job with two steps of 100 ms. For most of this time, the driving thread waits for the
/// lock while another thread runs. `gil` is what the samples of that thread say about the lock:
/// whether the thread holds it, or nothing.
fn job(gil: Option<bool>) -> tprof_trace::TraceFile {
    let mut job = Job::new(2, 100 * MS);
    job.fixture.writer.thread(&Thread { thread: 1, process: 0, tid: 4713, start_ns: 0 });
    for (address, function, line) in [(16, "waits", 3), (17, "hog", 7)] {
        let [function, file, module] =
            [function, "/me/train.py", "[python]"].map(|text| job.fixture.name(text));
        let symbol = Symbol { process: 0, address, depth: 0, function, file, line, module };
        job.fixture.writer.symbol(&symbol);
        let stack = Stack { process: 0, stack: address as u32, end: 0, frames: vec![address] };
        job.fixture.writer.stack(&stack);
    }
    let mut rows: Vec<Sample> = Vec::new();
    for at in 0..20 {
        let (weight_ns, state) = (9 * MS, ThreadState::Gil);
        rows.push(Sample {
            time_ns: at * 10 * MS,
            weight_ns,
            state,
            stack: 16,
            ..Sample::default()
        });
        rows.push(Sample {
            time_ns: at * 10 * MS + 5 * MS,
            weight_ns: 10 * MS,
            state: ThreadState::Running,
            thread: 1,
            stack: 17,
            cpu: Some(1),
            gil,
            ..Sample::default()
        });
    }
    job.fixture.writer.write(&mut rows).unwrap();
    job.fixture.finish()
}

#[test]
fn the_line_that_holds_the_gil_comes_before_the_line_that_waits() {
    for (gil, seen) in [
        (Some(true), "Other threads hold it in hog"),
        (None, "Other threads run Python meanwhile, in hog"),
    ] {
        let outcome = ask(&job(gil), "GilContention");
        let (finding, _) = &outcome.found[0];
        let line = finding.line.as_ref().unwrap();
        assert_eq!((&*line.function, line.line), ("hog", 7), "{gil:?}");
        assert!(finding.seen.starts_with(seen), "{}", finding.seen);
        assert!(finding.seen.contains("waits (train.py:3)"), "{}", finding.seen);
        assert!(finding.advice.starts_with("Move hog"), "{}", finding.advice);
    }
}
