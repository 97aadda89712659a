//! `docs/metrics.md` defines every table and key that a report can have, and its table of rules is made
//! of what they state: `UPDATE_GOLDEN=1` writes it.

use std::path::Path;

use tprof_analyze::document::{LineTables, Options};
use tprof_analyze::{KINDS, RuleAbout, rules};
use tprof_trace::model::*;
use tprof_trace::{TraceHeader, TraceWriter};

/// A rank in which everything happens: steps, operators, launches, a graph,
/// copies, collectives, waits, memory.
fn rank(dir: &Path, rank: u32) {
    let header = TraceHeader { rank: Some(rank), ..TraceHeader::default() };
    let path = dir.join(format!("rank-{rank}.tprof"));
    let mut writer = TraceWriter::create(&path, &header).unwrap();
    let command = writer.name("train");
    writer.process(&Process {
        process: 0,
        pid: 10,
        parent: 1,
        rank: Some(rank),
        command,
        exe: command,
        start_ns: 0,
        memory: MemoryRecording::Off,
    });
    writer.thread(&Thread { thread: 0, process: 0, tid: 10, start_ns: 0 });
    let (mut spans, mut kernels, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    let (mut collectives, mut allocations) = (Vec::new(), Vec::new());
    let (mut device_spans, mut channel_work) = (Vec::new(), Vec::new());
    let at = |start_ns, duration_ns, kind, name| Span {
        start_ns,
        duration_ns,
        kind,
        name,
        ..Span::default()
    };
    let names: Vec<NameId> = [
        "aten::linear",
        "cudaLaunchKernel",
        "cudaGraphLaunch",
        "gemm",
        "ncclDevKernel_AllReduce",
        "all_reduce",
        "forward",
    ]
    .map(|name| writer.name(name))
    .to_vec();
    for step in 0..8_u64 {
        let start = 1_000_000 * step;
        let name = writer.name(&format!("ProfilerStep#{step}"));
        spans.push(at(start, 1_000_000, SpanKind::Annotation, name));
        spans.push(at(start + 10, 900_000, SpanKind::Annotation, names[6]));
        spans.push(at(start + 1_000, 500_000, SpanKind::Operator, names[0]));
        for call in 0..4_u64 {
            let correlation = Some(step * 10 + call);
            let name = if call == 3 { names[2] } else { names[1] };
            let call_at = start + 2_000 + call * 10_000;
            spans.push(Span { correlation, ..at(call_at, 5_000, SpanKind::Runtime, name) });
            let start_ns = call_at + 20_000;
            let row = Kernel { start_ns, duration_ns: 8_000, correlation, ..Kernel::default() };
            match call {
                0 => copies.push(MemoryCopy {
                    start_ns,
                    duration_ns: 4_000,
                    kind: CopyKind::HostToDevice,
                    bytes: Some(1 << 20),
                    correlation,
                    ..MemoryCopy::default()
                }),
                1 => {
                    kernels.push(Kernel { name: names[4], stream: 9, ..row });
                    collectives.push(Collective {
                        start_ns: call_at,
                        name: names[5],
                        communicator: Some(1),
                        sequence: Some(step),
                        bytes: Some(1 << 20),
                        group_size: Some(2),
                        correlation,
                        algorithm: Some(names[5]),
                        ..Collective::default()
                    });
                    let row = ChannelWork { name: names[5], ..ChannelWork::default() };
                    channel_work.push(row);
                }
                3 => {
                    kernels.push(Kernel { name: names[3], ..row });
                    kernels.push(Kernel { name: names[3], start_ns: start_ns + 9_000, ..row });
                }
                _ => kernels.push(Kernel { name: names[3], ..row }),
            }
        }
        device_spans.push(DeviceSpan {
            start_ns: start + 20_000,
            duration_ns: 60_000,
            stream: Some(0),
            kind: DeviceSpanKind::Annotation,
            name: names[6],
            ..DeviceSpan::default()
        });
        allocations.push(DeviceAllocation {
            time_ns: start + 2_000,
            device: Some(0),
            address: step,
            bytes: Some(100),
            ..DeviceAllocation::default()
        });
    }
    spans.sort_by_key(|row| row.start_ns);
    kernels.sort_by_key(|row| row.start_ns);
    writer.write(&mut spans).unwrap();
    writer.write(&mut kernels).unwrap();
    writer.write(&mut copies).unwrap();
    writer.write(&mut collectives).unwrap();
    writer.write(&mut channel_work).unwrap();
    writer.write(&mut allocations).unwrap();
    writer.write(&mut device_spans).unwrap();
    writer.finish().unwrap();
}

#[test]
fn every_table_and_key_of_every_report_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), 0);
    rank(dir.path(), 1);
    let docs =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md"))
            .unwrap();
    let mut missing = Vec::new();
    let mut tables = Vec::new();
    for kind in KINDS {
        if !docs.contains(&format!("tprof report {}`", kind.name)) {
            missing.push(format!("report {}", kind.name));
        }
        for rank in [None, Some(0)] {
            let lines = LineTables::Too;
            let options = Options { rank, lines, data: true, ..Options::default() };
            let document = kind.make(dir.path(), &options, None).unwrap();
            for table in &document.tables {
                tables.push((kind.name, table.key));
                let keys = table.columns.iter().map(|column| column.key);
                for key in keys.chain([table.key]) {
                    let what = format!("`{key}` of {}", kind.name);
                    if !docs.contains(&format!("`{key}`")) && !missing.contains(&what) {
                        missing.push(what);
                    }
                }
            }
        }
    }
    for table in [("comm", "comm_choices"), ("comm", "comm_channels")] {
        assert!(tables.contains(&table), "the run of this test lacks {table:?}");
    }
    for table in [("launches", "graphs"), ("launches", "each"), ("breakdown", "over_ranks")] {
        assert!(tables.contains(&table), "the run of this test lacks {table:?}");
    }
    assert!(missing.is_empty(), "docs/metrics.md does not define {missing:#?}");
}

#[test]
fn the_table_of_rules_is_what_the_rules_state() {
    const BEGIN: &str =
        "<!-- Made of the rules: see the end of crates/analyze/tests/metrics.rs. -->\n\n";
    let mut table =
        "| rule | found if | gain at most | needs | try |\n|---|---|---|---|---|\n".to_owned();
    for RuleAbout { name, found_if, gain, needs, remedy } in rules() {
        table += &format!("| {name} | {found_if} | {gain} | {needs} | {remedy} |\n");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let docs = std::fs::read_to_string(path).unwrap();
    let (before, rest) = docs.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once("\n\n").unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let after = format!("\n{after}");
        std::fs::write(path, format!("{before}{BEGIN}{table}{after}")).unwrap();
        return;
    }
    assert!(
        found == table.trim_end(),
        "docs/metrics.md: UPDATE_GOLDEN=1 writes the table of rules"
    );
}
