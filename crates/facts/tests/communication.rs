//! Tests which kernels of a file are found to communicate.

use tprof_facts::communication::Communication;
use tprof_trace::model::*;
use tprof_trace::{TraceFile, TraceHeader, TraceWriter};

/// Spans of thread 0: kind, name, start and end, correlation.
type Spans<'a> = &'a [(SpanKind, &'a str, u64, u64, Option<u64>)];

fn file(spans: Spans<'_>, dir: &tempfile::TempDir) -> TraceFile {
    let path = dir.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    let mut rows = Vec::new();
    for &(kind, name, start_ns, end_ns, correlation) in spans {
        let (name, duration_ns) = (writer.name(name), end_ns - start_ns);
        rows.push(Span { kind, name, start_ns, duration_ns, correlation, ..Span::default() });
    }
    writer.write(&mut rows).unwrap();
    writer.finish().unwrap();
    TraceFile::open(&path).unwrap()
}

#[test]
fn the_innermost_operator_around_a_launch_decides() {
    use SpanKind::{Annotation, Operator, Runtime};
    let dir = tempfile::tempdir().unwrap();
    let file = file(
        &[
            (Operator, "_C_custom_ar::all_reduce", 0, 100, None),
            (Runtime, "cudaLaunchKernel", 10, 15, Some(1)),
            // An operator that computes lies within one that communicates.
            (Operator, "c10d::allgather_", 200, 300, None),
            (Operator, "aten::copy_", 210, 230, None),
            (Runtime, "cudaLaunchKernel", 215, 220, Some(2)),
            (Runtime, "cudaLaunchKernel", 240, 245, Some(3)),
            // A range of the user's own doesn't tell the purpose of the work in it, so the operator
            // around it decides.
            (Annotation, "nccl:all_reduce", 400, 500, None),
            (Annotation, "my range", 410, 490, None),
            (Runtime, "urEnqueueKernelLaunch", 420, 425, Some(4)),
            (Operator, "aten::mm", 600, 700, None),
            (Runtime, "cudaLaunchKernel", 610, 615, Some(5)),
            // This call lies in no operator or range.
            (Runtime, "cudaLaunchKernel", 700, 705, Some(6)),
        ],
        &dir,
    );
    let mut communication = Communication::of(&file, &[]);
    let found: Vec<u64> =
        (1..=6).filter(|number| communication.holds(0, Some(*number), NameId(0))).collect();
    assert_eq!(found, [1, 3, 4]);
    assert!(!communication.holds(1, Some(1), NameId(0)));
}

#[test]
fn the_kernel_of_a_collective_communicates() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(&[], &dir);
    let row = Collective { correlation: Some(9), ..Collective::default() };
    let mut communication = Communication::of(&file, &[row]);
    assert!(communication.holds(0, Some(9), NameId(0)));
    assert!(!communication.holds(0, None, NameId(0)));
}
