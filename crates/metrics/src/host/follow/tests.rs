use proptest::prelude::*;
use tprof_fixture::Fixture;
use tprof_rank::samples::Part;
use tprof_trace::TraceFile;
use tprof_trace::model::{SYNTHETIC_FRAME, Stack, Symbol, Thread};

use super::*;
use crate::host::ledger::Ledger;

use ThreadState::{Lock, Poll, Running, Sleep};

const WINDOW: Interval = Interval { start: 0, end: 10_000 };
/// Names of the threads by number; the first one drives.
const THREADS: [&str; 7] =
    ["python3", "pt_autograd_0", "maker_0", "hog", "tprof-cupti", "cuda-EvtHandlr", "maker_1"];

/// The stacks of tests; their numbers begin with 1.
const STACKS: [&[(&str, &str)]; 9] = [
    // 1: the driving thread works.
    &[("train", "/me/train.py")],
    // 2: waits for a condition below the driving thread's line.
    &[
        ("pthread_cond_wait", "libc.so.6"),
        ("torch::autograd::Engine::execute_with_graph_task", "libtorch_cpu.so"),
        ("_engine_run_backward", "/x/site-packages/torch/autograd/graph.py"),
        ("train", "/me/train.py"),
    ],
    // 3 and 4: autograd's thread works, and waits for a task.
    &[("at::mm", "libtorch_cpu.so"), ("torch::autograd::Engine::thread_main", "libtorch_cpu.so")],
    &[
        ("pthread_cond_wait", "libc.so.6"),
        ("torch::autograd::Engine::thread_main", "libtorch_cpu.so"),
    ],
    // 5: a function of the user's own code.
    &[("make", "/me/train.py")],
    // 6: takes data that a thread makes.
    &[
        ("pthread_cond_wait", "libc.so.6"),
        ("Queue.get", "/usr/lib/python3.11/queue.py"),
        ("train", "/me/train.py"),
    ],
    // 7: waits for a mutex.
    &[("pthread_mutex_lock", "libc.so.6"), ("train", "/me/train.py")],
    // 8: polls for a device.
    &[("__poll", "libc.so.6"), ("handle", "libcuda.so.1")],
    // 9: waits for a condition, without a hint at the thread.
    &[("pthread_cond_wait", "libc.so.6"), ("wait", "libwork.so"), ("train", "/me/train.py")],
];

fn row(thread: u32, state: ThreadState, stack: u32, from: u64, to: u64) -> Sample {
    let weight_ns = to - from;
    let (time_ns, cpu) = match state {
        Running => (from, Some(0)),
        _ => (from, None),
    };
    Sample { time_ns, thread, stack, weight_ns, state, cpu, ..Sample::default() }
}

fn made(others: &[Sample]) -> TraceFile {
    let mut made = Fixture::new();
    for (thread, name) in (0..).zip(THREADS) {
        made.writer.thread(&Thread { thread, process: 0, tid: 100 + thread, start_ns: 0 });
        let name = made.name(name);
        made.writer.thread_name(thread, 0, name);
    }
    let mut address = SYNTHETIC_FRAME;
    for (stack, functions) in (1..).zip(STACKS) {
        let mut frames = Vec::new();
        for (function, place) in functions {
            address += 1;
            let is_python = place.ends_with(".py");
            let [file, module] = if is_python { [*place, "[python]"] } else { ["", *place] };
            let [function, file, module] = [*function, file, module].map(|text| made.name(text));
            let line = if is_python { 7 } else { 0 };
            made.writer.symbol(&Symbol {
                process: 0,
                address,
                depth: 0,
                function,
                file,
                line,
                module,
            });
            frames.push(address);
        }
        made.writer.stack(&Stack { process: 0, stack, end: 0, frames });
    }
    made.writer.write(&mut others.to_vec()).unwrap();
    made.finish()
}

/// Returns a driving thread's rows with those of the threads that it waits for, given the rows of
/// others.
fn rows(file: &TraceFile, own: &[Sample]) -> (Vec<Sample>, AwaitedThreads) {
    let cpu = CpuTrace::load(file);
    let (process, thread, tid) = (0, 0, 100);
    let driver = Driver { process, thread, tid, name: "".into(), start_ns: 0, end_ns: WINDOW.end };
    follow(file, &cpu, &driver, own.to_vec(), WINDOW, AwaitedThreads::from(9))
}

/// Returns the ledger of a driving thread's rows, given the rows of others.
fn ledger(own: &[Sample], others: &[Sample]) -> Ledger {
    let file = made(&[own, others].concat());
    let (rows, awaited_threads) = rows(&file, own);
    Ledger::of(&file, &rows, WINDOW, &awaited_threads).0
}

fn parts(ledger: &Ledger) -> Vec<(Part, u64)> {
    let mut parts: Vec<_> = ledger.parts.iter().map(|(part, all)| (*part, all.ns)).collect();
    parts.retain(|(_, ns)| *ns > 0);
    parts.sort();
    parts
}

