//! Tests of the rule HeapGrowth.

use tprof_fixture::Fixture;
use tprof_trace::HeapBlock;
use tprof_trace::model::{
    Counter, Loss, MapEvent, MapKind, MemoryRecording, NameId, Process, SYNTHETIC_FRAME, Sample,
    Stack, Symbol, Thread, ThreadState, counter,
};

use super::super::outcome::Outcome;
use super::super::severity::Severity;
use super::job::{MS, ask};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1000 * MS;

/// Judges a job without steps that allocates 1 MiB at the beginning and 1 MiB after each twentieth
/// of its life, at a line in `file`. `limit` is the memory limit of its cgroup, in which 100 MiB are in
/// use.
fn grows(life_ns: u64, file: &str, limit: Option<u64>) -> Outcome {
    takes(life_ns, file, limit, &|at| at)
}

/// Like [`grows`], but `when` maps the number of each allocation, from 0 to 20, to its time on the
/// same scale.
fn takes(life_ns: u64, file: &str, limit: Option<u64>, when: &dyn Fn(f64) -> f64) -> Outcome {
    takes_with(Fixture::new(), life_ns, file, limit, when)
}

/// Like [`takes`], but adds the allocations to a file that already contains some events.
fn takes_with(
    mut made: Fixture,
    life_ns: u64,
    file: &str,
    limit: Option<u64>,
    when: &dyn Fn(f64) -> f64,
) -> Outcome {
    let process = Process {
        process: 0,
        pid: 4711,
        parent: 1,
        rank: Some(0),
        command: made.name("leak"),
        exe: NameId(0),
        start_ns: 0,
        memory: MemoryRecording::Exact,
    };
    made.writer.process(&process);
    made.writer.thread(&Thread { thread: 0, process: 0, tid: 4711, start_ns: 0 });
    let [function, file, module] = ["keeps", file, "leak"].map(|text| made.name(text));
    let symbol = Symbol { process: 0, address: 16, depth: 0, function, file, line: 12, module };
    made.writer.symbol(&symbol);
    made.writer.stack(&Stack { process: 0, stack: 1, end: 0, frames: vec![16] });
    let mut block = HeapBlock::new(0);
    for at in 0..=20u8 {
        let time_ns = when(f64::from(at)) * life_ns as f64 / 20.0;
        block.alloc(time_ns as u64, 0, MIB, 1, false);
    }
    // The last event fixes the end of the process's life, whenever the last block was allocated.
    block.alloc(life_ns, 0, 1, 1, false);
    made.writer.heap(&mut block).unwrap();
    let mut count = |time_ns, name: &str, bytes: u64| {
        let (name, value) = (made.name(name), bytes as f64);
        made.writer.counter(Counter { time_ns, process: None, device: None, name, value });
    };
    if let Some(limit) = limit {
        count(0, counter::CGROUP_LIMIT_BYTES, limit);
        count(life_ns, counter::CGROUP_BYTES, 100 * MIB);
    }
    ask(&made.finish(), "HeapGrowth")
}

#[test]
fn the_severity_of_growth_follows_from_the_time_until_memory_is_full() {
    let severity = |limit| {
        let outcome = grows(20 * SECOND, "/me/leak.c", limit);
        let (finding, _) = outcome.found.first().unwrap_or_else(|| panic!("{outcome:?}"));
        (Severity::of(finding.share.unwrap()), finding.seen.clone())
    };
    // At 1 MiB per second, 600 MiB are full in ten minutes, and 100 GiB only after more than a day.
    let (soon, seen) = severity(Some(700 * MIB));
    assert!(seen.contains("memory is full in 10 min at that rate"), "{seen}");
    assert_eq!(soon, Severity::Critical);
    assert_eq!(severity(Some(100 * 1024 * MIB)).0, Severity::Note);
    let (unknown, seen) = severity(None);
    assert_eq!(unknown, Severity::Medium);
    assert!(!seen.contains("memory is full"), "{seen}");
}

