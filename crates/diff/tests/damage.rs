//! Tests that a report names each damaged block that changes it.

use std::path::Path;

use serde_json::Value;
use tprof_analyze::{KINDS, Kind, ReportRequest, document, make_reports};
use tprof_diff::{Comparison, Side, SideOptions};
use tprof_document::Options;
use tprof_fixture::runs::{Maker, START, run_json};
use tprof_trace::model::*;

const MS: u64 = 1_000_000;
/// Numbers of the tables that are read only when a report needs them.
const LARGE: [u8; 10] = [16, 18, 19, 32, 33, 34, 35, 36, 37, 38];

/// A rank with device work, calls, operators, samples, allocations of both kinds and mappings.
fn write(dir: &Path) {
    let mut maker = Maker::new(dir, "rank-0.tprof");
    let p = maker.process(7, 0, MemoryRecording::Exact);
    maker.stack(p, 1, &["grow", "main"]);
    for i in 0..50 {
        let ordinal = maker.alloc(p, MS + i * MS, 1000 + i, 1);
        if i % 3 == 0 {
            maker.free(p, MS + i * MS + 5, ordinal);
        }
    }
    let (mut spans, mut kernels, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    let (mut samples, mut waits, mut allocations) = (Vec::new(), Vec::new(), Vec::new());
    let (mut device_spans, mut collectives) = (Vec::new(), Vec::new());
    let names = ["aten::mm", "cudaLaunchKernel", "gemm", "cudaStreamSynchronize", "ncclAllReduce"];
    let [operator, launch, kernel, wait, reduce] = names.map(|name| maker.writer.name(name));
    for step in 0..5 {
        let at = START + 2 * MS + step * 10 * MS;
        let name = maker.writer.name(&format!("ProfilerStep#{step}"));
        let span = |start_ns, duration_ns, kind, name| Span {
            start_ns,
            duration_ns,
            kind,
            name,
            correlation: (kind == SpanKind::Runtime).then_some(step + 1),
            status: (kind == SpanKind::Runtime).then_some(0),
            ..Span::default()
        };
        spans.push(span(at, 9 * MS, SpanKind::Annotation, name));
        spans.push(span(at + 1000, 3 * MS, SpanKind::Operator, operator));
        spans.push(span(at + 2000, MS, SpanKind::Runtime, launch));
        spans.push(span(at + 5 * MS, 3 * MS, SpanKind::Runtime, wait));
        let (correlation, stream) = (Some(step + 1), 7);
        let row =
            Kernel { start_ns: at + 2 * MS, duration_ns: 4 * MS, stream, ..Kernel::default() };
        kernels.push(Kernel { name: kernel, correlation, ..row });
        let copy = MemoryCopy { start_ns: at + 6 * MS, duration_ns: MS, ..MemoryCopy::default() };
        copies.push(MemoryCopy { stream, bytes: Some(1 << 20), ..copy });
        waits.push(Synchronization {
            start_ns: at + 5 * MS,
            duration_ns: 3 * MS,
            name: wait,
            ..Synchronization::default()
        });
        let row = DeviceSpan { start_ns: at, duration_ns: 8 * MS, ..DeviceSpan::default() };
        device_spans.push(DeviceSpan { name, ..row });
        collectives.push(Collective {
            start_ns: at + 2 * MS,
            duration_ns: Some(MS),
            name: reduce,
            ..Collective::default()
        });
        samples.extend((0..9).map(|ms| Sample {
            time_ns: at + ms * MS,
            weight_ns: MS,
            stack: 1,
            cpu: Some(0),
            state: ThreadState::Running,
            ..Sample::default()
        }));
        allocations.push(DeviceAllocation {
            time_ns: at + 5,
            allocator: Allocator::Framework,
            device: Some(0),
            address: 0x7f00 + step * 512,
            bytes: Some(512),
            total_allocated_bytes: Some((1 << 20) + step),
            ..DeviceAllocation::default()
        });
    }
    maker.writer.write(&mut spans).unwrap();
    maker.writer.write(&mut kernels).unwrap();
    maker.writer.write(&mut copies).unwrap();
    maker.writer.write(&mut waits).unwrap();
    maker.writer.write(&mut device_spans).unwrap();
    maker.writer.write(&mut collectives).unwrap();
    maker.writer.write(&mut samples).unwrap();
    maker.writer.write(&mut allocations).unwrap();
    maker.writer.map(MapEvent {
        time_ns: START + MS,
        process: p,
        thread: 0,
        kind: MapKind::Map,
        address: 4096,
        length: 4096,
        old_length: 0,
        stack: 0,
    });
    maker.end(p, 60 * MS, ProcessEnd::Exited(0));
    maker.finish();
    run_json(dir, 61 * MS, Vec::new());
}

/// Offsets of the blocks that are read on demand, found by the magic bytes of their headers.
fn large_blocks(bytes: &[u8]) -> Vec<usize> {
    let is_block = |at: &usize| bytes[*at..].starts_with(b"tpB\xf1");
    let blocks = (0..bytes.len() - 5).filter(is_block);
    blocks.filter(|at| LARGE.contains(&bytes[at + 4])).collect()
}

/// Every report made separately: its name, its contents, and the damage that it names.
fn reports(dir: &Path) -> Vec<(String, Value, Vec<String>)> {
    let mut all = Vec::new();
    for kind in [Kind::Summary, Kind::Memory] {
        let wanted = ReportRequest { reports: &[kind], kinds: &[] };
        let made = make_reports(dir, &wanted, &Options::default(), None).unwrap();
        let report = serde_json::to_value(&made.reports[0]).unwrap();
        all.push((format!("{kind:?}"), figures(report), made.reports[0].problems.clone()));
    }
    for kind in KINDS {
        let Ok(document) = document(kind, dir, &Options::default(), None) else { continue };
        let report = serde_json::to_value(&document).unwrap();
        all.push((kind.name.to_owned(), figures(report), document.problems));
    }
    let side = || Side::read(dir, &SideOptions::default()).unwrap();
    let both = Comparison::of(side(), side());
    let named: Vec<String> =
        both.notes.iter().filter(|note| note.starts_with("B: ")).cloned().collect();
    all.push(("diff".to_owned(), figures(serde_json::to_value(&both).unwrap()), named));
    all
}

/// Removes the members of a report that only tell how complete it is.
fn figures(mut report: Value) -> Value {
    for part in ["problems", "completeness", "notes", "a", "b"] {
        report.as_object_mut().unwrap().remove(part);
    }
    report
}

#[test]
fn a_report_that_a_damaged_block_changes_names_it() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let path = dir.path().join("rank-0.tprof");
    let bytes = std::fs::read(&path).unwrap();
    let good = reports(dir.path());
    assert!(good.iter().all(|(_, _, problems)| problems.is_empty()), "{good:?}");
    let blocks = large_blocks(&bytes);
    assert!(blocks.len() >= LARGE.len(), "{blocks:?}");
    let mut changed = 0;
    for at in blocks {
        let mut flipped = bytes.clone();
        flipped[at + 70] ^= 1;
        std::fs::write(&path, flipped).unwrap();
        for ((name, before, _), (_, after, problems)) in good.iter().zip(reports(dir.path())) {
            changed += usize::from(*before != after);
            let named = problems.iter().filter(|what| what.contains(&format!("(at byte {at})")));
            let table = bytes[at + 4];
            assert!(*before == after || named.count() == 1, "{name}, table {table}: {problems:?}");
        }
    }
    assert!(changed > 40, "{changed} reports differed");
}
