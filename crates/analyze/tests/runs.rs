//! Tests reports of whole runs: ranks, completeness, sampling, gaps, killed processes, bad input.

use std::path::Path;

use serde_json::Value;
use tprof_analyze::summary::Rank;
use tprof_analyze::{
    AnalyzeError, KINDS, Kind, Report, ReportRequest, make_reports, report, report_with,
};
use tprof_document::{Options, TableRow};
use tprof_fixture::runs::{Maker, START, run_json, write_run};
use tprof_rank::base::reading::Reading;
use tprof_trace::model::*;
use tprof_trace::run::{
    BlindSpot, Completeness, LossInfo, OVERHEAD_VERSION, Overhead, OverheadPart, ProcessInfo,
    RankInfo, RunInfo,
};
use tprof_trace::{TraceHeader, TraceWriter};

const MS: u64 = 1_000_000;

/// Writes a rank of one process that holds `blocks` blocks of 1,000 bytes at its peak.
fn rank(dir: &Path, name: &str, pid: u32, blocks: u64, end: ProcessEnd) {
    let mut maker = Maker::new(dir, name);
    let p = maker.process(pid, MS, MemoryRecording::Exact);
    maker.stack(p, 1, &["grow", "main"]);
    let ordinals: Vec<u64> = (0..blocks).map(|i| maker.alloc(p, 2 * MS + i, 1000, 1)).collect();
    for ordinal in ordinals {
        maker.free(p, 8 * MS, ordinal);
    }
    maker.counter(Some(p), 3 * MS, counter::RSS_BYTES, 4096.0 * blocks as f64);
    maker.end(p, 10 * MS, end);
    maker.finish();
}

fn read(dir: &Path, kind: Kind) -> Report {
    report(dir, kind, None).unwrap()
}

#[test]
fn every_rank_is_reported_by_its_number() {
    let dir = tempfile::tempdir().unwrap();
    // The ranks are written in a different order than they are read.
    for r in [3u32, 0, 10, 2] {
        rank(
            dir.path(),
            &format!("rank-{r}.tprof"),
            100 + r,
            u64::from(r) + 1,
            ProcessEnd::Exited(0),
        );
    }
    rank(dir.path(), "launcher-node1.tprof", 99, 1, ProcessEnd::Exited(0));
    run_json(dir.path(), 11 * MS, Vec::new());
    let report = read(dir.path(), Kind::Summary);
    let ranks: Vec<Option<u32>> = report.ranks.iter().map(|rank| rank.rank).collect();
    assert_eq!(ranks, [Some(0), Some(2), Some(3), Some(10), None]);
    for rank in report.ranks.iter().filter(|rank| rank.rank.is_some()) {
        let expected = (u64::from(rank.rank.unwrap()) + 1) * 1000;
        assert_eq!(rank.host_memory.peak_bytes, Reading::Is(expected));
        assert_eq!(rank.timeline.rss_peak_at_ns, Reading::Is(3 * MS));
    }
    assert_eq!(report.processes.len(), 5);
    assert!(report.completeness.complete);
    let one = tprof_analyze::report(dir.path(), Kind::Memory, Some(3)).unwrap();
    assert_eq!((one.ranks.len(), one.processes.len()), (1, 1));
}

#[test]
fn collectives_on_the_host_of_two_ranks_have_their_bus_bandwidth() {
    let dir = tempfile::tempdir().unwrap();
    let args = r#"{"Input Dims":[[1024,1024]],"Input type":["float"]}"#;
    for rank in 0..2 {
        let path = dir.path().join(format!("rank-{rank}.tprof"));
        let header = TraceHeader { rank: Some(rank), ..TraceHeader::default() };
        let mut writer = TraceWriter::create(&path, &header).unwrap();
        let (name, args) = (writer.name("gloo:all_reduce"), writer.name(args));
        let kind = SpanKind::Operator;
        let span = Span { start_ns: 10, duration_ns: MS, kind, name, args, ..Span::default() };
        writer.write(&mut vec![span]).unwrap();
        writer.finish().unwrap();
    }
    let of = |size: Option<u32>| {
        let rank = |rank| RankInfo {
            rank,
            size,
            file: format!("rank-{rank}.tprof"),
            ..RankInfo::default()
        };
        let info = RunInfo { version: 1, ranks: (0..2).map(rank).collect(), ..RunInfo::default() };
        write_run(dir.path(), &info);
        let kinds = [KINDS.iter().find(|kind| kind.name == "comm").unwrap()];
        let wanted = ReportRequest { reports: &[], kinds: &kinds };
        let made = make_reports(dir.path(), &wanted, &Options::default(), None).unwrap();
        let table = made.documents[0].tables.iter().find(|table| table.key == "comm").unwrap();
        let row = TableRow::all(table).next().unwrap();
        (row.whole("group_size"), row.number("bus_bytes_per_s"))
    };
    // With two ranks, each sends and receives the whole message, 4 MiB in a millisecond.
    assert_eq!(of(Some(2)), (Some(2), Some(f64::from(4 << 20) * 1e3)));
    assert_eq!((of(None), of(Some(8))), ((None, None), (None, None)));
}