#[test]
fn a_short_rise_is_growth_only_of_the_users_own_line() {
    let found = |life_ns, file| grows(life_ns, file, Some(700 * MIB)).found.len();
    assert_eq!(found(20 * SECOND, "/usr/include/c++/12/new"), 1);
    assert_eq!(found(5 * SECOND, "/usr/include/c++/12/new"), 0, "a library's start");
    assert_eq!(found(5 * SECOND, "/me/leak.c"), 1);
    assert_eq!(found(SECOND / 2, "/me/leak.c"), 0);
    let why = grows(SECOND / 2, "/me/leak.c", None).unchecked.unwrap().why;
    assert!(why.ends_with("too short a time to tell growth that goes on"), "{why}");
}

#[test]
fn a_heap_that_was_filled_once_does_not_grow() {
    for end in [0.1, 0.3, 0.5, 0.75, 0.9] {
        let outcome = takes(60 * SECOND, "/me/cache.c", None, &|at| at * end);
        let clear = outcome.no_problem.unwrap_or_else(|| panic!("{end}: {:?}", outcome.found));
        assert!(clear.ends_with("but not steadily until the end"), "{end}: {clear}");
    }
}

#[test]
fn growth_after_a_start_has_the_rate_of_the_later_part() {
    // Ten MiB are allocated within the first fifth of the time. From the middle on, one MiB is
    // added every three seconds.
    let late = |at: f64| if at < 10.0 { at * 0.4 } else { at };
    let outcome = takes(60 * SECOND, "/me/leak.c", None, &late);
    let (finding, _) = outcome.found.first().unwrap_or_else(|| panic!("{outcome:?}"));
    assert!(finding.seen.contains("20.0 MiB a minute"), "{}", finding.seen);
}

#[test]
fn growth_after_losses_of_the_heap_says_that_it_may_be_less() {
    let seen = |what| {
        let mut made = Fixture::new();
        let [what, why] = [what, "the ring stayed full"].map(|text| made.name(text));
        made.writer.loss(Loss { time_ns: 5, process: None, what, count: 3, why });
        let outcome = takes_with(made, 20 * SECOND, "/me/leak.c", None, &|at| at);
        let (finding, _) = outcome.found.first().unwrap_or_else(|| panic!("{outcome:?}"));
        finding.seen.clone()
    };
    let lost = seen("records");
    assert!(lost.contains("may be less or more: 3 records lost (the ring stayed full)"), "{lost}");
    assert!(!seen("CPU samples").contains("may be less"));
}

/// Judges a Python program that lives for this time, in whose interpreter `came` says for each
/// twentieth of it how many arenas are there. Its heap doesn't grow.
fn arenas(life_ns: u64, came: &dyn Fn(u64) -> u64) -> Outcome {
    arenas_of(life_ns, came, true)
}

