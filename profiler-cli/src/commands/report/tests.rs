//! Tests of reports as text. `UPDATE_GOLDEN=1 cargo test` rewrites the golden files.

use std::path::Path;

use tprof_analyze::{Kind, Report, report};
use tprof_rank::base::reading::Reading;
use tprof_trace::model::*;
use tprof_trace::run::{BlindSpot, Completeness, LossInfo, OVERHEAD_VERSION, Overhead, RunInfo};
use tprof_trace::{HeapBlock, TraceHeader, TraceWriter};
use tprof_ui::columns::USUAL as WIDTH;

use super::csv;
use super::print::text;
use crate::terminal::page::Form;

const START: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

/// Stacks of the test's job, innermost frame first.
const STACKS: [&[&str]; 3] = [
    &[
        "operator new(unsigned long)",
        "std::vector<float>::reserve",
        "Loader::next(int)",
        "main",
        "_start",
    ],
    &["malloc", "cache_insert", "train_step", "main"],
    &[
        "malloc",
        "at::native::(anonymous namespace)::empty_cpu<std::tuple<float, std::vector<int>>>(c10::IntArrayRef)",
        "main",
    ],
];

/// Writes a rank file: the rank loads data, trains for ten steps, and leaks memory in each.
fn rank(dir: &Path, rank: u32, memory: MemoryRecording, end: ProcessEnd) {
    let path = dir.join(format!("rank-{rank}.tprof"));
    let header = TraceHeader { start_ns: START, start_unix_ns: 1, ..TraceHeader::default() };
    let mut writer = TraceWriter::create(&path, &header).unwrap();
    let command = writer.name("python train.py \u{1b}[31m--lr 0.1");
    writer.process(&Process {
        process: 0,
        pid: 100 + rank,
        parent: 1,
        rank: Some(rank),
        command,
        exe: NameId(0),
        start_ns: START,
        memory,
    });
    writer.thread(&Thread { thread: 0, process: 0, tid: 100 + rank, start_ns: START });
    for (stack, functions) in (1..).zip(STACKS) {
        let frames: Vec<u64> = (0..functions.len() as u64).map(|i| stack * 100 + i).collect();
        for (address, function) in frames.iter().zip(functions) {
            let function = writer.name(function);
            let file = writer.name("/home/user/job/src/train.cc");
            let row = Symbol {
                process: 0,
                address: *address,
                depth: 0,
                function,
                file,
                line: 7,
                module: NameId(0),
            };
            writer.symbol(&row);
        }
        writer.stack(&Stack { process: 0, stack: stack as u32, end: 0, frames });
    }
    let mut heap = HeapBlock::new(0);
    let weights = 40 + u64::from(rank);
    heap.alloc(START + MS, 0, weights * MIB, 3, false);
    for step in 0..10u64 {
        let at = START + (step + 1) * 10 * MS;
        let name = writer.name("step");
        writer.mark(Mark { time_ns: at, process: None, name, kind: MarkKind::Step });
        heap.alloc(at + 1000, 0, 8 * MIB + step * 1000, 1, false);
        heap.alloc(at + 2000, 0, 100 * 1024, 2, false);
        heap.free(at + 900_000, 0, 2, false);
        for (name, value) in [(counter::RSS_BYTES, 60 + step), (counter::MAPPED_BYTES, 3000)] {
            let name = writer.name(name);
            let value = (value * MIB) as f64;
            writer.counter(Counter {
                time_ns: at + 5000,
                process: Some(0),
                device: None,
                name,
                value,
            });
        }
    }
    for (name, value) in [
        (counter::CGROUP_BYTES, 127 * MIB),
        (counter::CGROUP_LIMIT_BYTES, 128 * MIB),
        (counter::CGROUP_OOM_KILLS, u64::from(end == ProcessEnd::Signal(9))),
    ] {
        let name = writer.name(name);
        writer.counter(Counter {
            time_ns: START + 90 * MS,
            process: None,
            device: None,
            name,
            value: value as f64,
        });
    }
    writer.totals(HeapTotals {
        time_ns: START + 105 * MS,
        process: 0,
        allocations: 12_345,
        frees: 12_000,
        allocated_bytes: 300 * MIB,
        live_bytes: Some(41 * MIB),
        peak_bytes: Some(49 * MIB),
        peak_at_ns: Some(START + 100 * MS + 2000),
    });
    writer.process_end(0, START + 110 * MS, end);
    writer.heap(&mut heap).unwrap();
    writer.finish().unwrap();
}