#[test]
fn a_missing_rank_is_refused_with_a_list_of_the_existing_ones() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-4.tprof", 100, 1, ProcessEnd::Exited(0));
    match report(dir.path(), Kind::Summary, Some(5)) {
        Err(AnalyzeError::NoRank { rank: 5, available, .. }) => assert_eq!(available, [4]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn losses_and_blind_processes_make_a_run_incomplete() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 100, 2, ProcessEnd::Exited(0));
    let mut info = run_json(dir.path(), 11 * MS, Vec::new());
    assert!(read(dir.path(), Kind::Summary).completeness.complete);
    info.completeness = Completeness {
        recorded: 4,
        samples: 0,
        lost: 3,
        losses: vec![LossInfo { what: "heap events".into(), why: "ring full".into(), count: 3 }],
        blind: vec![BlindSpot::new("7 ls", "everything", "static")],
    };
    write_run(dir.path(), &info);
    let sum = read(dir.path(), Kind::Summary).completeness;
    assert_eq!((sum.complete, sum.recorded, sum.lost, sum.blind.len()), (false, 4, 3, 1));
}

#[test]
fn a_cut_off_run_is_reported_from_its_files() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 100, 2, ProcessEnd::Signal(9));
    let report = read(dir.path(), Kind::Summary);
    assert_eq!(report.run.state, "cut off");
    assert_eq!(report.completeness.recorded, 4);
    assert!(!report.completeness.complete);
    assert!(report.problems[0].contains("run.json"), "{:?}", report.problems);
    assert!(report.overhead.host_ns.value.get().is_none());
    assert_eq!(report.processes[0].pid, 100);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["processes"][0]["signal"], 9);
    assert!(json["overhead"]["host_ns"].is_null());
    assert!(json["overhead"]["host_ns_missing"].is_string());
}

#[test]
fn a_cut_file_is_reported_from_its_whole_blocks() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 100, 2, ProcessEnd::Exited(0));
    let path = dir.path().join("rank-0.tprof");
    let bytes = std::fs::read(&path).unwrap();
    for cut in 0..bytes.len() {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        match report(dir.path(), Kind::Memory, None) {
            // A file that has only a header has no rows, which is not an error.
            Ok(report) => assert!(!report.completeness.complete),
            Err(AnalyzeError::Trace(error)) => assert!(!error.to_string().is_empty()),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn no_damaged_byte_causes_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 100, 3, ProcessEnd::Exited(0));
    let path = dir.path().join("rank-0.tprof");
    let bytes = std::fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        std::fs::write(&path, damaged).unwrap();
        let _ = report(dir.path(), Kind::Memory, None);
    }
}

#[test]
fn after_a_gap_live_bytes_are_unknown_and_counts_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    let p = maker.process(5, 0, MemoryRecording::Exact);
    maker.stack(p, 1, &["f"]);
    maker.alloc(p, MS, 100, 1);
    maker.mark(2 * MS, "", MarkKind::RecordingOff);
    maker.mark(3 * MS, "", MarkKind::RecordingOn);
    maker.alloc(p, 4 * MS, 100, 1);
    maker.end(p, 5 * MS, ProcessEnd::Exited(0));
    maker.finish();
    let json = serde_json::to_value(read(dir.path(), Kind::Memory)).unwrap();
    let memory = &json["ranks"][0]["host_memory"];
    assert_eq!(memory["allocations"], 2);
    for key in ["peak_bytes", "peak_at_ns", "live_at_exit_bytes", "growth"] {
        assert!(memory[key].is_null(), "{key}");
        assert!(memory[format!("{key}_missing")].is_string(), "{key}");
    }
    assert!(memory["sites"][0]["live_bytes"].is_null());
    assert_eq!(memory["sites"][0]["bytes"], 200);
}