/// Like [`arenas`]. Stacks of mappings have Python's functions if `python` is set; else only CPU
/// samples at these moments have them.
fn arenas_of(life_ns: u64, came: &dyn Fn(u64) -> u64, python: bool) -> Outcome {
    let mut made = Fixture::new();
    made.writer.process(&Process {
        process: 0,
        pid: 4711,
        parent: 1,
        rank: Some(0),
        command: NameId(0),
        exe: NameId(0),
        start_ns: 0,
        memory: MemoryRecording::Exact,
    });
    made.writer.thread(&Thread { thread: 0, process: 0, tid: 4711, start_ns: 0 });
    let frames = [
        ("_PyObject_Malloc", "", "/usr/bin/python3.11", 0),
        ("keeps", "/me/leak.py", "[python]", 7),
    ];
    for (at, (function, file, module, line)) in (0..).zip(frames) {
        let [function, file, module] = [function, file, module].map(|text| made.name(text));
        let address = SYNTHETIC_FRAME | (16 + at);
        made.writer.symbol(&Symbol { process: 0, address, depth: 0, function, file, line, module });
    }
    let frames = vec![SYNTHETIC_FRAME | 16, SYNTHETIC_FRAME | 17];
    let of_map = frames[..if python { 2 } else { 1 }].to_vec();
    made.writer.stack(&Stack { process: 0, stack: 1, end: 0, frames: of_map });
    made.writer.stack(&Stack { process: 0, stack: 2, end: 0, frames });
    let mut block = HeapBlock::new(0);
    block.alloc(0, 0, MIB, 0, false);
    block.alloc(life_ns, 0, 1, 0, false);
    made.writer.heap(&mut block).unwrap();
    let mut live = 0;
    for at in 0..=20 {
        let time_ns = at * life_ns / 20;
        let mut map = |kind, arena: u64| {
            made.writer.map(MapEvent {
                time_ns,
                process: 0,
                thread: 0,
                kind,
                address: (64 + arena) * MIB,
                length: MIB,
                old_length: 0,
                stack: 1,
            });
        };
        (live..came(at)).for_each(|arena| map(MapKind::Map, arena));
        (came(at)..live).for_each(|arena| map(MapKind::Unmap, arena));
        live = came(at);
    }
    let sample = |at: u64| Sample {
        time_ns: at * life_ns / 20 + MS,
        weight_ns: 10 * MS,
        stack: 2,
        state: ThreadState::Running,
        cpu: Some(0),
        ..Sample::default()
    };
    if !python {
        made.writer.write(&mut (0..=20).map(sample).collect::<Vec<Sample>>()).unwrap();
    }
    ask(&made.finish(), "HeapGrowth")
}

#[test]
fn python_arenas_that_grow_are_found_with_the_line_that_maps_them() {
    let outcome = arenas(20 * SECOND, &|at| 10 + 2 * at);
    let (finding, _) = outcome.found.first().unwrap_or_else(|| panic!("{outcome:?}"));
    let line = finding.line.as_ref().unwrap();
    assert_eq!((line.function.as_str(), line.line), ("keeps", 7));
    assert!(finding.seen.contains("Python's interpreter"), "{}", finding.seen);
    assert!(finding.seen.contains("were mapped while keeps (leak.py:7) ran"), "{}", finding.seen);
    assert_eq!(finding.bytes, Some(40 * MIB));
    assert_eq!(finding.subject, "arenas");
}

#[test]
fn the_line_of_arenas_is_that_of_samples_if_their_stacks_have_none() {
    let outcome = arenas_of(20 * SECOND, &|at| 10 + 2 * at, false);
    let (finding, _) = outcome.found.first().unwrap_or_else(|| panic!("{outcome:?}"));
    assert_eq!(finding.line.as_ref().map(|line| line.line), Some(7), "{}", finding.seen);
    assert!(finding.seen.contains("20 of 20 CPU samples"), "{}", finding.seen);
}

#[test]
fn python_arenas_that_are_given_back_or_filled_once_do_not_grow() {
    for came in
        [&|at: u64| 10 + 10 * (at % 2), &|at: u64| 10 + at.min(8)] as [&dyn Fn(u64) -> u64; 2]
    {
        let outcome = arenas(20 * SECOND, came);
        let clear = outcome.no_problem.unwrap_or_else(|| panic!("{:?}", outcome.found));
        assert!(clear.contains("arenas of Python's interpreter"), "{clear}");
    }
    let outcome = arenas(SECOND / 2, &|at| 10 + 2 * at);
    assert!(outcome.unchecked.is_some(), "{outcome:?}");
}

#[test]
fn the_stacks_of_a_heap_that_grows_are_counted_in_words() {
    let outcome = grows(20 * SECOND, "/me/leak.c", None);
    let (finding, _) = outcome.found.first().unwrap_or_else(|| panic!("{outcome:?}"));
    assert!(finding.seen.ends_with(" It is allocated by keeps: 20.0 MiB."), "{}", finding.seen);
}