fn run_json(dir: &Path, completeness: Completeness) {
    let info = RunInfo {
        version: 1,
        host: "node1".into(),
        command: vec!["python".into(), "train.py".into()],
        start_ns: START,
        start_unix_ns: 1,
        end_ns: Some(START + 111 * MS),
        finished: true,
        overhead: Overhead {
            version: OVERHEAD_VERSION,
            host_ns_low: Some(300_000),
            host_ns: Some(400_000),
            host_ns_high: Some(500_000),
            fraction_low: Some(0.0032),
            fraction: Some(0.0042),
            fraction_high: Some(0.0053),
            job_cpu_ns: Some(95 * MS),
            collector_cpu_ns: 3 * MS,
            ..Overhead::default()
        },
        completeness,
        ..RunInfo::default()
    };
    std::fs::write(dir.join("run.json"), serde_json::to_vec(&info).unwrap()).unwrap();
}

/// Checks a report's text against its golden file, and the width of its lines.
fn golden(dir: &Path, kind: Kind, name: &str) {
    let made = report(dir, kind, None).unwrap();
    let shown = text(&made, 10, Form::Text(WIDTH)).replace(&dir.display().to_string(), "RUN");
    let base = dir.file_name().unwrap().to_string_lossy().into_owned();
    let shown = shown.replace(&base, "RUN");
    for line in shown.lines() {
        assert!(line.chars().count() <= WIDTH, "wider than {WIDTH}: {line}");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/report").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &shown).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, expected, "{} differs", path.display());
}

#[test]
fn the_report_of_an_exact_rank_matches_its_golden_file() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), 0, MemoryRecording::Exact, ProcessEnd::Exited(0));
    run_json(dir.path(), Completeness { recorded: 31, ..Completeness::default() });
    golden(dir.path(), Kind::Summary, "summary.txt");
    golden(dir.path(), Kind::Memory, "memory.txt");
}

#[test]
fn the_report_of_a_killed_sampled_rank_matches_its_golden_file() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), 0, MemoryRecording::Sampled { interval: 512 << 10 }, ProcessEnd::Signal(9));
    run_json(dir.path(), Completeness { recorded: 31, ..Completeness::default() });
    golden(dir.path(), Kind::Memory, "killed.txt");
}

#[test]
fn counts_of_a_cycle_of_a_sampled_rank_are_called_estimates() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), 0, MemoryRecording::Sampled { interval: 512 << 10 }, ProcessEnd::Exited(0));
    run_json(dir.path(), Completeness::default());
    for kind in [Kind::Summary, Kind::Memory] {
        let mut made = report(dir.path(), kind, None).unwrap();
        let memory = &mut made.ranks[0].host_memory;
        memory.allocations = Reading::Estimate { value: 129, error: 40 };
        memory.frees = Reading::missing("not by cycle");
        let shown = text(&made, 10, Form::Text(WIDTH));
        assert!(shown.contains("about 129 (\u{b1} 40)"), "{shown}");
        assert!(!shown.contains("are exact"), "{shown}");
    }
}

#[test]
fn estimates_stay_below_the_total_and_small_growth_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), 0, MemoryRecording::Sampled { interval: 512 << 10 }, ProcessEnd::Exited(0));
    run_json(dir.path(), Completeness::default());
    let mut made = report(dir.path(), Kind::Memory, None).unwrap();
    let memory = &mut made.ranks[0].host_memory;
    let site = memory.sites.iter_mut().find(|site| site.peak_bytes.error().is_some()).unwrap();
    site.peak_bytes = Reading::Estimate { value: 52 * MIB, error: 4 * MIB };
    let Reading::Is(growth) = &mut memory.growth else { panic!() };
    let mut small = growth.sites[0].clone();
    for growth_bytes in [500 << 10, 11] {
        small.growth_bytes = Reading::Is(growth_bytes);
        growth.sites.push(small.clone());
    }
    let shown = text(&made, 10, Form::Text(WIDTH));
    assert!(shown.contains(" ~100.0 %") && !shown.contains("106"), "{shown}");
    assert!(shown.contains("their sum may exceed the peak"), "{shown}");
    assert!(!shown.contains("+11 B "), "{shown}");
    // The limit is 1 % of 49 MiB.
    let words: Vec<&str> = shown.split_whitespace().collect();
    let expected = "Not listed: 2 sites that grew by less than 501.8 KiB each, +500.0 KiB in sum;";
    assert!(words.join(" ").contains(expected), "{shown}");
}