#[test]
fn sampled_totals_are_exact_and_sites_are_estimates() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    let p = maker.process(5, 0, MemoryRecording::Sampled { interval: 4096 });
    maker.stack(p, 1, &["small"]);
    maker.stack(p, 2, &["large"]);
    for i in 0..100 {
        maker.alloc(p, MS + i, 64, 1);
    }
    maker.alloc(p, 2 * MS, 10_000, 2);
    let row = |at: u64, allocations: u64, live: u64| HeapTotals {
        time_ns: START + at,
        process: p,
        allocations,
        frees: 7,
        allocated_bytes: 500_000,
        live_bytes: Some(live),
        peak_bytes: Some(450_000),
        peak_at_ns: Some(START + 3 * MS),
    };
    maker.writer.totals(row(MS, 10, 100));
    maker.writer.totals(row(4 * MS, 6500, 420_000));
    maker.end(p, 5 * MS, ProcessEnd::Exited(0));
    maker.finish();
    let json = serde_json::to_value(read(dir.path(), Kind::Memory)).unwrap();
    let memory = &json["ranks"][0]["host_memory"];
    assert_eq!(
        (&memory["recording"], &memory["live_counts"]),
        (&"sampled".into(), &"usable".into())
    );
    assert_eq!(memory["allocations"], 6500);
    assert_eq!(memory["live_at_exit_bytes"], 420_000);
    assert_eq!(
        (&memory["peak_bytes"], &memory["error_peak_bytes"]),
        (&450_000.into(), &65_536.into())
    );
    assert_eq!(memory["peak_at_ns"], 3 * MS);
    let sites = memory["sites"].as_array().unwrap();
    let small =
        sites.iter().find(|site| site["stack"][0].as_str().unwrap().starts_with("small")).unwrap();
    let large =
        sites.iter().find(|site| site["stack"][0].as_str().unwrap().starts_with("large")).unwrap();
    // 100 of 6,450 allocations of 64 bytes were sampled.
    let p = 1.0 - (-64.0f64 / 4096.0).exp();
    assert_eq!(small["allocations"], (100.0 / p).round() as u64);
    assert!(small["error_bytes"].as_u64().unwrap() > 0);
    assert_eq!((&large["bytes"], &large["estimate"]), (&10_000.into(), &true.into()));
    assert!(large.get("error_bytes").is_none(), "all blocks of this site were recorded");
}

#[test]
fn the_common_peak_of_simultaneous_sampled_processes_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    for pid in [5, 6] {
        let p = maker.process(pid, 0, MemoryRecording::Sampled { interval: 4096 });
        let at = u64::from(p) * MS;
        maker.writer.totals(HeapTotals {
            time_ns: START + MS + at,
            process: p,
            live_bytes: Some(300),
            peak_bytes: Some(1000),
            peak_at_ns: Some(START + at),
            ..HeapTotals::default()
        });
    }
    maker.finish();
    let report = read(dir.path(), Kind::Memory);
    // The lower bound is the 1000 bytes of one process's peak. The upper bound assumes that both
    // processes had their peaks at the same time.
    let error = 1000 + 2 * tprof_metrics::memory::PEAK_SLACK_BYTES;
    assert_eq!(report.ranks[0].host_memory.peak_bytes, Reading::Estimate { value: 1000, error });
}

#[test]
fn an_oom_kill_is_found_in_the_cgroup_of_any_rank() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    let p = maker.process(5, 0, MemoryRecording::Exact);
    maker.stack(p, 1, &["hoard", "main"]);
    maker.alloc(p, MS, 900_000, 1);
    maker.counter(Some(p), 2 * MS, counter::RSS_BYTES, 1_000_000.0);
    maker.end(p, 3 * MS, ProcessEnd::Signal(9));
    maker.finish();
    let mut maker = Maker::new(dir.path(), "rank-1.tprof");
    maker.counter(None, 2 * MS, counter::CGROUP_BYTES, 999_000.0);
    maker.counter(None, 2 * MS, counter::CGROUP_LIMIT_BYTES, 1_000_000.0);
    maker.counter(None, 4 * MS, counter::CGROUP_OOM_KILLS, 1.0);
    maker.finish();
    let report = read(dir.path(), Kind::Summary);
    let death = &report.killed[0];
    assert_eq!((death.pid, death.signal, death.cause, death.at_ns), (5, 9, "oom", 3 * MS));
    assert_eq!((death.rss_bytes.get(), death.heap_bytes.get()), (Some(1_000_000), Some(900_000)));
    assert!(death.owners[0].stack[0].starts_with("hoard"));
}