fn followed(ledger: &Ledger) -> Vec<(String, Part, u64)> {
    let of = ledger.followed.iter().filter(|(_, all)| all.ns > 0);
    let mut all: Vec<_> = of.map(|((name, _, part), all)| (name.clone(), *part, all.ns)).collect();
    all.sort();
    all
}

/// Makes the rows of a thread that works from one time to another and is idle before and after it.
fn works(thread: u32, idle: u32, stack: u32, from: u64, to: u64) -> Vec<Sample> {
    let mut rows = vec![row(thread, Lock, idle, 0, from), row(thread, Lock, idle, to, WINDOW.end)];
    rows.extend((from..to).step_by(100).map(|at| row(thread, Running, stack, at, at + 100)));
    rows
}

/// Makes the rows of a driving thread that runs except for one wait.
fn waits(stack: u32, from: u64, to: u64) -> Vec<Sample> {
    let runs = (0..from).chain(to..WINDOW.end).step_by(100);
    let mut rows: Vec<Sample> = runs.map(|at| row(0, Running, 1, at, at + 100)).collect();
    rows.push(row(0, Lock, stack, from, to));
    rows
}

#[test]
fn a_backward_pass_shows_autograds_thread_below_the_calling_line() {
    let ledger = ledger(&waits(2, 4000, 8000), &works(1, 4, 3, 4100, 7900));
    let expected = [(Part::Python, 6000), (Part::Native, 3800), (Part::Other, 200)];
    assert_eq!(parts(&ledger), expected);
    assert_eq!(followed(&ledger), [("pt_autograd_0".to_owned(), Part::Native, 3800)]);
    let (place, _) = ledger.places(Some(Part::Native))[0];
    assert_eq!((place.shown(), &*place.below), ("train (train.py:7)".to_owned(), "at::mm"));
    assert!(place.is_of_waiter && place.thread == "pt_autograd_0");
    let (place, _) = ledger.places(Some(Part::Other))[0];
    assert_eq!((place.cause, &*place.thread), (crate::host::OtherCause::Work, ""));
}

#[test]
fn a_thread_that_works_only_during_a_wait_is_awaited() {
    let hog = (0..100).map(|at| row(3, Running, 1, at * 100, at * 100 + 100));
    let others: Vec<Sample> = works(2, 9, 5, 4000, 8000).into_iter().chain(hog).collect();
    let ledger = ledger(&waits(9, 4000, 8000), &others);
    assert_eq!(followed(&ledger), [("maker_0".to_owned(), Part::Python, 4000)]);
    let places = ledger.places(Some(Part::Python));
    let of_maker = places.iter().find(|(place, _)| place.thread == "maker_0").unwrap();
    assert_eq!((&*of_maker.0.function, of_maker.0.is_of_waiter), ("make", false));
}

#[test]
fn a_wait_without_a_working_thread_stays_a_wait_and_is_not_a_lock() {
    let polls = [row(5, Poll, 8, 0, WINDOW.end)];
    let tprofs = (0..100).map(|at| row(4, Running, 3, at * 100, at * 100 + 100));
    let others: Vec<Sample> = polls.into_iter().chain(tprofs).collect();
    let found = ledger(&waits(2, 4000, 8000), &others);
    assert_eq!(parts(&found), [(Part::Python, 6000), (Part::Other, 4000)]);
    assert_eq!(followed(&found), []);
    // A wait for a mutex stays a wait for a lock, even if a thread worked during it.
    let found = ledger(&waits(7, 4000, 8000), &works(2, 9, 5, 4000, 8000));
    assert_eq!(parts(&found), [(Part::Python, 6000), (Part::Lock, 4000)]);
}

#[test]
fn a_wait_may_be_for_several_threads_in_turn() {
    let others = [works(2, 9, 5, 4000, 6000), works(1, 4, 3, 6000, 8000)].concat();
    let ledger = ledger(&waits(9, 4000, 8000), &others);
    let expected = [("maker_0", Part::Python, 2000), ("pt_autograd_0", Part::Native, 2000)];
    assert_eq!(followed(&ledger), expected.map(|(name, part, ns)| (name.to_owned(), part, ns)));
}