#[test]
fn sums_over_processes_are_marked_and_single_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), 0, MemoryRecording::Exact, ProcessEnd::Exited(0));
    run_json(dir.path(), Completeness::default());
    let mut made = report(dir.path(), Kind::Summary, None).unwrap();
    let words = |report: &tprof_analyze::Report| {
        text(report, 10, Form::Text(WIDTH)).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let shown = words(&made);
    assert!(shown.contains("ended exit status 0 overhead"), "{shown}");
    assert!(shown.contains("41.0 MiB live at exit; "), "{shown}");
    made.ranks[0].images = 41;
    made.notes = vec!["/lib/libx.so has changed since the run (another build id)".to_owned()];
    let shown = words(&made);
    assert!(shown.contains("live at exit (summed over 41 program images); "), "{shown}");
    assert!(
        shown.contains("Note: /lib/libx.so has changed since the run (another build id)."),
        "{shown}"
    );
    made.kind = Kind::Memory;
    let shown = words(&made);
    assert!(
        shown.contains("live at exit 41.0 MiB, summed over 41 program images at their ends"),
        "{shown}"
    );
}

#[test]
fn the_report_of_many_ranks_with_gaps_matches_its_golden_file() {
    let dir = tempfile::tempdir().unwrap();
    for r in 0..14 {
        rank(dir.path(), r, MemoryRecording::Exact, ProcessEnd::Exited(0));
    }
    let losses =
        vec![LossInfo { what: "heap events".into(), why: "ring full".into(), count: 1234 }];
    let blind = (0..9)
        .map(|pid| BlindSpot::new(format!("{pid} nvidia-smi"), "everything", "statically linked"));
    let blind = blind.collect();
    run_json(dir.path(), Completeness { recorded: 5000, samples: 0, lost: 1234, losses, blind });
    golden(dir.path(), Kind::Summary, "ranks.txt");
}

#[test]
fn the_report_of_a_cut_off_run_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), 0, MemoryRecording::Off, ProcessEnd::Unknown);
    std::fs::write(dir.path().join("rank-1.tprof"), "").unwrap();
    let made = report(dir.path(), Kind::Summary, None).unwrap();
    let shown = text(&made, 10, Form::Text(WIDTH));
    assert!(shown.contains("NOT COMPLETE") && shown.contains("is empty"), "{shown}");
    assert!(shown.contains("not recorded (--mem off"), "{shown}");
}

#[test]
fn csv_has_one_row_per_site_and_rank() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), 0, MemoryRecording::Exact, ProcessEnd::Exited(0));
    run_json(dir.path(), Completeness::default());
    let sites = csv::csv(&report(dir.path(), Kind::Memory, None).unwrap());
    assert_eq!(sites.lines().count(), 1 + STACKS.len());
    let ranks = csv::csv(&report(dir.path(), Kind::Summary, None).unwrap());
    assert_eq!(ranks.lines().count(), 2);
    assert!(ranks.lines().nth(1).unwrap().starts_with("0,rank 0,rank-0.tprof,1,21,10,"), "{ranks}");
}

#[test]
fn a_heap_with_lost_events_has_a_caution_in_every_report() {
    let dir = tempfile::tempdir().unwrap();
    for number in [0, 1] {
        rank(dir.path(), number, MemoryRecording::Exact, ProcessEnd::Exited(0));
    }
    run_json(dir.path(), Completeness::default());
    for kind in [Kind::Summary, Kind::Memory] {
        let mut made = report(dir.path(), kind, None).unwrap();
        let words = |made: &Report| {
            let shown = text(made, 10, Form::Text(WIDTH));
            shown.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(!words(&made).contains("may be less or more"), "{}", words(&made));
        for rank in &mut made.ranks {
            rank.host_memory.at_least = Some("7 records lost (full)".to_owned());
        }
        let shown = words(&made);
        let cautions = shown.matches("may be less or more: 7 records lost (full)").count();
        assert_eq!(cautions, 2, "of the heaviest rank, and below all ranks: {shown}");
        assert!(shown.contains("The heap of rank 1 and 1 more: "), "{shown}");
    }
}