#[test]
fn hosts_are_joined_by_the_wall_clock() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), "rank-0.tprof", 100, 1, ProcessEnd::Exited(0));
    let mut info = run_json(dir.path(), 11 * MS, Vec::new());
    info.host = "node2".into();
    info.start_unix_ns += 500 * MS;
    info.processes = vec![ProcessInfo { pid: 8, start_ns: START + MS, ..ProcessInfo::default() }];
    std::fs::write(dir.path().join("run-node2-8.json"), serde_json::to_vec(&info).unwrap())
        .unwrap();
    let report = read(dir.path(), Kind::Summary);
    assert_eq!(report.run.hosts, ["node1", "node2"]);
    let late = report.processes.iter().find(|process| process.pid == 8).unwrap();
    assert_eq!(late.start_ns, 501 * MS);
    assert_eq!(report.run.wall_ns, Reading::Is(511 * MS));
}

#[test]
fn a_summary_is_a_memory_report_without_most_sites() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    let p = maker.process(5, 0, MemoryRecording::Exact);
    for stack in 1..=9u32 {
        maker.stack(
            p,
            stack,
            &[["a", "b", "c", "d", "e", "f", "g", "h", "i"][stack as usize - 1], "main"],
        );
        maker.alloc(p, u64::from(stack), 10, stack);
    }
    maker.finish();
    let of = |rank: &Rank| (rank.host_memory.sites.len(), rank.host_memory.sites_total);
    assert_eq!(of(&read(dir.path(), Kind::Memory).ranks[0]), (9, 9));
    assert_eq!(of(&read(dir.path(), Kind::Summary).ranks[0]), (5, 9));
}

/// Offsets of a file's blocks.
fn blocks(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"tpB\xf1")).collect()
}

#[test]
fn a_file_cut_between_blocks_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank-0.tprof");
    rank(dir.path(), "rank-0.tprof", 7, 100, ProcessEnd::Exited(0));
    let mut info = run_json(dir.path(), 11 * MS, Vec::new());
    info.files = vec!["rank-0.tprof".into()];
    write_run(dir.path(), &info);
    assert_eq!(read(dir.path(), Kind::Summary).problems, Vec::<String>::new());
    let bytes = std::fs::read(&path).unwrap();
    for cut in &blocks(&bytes)[1..] {
        std::fs::write(&path, &bytes[..*cut]).unwrap();
        let made = read(dir.path(), Kind::Summary);
        assert!(!made.completeness.complete);
        assert_eq!(made.problems.len(), 1, "{:?}", made.problems);
        assert!(made.problems[0].starts_with("rank-0.tprof was not closed: events after "));
    }
    // For a run that is running or was cut off, the run's state already tells why its file has no
    // end.
    info.finished = false;
    write_run(dir.path(), &info);
    assert_eq!(read(dir.path(), Kind::Summary).problems, Vec::<String>::new());
    // Without `run.json`, the file alone does not tell which of these states the run was in.
    std::fs::remove_file(dir.path().join("run.json")).unwrap();
    let made = report(&path, Kind::Summary, None).unwrap();
    assert!(made.problems[0].contains("or is still being written"), "{:?}", made.problems);
}