#[test]
fn of_threads_that_take_turns_only_the_running_one_counts() {
    let turns = |thread: u32, first: u64| {
        (0..100_u64).map(move |at| match at % 2 == first {
            true => row(thread, Running, 5, at * 100, at * 100 + 100),
            // Half of the waits of threads that take turns have no stack.
            false if at % 4 < 2 => row(thread, ThreadState::Gil, 5, at * 100, at * 100 + 100),
            false => row(thread, ThreadState::Blocked, 0, at * 100, at * 100 + 100),
        })
    };
    let others: Vec<Sample> = turns(2, 0).chain(turns(6, 1)).collect();
    let own = waits(9, 4000, 8000);
    let file = made(&[&own[..], &others].concat());
    let (rows, awaited_threads) = rows(&file, &own);
    let found = Ledger::of(&file, &rows, WINDOW, &awaited_threads).0;
    assert_eq!(followed(&found), [("maker_*".to_owned(), Part::Python, 4000)]);
    // Each row still tells which thread of the team ran.
    let ran = |own: u32| {
        let of = rows.iter().filter(|row| awaited_threads.own(row.thread) == Some(own));
        of.filter(|row| row.state == Running).map(|row| row.weight_ns).sum::<u64>()
    };
    assert_eq!((ran(2), ran(6), ran(0)), (2000, 2000, 0));
    // If there is only one such thread, it waits for its turn while no other thread runs.
    let others: Vec<Sample> = turns(2, 0).collect();
    let found = ledger(&waits(9, 4000, 8000), &others);
    let of_gil = ("maker_0".to_owned(), Part::Gil, 2000);
    assert_eq!(followed(&found)[1..], [of_gil]);
}

#[test]
fn a_data_makers_sleep_is_a_wait_for_data_and_its_work_is_followed() {
    let idle = [row(2, Lock, 9, 0, 4000), row(2, Lock, 9, 8000, WINDOW.end)];
    let sleeps = [&idle[..], &[row(2, Sleep, 5, 4000, 8000)]].concat();
    let found = ledger(&waits(6, 4000, 8000), &sleeps);
    assert_eq!(parts(&found), [(Part::Python, 6000), (Part::Data, 4000)]);
    let found = ledger(&waits(6, 4000, 8000), &works(2, 9, 5, 4000, 8000));
    assert_eq!(followed(&found), [("maker_0".to_owned(), Part::Python, 4000)]);
    // In a wait for a condition, the driving thread waits for the other thread to wake up.
    let found = ledger(&waits(9, 4000, 8000), &sleeps);
    assert_eq!(followed(&found), [("maker_0".to_owned(), Part::Other, 4000)]);
}

#[test]
fn summed_waits_and_waits_without_a_stack_are_followed() {
    // There are ten steps: each runs for 500 ns and waits for 500 ns; only one wait has an exact
    // row.
    let mut own = Vec::new();
    let mut others = Vec::new();
    for step in 0..10_u64 {
        let at = step * 1000;
        own.extend((0..5).map(|i| row(0, Running, 1, at + i * 100, at + i * 100 + 100)));
        others.extend((5..10).map(|i| row(1, Running, 3, at + i * 100, at + i * 100 + 100)));
        others.push(row(1, Lock, 4, at, at + 500));
    }
    own.push(row(0, Lock, 2, 500, 1000));
    own.push(Sample { weight_ns: 2000, spread_ns: Some(4000), ..row(0, Lock, 2, 1500, 1600) });
    own.push(row(0, ThreadState::Blocked, 0, 5500, 6000));
    own.push(Sample {
        weight_ns: 2000,
        spread_ns: Some(4000),
        ..row(0, ThreadState::Blocked, 0, 6000, 6100)
    });
    let ledger = ledger(&own, &others);
    assert_eq!(parts(&ledger), [(Part::Python, 5000), (Part::Native, 5000)]);
    assert_eq!(followed(&ledger), [("pt_autograd_0".to_owned(), Part::Native, 5000)]);
}

proptest! {
    #[test]
    fn parts_add_up_to_the_wall_time(
        own in prop::collection::vec((1_u64..2000, 0_u8..6, 1_u32..10, any::<bool>()), 0..20),
        others in prop::collection::vec((0_u64..9000, 1_u64..900, 0_u8..6, 1_u32..10, 1_u32..6), 0..60),
    ) {
        let states = [Running, Running, Lock, Sleep, ThreadState::Blocked, ThreadState::Runnable];
        let mut at = 0;
        let own = own.into_iter().filter_map(|(length, state, stack, is_added)| {
            let from = at;
            at += length;
            let state = states[state as usize];
            let stack = if state == ThreadState::Blocked { 0 } else { stack };
            let row = row(0, state, stack, from, at);
            let is_added = is_added && state != Running;
            let spread_ns = is_added.then_some(length + length / 2);
            (at < WINDOW.end).then_some(Sample { spread_ns, ..row })
        });
        let own: Vec<Sample> = own.collect();
        let own = crate::host::cut::rows_in(&own, WINDOW);
        let others: Vec<Sample> = others
            .into_iter()
            .map(|(from, length, state, stack, thread)| {
                row(thread, states[state as usize], stack, from, from + length)
            })
            .collect();
        let ledger = ledger(&own, &others);
        let sum = |of: &mut dyn Iterator<Item = u64>| of.sum::<u64>();
        prop_assert_eq!(sum(&mut ledger.parts.values().map(|all| all.ns)), WINDOW.length());
        let followed = sum(&mut ledger.followed.values().map(|all| all.ns));
        prop_assert!(followed <= WINDOW.length());
    }
}