#[test]
fn mappings_in_a_damaged_block_are_at_least_those_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    let p = maker.process(5, 0, MemoryRecording::Exact);
    let map = |time_ns| MapEvent {
        time_ns: START + time_ns,
        process: p,
        thread: 0,
        kind: MapKind::Map,
        address: 4096,
        length: 4096,
        old_length: 0,
        stack: 0,
    };
    maker.writer.map(map(1));
    maker.writer.flush().unwrap();
    maker.writer.map(map(2));
    maker.end(p, MS, ProcessEnd::Exited(0));
    let path = maker.finish();
    run_json(dir.path(), MS, Vec::new());
    let maps = |report: &Report| report.ranks[0].host_memory.maps.clone();
    let whole = maps(&read(dir.path(), Kind::Memory));
    assert_eq!((whole.mapped_bytes, whole.at_least), (8192, None));
    let mut bytes = std::fs::read(&path).unwrap();
    let of_maps = blocks(&bytes).into_iter().find(|at| bytes[at + 4] == 18).unwrap();
    bytes[of_maps + 70] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let made = read(dir.path(), Kind::Memory);
    assert_eq!(maps(&made).mapped_bytes, 4096);
    assert!(maps(&made).at_least.is_some() && made.problems.len() == 1, "{:?}", made.problems);
    assert!(!made.completeness.complete);
}

/// Names every address of `libnew.so`, and nothing else.
struct Late;

impl tprof_trace::SymbolSource for Late {
    fn functions(&self, place: &tprof_trace::CodePlace<'_>) -> Vec<tprof_trace::Function> {
        assert_ne!(
            place.pc, 0x10f,
            "an address that already has a name must not be looked up again"
        );
        let known = place.path == "/lib/libnew.so" && place.build_id == "ab12";
        let name = |name: String| tprof_trace::Function { name, ..Default::default() };
        if known {
            vec![name("inlined".into()), name(format!("at_{:x}", place.pc))]
        } else {
            Vec::new()
        }
    }
}

#[test]
fn unresolved_addresses_are_looked_up_when_the_report_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    let p = maker.process(5, 0, MemoryRecording::Exact);
    let function = maker.writer.name("known");
    let row = |address, function| Symbol {
        process: p,
        address,
        depth: 0,
        function,
        file: NameId(0),
        line: 0,
        module: NameId(0),
    };
    maker.writer.symbol(&row(0x1110, function));
    // This address was looked up without success while recording, so it is not looked up again.
    maker.writer.symbol(&row(0x1120, NameId(0)));
    for (path, build_id) in [("/lib/libold.so", "00"), ("/lib/libnew.so", "ab12")] {
        let (path, build_id) = (maker.writer.name(path), maker.writer.name(build_id));
        let module = Module {
            process: p,
            start: 0x1000,
            end: 0x2000,
            bias: 0x1000,
            path,
            build_id,
            time_ns: START,
        };
        maker.writer.module(&module);
    }
    // The second library replaced the first at the same addresses: generation 1.
    let later = 1 << 57;
    let frames = vec![0x1110, 0x1120, 0x1130, 0x1130 | later];
    maker.writer.stack(&Stack { process: p, stack: 1, end: 0, frames });
    maker.alloc(p, MS, 100, 1);
    maker.end(p, 2 * MS, ProcessEnd::Exited(0));
    maker.finish();
    run_json(dir.path(), 3 * MS, Vec::new());
    let stack = |report: Report| report.ranks[0].host_memory.sites[0].stack.join(" < ");
    let made = report_with(dir.path(), Kind::Memory, None, Some(&Late)).unwrap();
    assert_eq!(
        stack(made),
        "known (libold.so) < libold.so+0x120 < libold.so+0x130 < inlined (libnew.so) < at_12f (libnew.so)"
    );
    let made = read(dir.path(), Kind::Memory);
    assert_eq!(
        stack(made),
        "known (libold.so) < libold.so+0x120 < libold.so+0x130 < libnew.so+0x130"
    );
}

/// A run in which every key of the JSON appears.
fn everything(dir: &Path) {
    let mut maker = Maker::new(dir, "rank-0.tprof");
    let p = maker.process(5, 0, MemoryRecording::Exact);
    maker.stack(p, 1, &["leak", "main"]);
    for step in 0..12 {
        maker.alloc(p, (step + 1) * MS, 100, 1);
        maker.mark((step + 1) * MS + 1, "step", MarkKind::Step);
    }
    let why = maker.writer.name("ring full");
    let what = maker.writer.name("heap events");
    maker.writer.loss(Loss { time_ns: START + MS, process: Some(p), what, count: 2, why });
    maker.end(p, 20 * MS, ProcessEnd::Signal(9));
    maker.finish();
    let mut maker = Maker::new(dir, "rank-1.tprof");
    let p = maker.process(6, 0, MemoryRecording::Sampled { interval: 4096 });
    maker.stack(p, 1, &["small"]);
    maker.alloc(p, MS, 64, 1);
    maker.writer.totals(HeapTotals {
        time_ns: START + MS,
        process: p,
        live_bytes: Some(1),
        peak_bytes: Some(1),
        peak_at_ns: Some(START),
        ..HeapTotals::default()
    });
    maker.end(p, 20 * MS, ProcessEnd::Exited(0));
    maker.finish();
    let mut info: RunInfo = run_json(dir, 21 * MS, Vec::new());
    info.overhead = Overhead {
        version: OVERHEAD_VERSION,
        host_ns: Some(5),
        fraction: Some(0.1),
        parts: vec![OverheadPart::default()],
        ..Overhead::default()
    };
    info.completeness.losses = vec![LossInfo::default()];
    info.completeness.blind = vec![BlindSpot::default()];
    write_run(dir, &info);
}

#[test]
fn every_key_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    everything(dir.path());
    let json = serde_json::to_value(read(dir.path(), Kind::Memory)).unwrap();
    let mut keys = Vec::new();
    collect(&json, &mut keys);
    for expected in
        ["growth", "growth_over_quarters", "owners", "error_bytes", "signal", "exit_status"]
    {
        assert!(keys.iter().any(|key| key == expected), "the run of this test lacks {expected}");
    }
    let docs =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md"))
            .unwrap();
    for key in keys {
        let base = key.strip_prefix("error_").unwrap_or(&key);
        let base = base.strip_suffix("_missing").unwrap_or(base);
        assert!(docs.contains(&format!("`{base}`")), "docs/metrics.md does not define `{base}`");
    }
}

fn collect(json: &Value, keys: &mut Vec<String>) {
    match json {
        Value::Object(map) => {
            for (key, value) in map {
                if !keys.contains(key) {
                    keys.push(key.clone());
                }
                collect(value, keys);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, keys)),
        _ => {}
    }
}

#[test]
fn an_exec_begins_a_program_image_but_not_a_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    for (at, end) in [(1, ProcessEnd::Exec), (3, ProcessEnd::Exec), (5, ProcessEnd::Exited(0))] {
        let p = maker.process(100, at * MS, MemoryRecording::Exact);
        maker.end(p, (at + 2) * MS, end);
    }
    let child = maker.process(101, 4 * MS, MemoryRecording::Exact);
    maker.end(child, 6 * MS, ProcessEnd::Exited(0));
    let again = maker.process(101, 8 * MS, MemoryRecording::Exact);
    maker.end(again, 9 * MS, ProcessEnd::Exited(0));
    maker.finish();
    run_json(dir.path(), 11 * MS, Vec::new());
    let report = read(dir.path(), Kind::Summary);
    assert_eq!((report.process_count, report.processes.len()), (3, 5));
    assert_eq!((report.ranks[0].processes, report.ranks[0].images), (3, 5));
}

#[test]
fn without_pss_resident_memory_of_several_processes_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    for pid in [100, 101] {
        let p = maker.process(pid, MS, MemoryRecording::Exact);
        maker.counter(Some(p), 2 * MS, counter::RSS_BYTES, 1e6);
        maker.end(p, 9 * MS, ProcessEnd::Exited(0));
    }
    let (key, value) =
        (maker.writer.name(property::NO_PSS), maker.writer.name("\"not permitted\""));
    maker.writer.property(Property { key, value });
    maker.finish();
    run_json(dir.path(), 10 * MS, Vec::new());
    let timeline = read(dir.path(), Kind::Summary).ranks.remove(0).timeline;
    assert_eq!(timeline.rss_peak_bytes, Reading::Is(2_000_000));
    assert_eq!((timeline.rss_readings, timeline.resident_readings), (Some(1), None));
    let missing = Reading::missing("no PSS was read: not permitted");
    assert_eq!(timeline.resident_peak_bytes, missing);
    let json = serde_json::to_value(&timeline).unwrap();
    assert!(json["resident_bytes"].is_null() && json["gap_bytes"].is_null(), "{json}");
    let why = json["rss_peak_at_least"].as_str().unwrap();
    assert!(why.starts_with("the highest of 1 reading: "), "{why}");
    assert!(json.get("resident_peak_at_least").is_none(), "{json}");
}
