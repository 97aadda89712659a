//! Tests that reading a large table returns the rows that were written.

use proptest::prelude::*;
use std::path::Path;
use tprof_trace::model::*;
use tprof_trace::{TraceFile, TraceHeader, TraceRow, TraceWriter};

/// Writes rows to a file, opens it, and returns the rows that it contains.
fn through_a_file<R: TraceRow + Clone>(rows: &[R], path: &Path) -> Vec<R> {
    let mut writer = TraceWriter::create(path, &TraceHeader::default()).unwrap();
    writer.write(&mut rows.to_vec()).unwrap();
    writer.finish().unwrap();
    let file = TraceFile::open(path).unwrap();
    assert!(file.problems().is_empty(), "{:?}", file.problems());
    assert_eq!(file.row_count::<R>(), rows.len() as u64);
    let mut blocks = file.blocks::<R>();
    let read: Vec<R> = blocks.by_ref().flatten().collect();
    assert!(blocks.problems().is_empty(), "{:?}", blocks.problems());
    read
}

fn name() -> impl Strategy<Value = NameId> {
    any::<u32>().prop_map(NameId)
}

prop_compose! {
    fn span()(
        (start_ns, duration_ns, process, thread) in any::<(u64, u64, u32, u32)>(),
        kind in prop::sample::select(vec![
            SpanKind::Runtime, SpanKind::Driver, SpanKind::Operator, SpanKind::Annotation,
            SpanKind::Nvtx, SpanKind::Python, SpanKind::Overhead, SpanKind::Other,
        ]),
        (name, category, args) in (name(), name(), name()),
        (correlation, external, id, parent) in any::<(Option<u64>, Option<u64>, Option<u64>, Option<u64>)>(),
        (sequence, forward_thread, status, stack) in any::<(Option<u64>, Option<u64>, Option<u32>, u32)>(),
        (allocations, allocated_bytes) in any::<(Option<u64>, Option<u64>)>(),
    ) -> Span {
        Span {
            start_ns, duration_ns, process, thread, kind, name, category, correlation, external,
            id, parent, sequence, forward_thread, status, stack, args, allocations, allocated_bytes,
        }
    }
}

prop_compose! {
    fn kernel()(
        (start_ns, duration_ns, process, device) in any::<(u64, u64, u32, u32)>(),
        (context, stream, correlation, external) in any::<(u32, u64, Option<u64>, Option<u64>)>(),
        (name, args) in (name(), name()),
        (grid, block) in any::<([u32; 3], [u32; 3])>(),
        (registers, shared_static_bytes, shared_dynamic_bytes) in any::<(Option<u32>, Option<u32>, Option<u32>)>(),
        (graph, graph_node, queued_ns, submitted_ns) in any::<(Option<u32>, Option<u64>, Option<u64>, Option<u64>)>(),
    ) -> Kernel {
        Kernel {
            start_ns, duration_ns, process, device, context, stream, name, correlation, external,
            grid, block, registers, shared_static_bytes, shared_dynamic_bytes, graph, graph_node,
            queued_ns, submitted_ns, args,
        }
    }
}

prop_compose! {
    fn copy()(
        (start_ns, duration_ns, process, device) in any::<(u64, u64, u32, u32)>(),
        (context, stream, correlation, external) in any::<(u32, u64, Option<u64>, Option<u64>)>(),
        kind in prop::sample::select(vec![CopyKind::HostToDevice, CopyKind::Memset]),
        from in prop::sample::select(vec![MemoryKind::Pageable, MemoryKind::ManagedStatic]),
        (bytes, asynchronous, peer) in any::<(Option<u64>, Option<bool>, Option<u32>)>(),
        (name, args) in (name(), name()),
        (graph, graph_node) in any::<(Option<u32>, Option<u64>)>(),
    ) -> MemoryCopy {
        MemoryCopy {
            start_ns, duration_ns, process, device, context, stream, kind, from,
            to: MemoryKind::Device, bytes, asynchronous, peer, name, correlation, external, graph,
            graph_node, args,
        }
    }
}

prop_compose! {
    fn allocation()(
        (time_ns, process, thread, free) in any::<(u64, u32, u32, bool)>(),
        allocator in prop::sample::select(vec![Allocator::Library, Allocator::Framework, Allocator::Pool]),
        (device, address, bytes, stream) in any::<(Option<u32>, u64, Option<u64>, Option<u64>)>(),
        (total_allocated_bytes, total_reserved_bytes) in any::<(Option<u64>, Option<u64>)>(),
        (correlation, external, stack) in any::<(Option<u64>, Option<u64>, u32)>(),
    ) -> DeviceAllocation {
        DeviceAllocation {
            time_ns, process, thread, allocator, free, device, address, bytes,
            kind: MemoryKind::Device, total_allocated_bytes, total_reserved_bytes, stream,
            correlation, external, stack,
        }
    }
}

prop_compose! {
    fn sample()(
        (time_ns, process, thread, stack) in any::<(u64, u32, u32, u32)>(),
        (weight_ns, cpu, gil, spread_ns) in any::<(u64, Option<u32>, Option<bool>, Option<u64>)>(),
        state in prop::sample::select(vec![
            ThreadState::Running, ThreadState::Runnable, ThreadState::Blocked, ThreadState::Lock,
            ThreadState::Io, ThreadState::Sleep, ThreadState::Poll, ThreadState::Gil,
            ThreadState::Device,
        ]),
    ) -> Sample {
        Sample { time_ns, process, thread, stack, weight_ns, state, cpu, gil, spread_ns }
    }
}

prop_compose! {
    fn event_sample()(
        (time_ns, process, thread, stack) in any::<(u64, u32, u32, u32)>(),
        (event, count) in (name(), any::<u64>()),
    ) -> EventSample {
        EventSample { time_ns, process, thread, stack, event, count }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn any_rows_are_read_as_written(
        spans in prop::collection::vec(span(), 0..50),
        kernels in prop::collection::vec(kernel(), 0..50),
        copies in prop::collection::vec(copy(), 0..50),
        allocations in prop::collection::vec(allocation(), 0..50),
        samples in prop::collection::vec(sample(), 0..50),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        prop_assert_eq!(through_a_file(&spans, &at("spans")), spans);
        prop_assert_eq!(through_a_file(&kernels, &at("kernels")), kernels);
        prop_assert_eq!(through_a_file(&copies, &at("copies")), copies);
        prop_assert_eq!(through_a_file(&allocations, &at("allocations")), allocations);
        prop_assert_eq!(through_a_file(&samples, &at("samples")), samples);
    }
}

/// These kernels repeat so evenly that the file is 20,000 times smaller than the rows in memory.
#[test]
fn perfectly_regular_rows_are_read_as_written() {
    let kernel = |i: u64| Kernel {
        start_ns: 1_000 * i,
        duration_ns: 800,
        stream: 7,
        correlation: Some(i),
        ..Kernel::default()
    };
    let rows: Vec<Kernel> = (0..2_000_000).map(kernel).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank-0.tprof");
    assert!(through_a_file(&rows, &path) == rows);
}

#[test]
fn rows_of_the_other_large_tables_are_read_as_written() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let kinds = [SyncKind::Event, SyncKind::StreamWaitEvent, SyncKind::Stream, SyncKind::Context];
    let synchronizations: Vec<Synchronization> = kinds
        .into_iter()
        .zip(1..)
        .map(|(kind, n)| Synchronization {
            start_ns: n,
            kind,
            event: Some(n),
            event_correlation: (n % 2 == 0).then_some(n),
            ..Synchronization::default()
        })
        .collect();
    assert_eq!(through_a_file(&synchronizations, &at("synchronizations")), synchronizations);
    let points = [FlowEnd::Start, FlowEnd::Step, FlowEnd::End].map(|end| FlowPoint {
        time_ns: 5,
        thread: (end != FlowEnd::End).then_some(7),
        stream: (end == FlowEnd::End).then_some(1 << 40),
        end,
        id: 9,
        ..FlowPoint::default()
    });
    assert_eq!(through_a_file(&points, &at("points")), points);
    let kinds = [DeviceSpanKind::Annotation, DeviceSpanKind::Counters, DeviceSpanKind::Other];
    let spans = kinds.map(|kind| DeviceSpan { kind, stream: Some(3), ..DeviceSpan::default() });
    assert_eq!(through_a_file(&spans, &at("spans")), spans);
    let kinds = [
        ExternalKind::Unknown,
        ExternalKind::OpenAcc,
        ExternalKind::Custom0,
        ExternalKind::Custom1,
        ExternalKind::Custom2,
    ];
    let ids = kinds.map(|kind| ExternalId { process: 2, correlation: 1 << 40, kind, id: 7 });
    assert_eq!(through_a_file(&ids, &at("ids")), ids);
    let stalls = [(0, 0, 0), (u64::MAX, 1 << 40, 7)].map(|(module, offset, line)| KernelStall {
        time_ns: 5,
        process: 2,
        device: 1,
        module,
        offset,
        samples: 3,
        line,
        ..KernelStall::default()
    });
    assert_eq!(through_a_file(&stalls, &at("stalls")), stalls);
    let collectives = [None, Some(1 << 50)].map(|bytes| Collective {
        start_ns: 1,
        duration_ns: bytes,
        communicator: bytes,
        bytes,
        peer: Some(3),
        ..Collective::default()
    });
    assert_eq!(through_a_file(&collectives, &at("collectives")), collectives);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn an_outline_has_the_values_of_its_row(
        spans in prop::collection::vec(span(), 0..20),
        kernels in prop::collection::vec(kernel(), 0..20),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        writer.write(&mut spans.clone()).unwrap();
        writer.write(&mut kernels.clone()).unwrap();
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        let of_span = |row: &Span| SpanOutline {
            start_ns: row.start_ns,
            duration_ns: row.duration_ns,
            process: row.process,
            thread: row.thread,
            kind: row.kind,
            name: row.name,
            category: row.category,
            correlation: row.correlation,
            args: row.args,
        };
        let of_kernel = |row: &Kernel| KernelOutline {
            start_ns: row.start_ns,
            duration_ns: row.duration_ns,
            process: row.process,
            device: row.device,
            context: row.context,
            stream: row.stream,
            name: row.name,
            correlation: row.correlation,
            grid: row.grid,
            graph: row.graph,
            args: row.args,
        };
        let read: Vec<SpanOutline> = file.blocks().flatten().collect();
        prop_assert_eq!(read, spans.iter().map(of_span).collect::<Vec<_>>());
        let read: Vec<KernelOutline> = file.blocks().flatten().collect();
        prop_assert_eq!(read, kernels.iter().map(of_kernel).collect::<Vec<_>>());
    }
}

#[test]
fn a_window_reads_few_of_many_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    let mut rows: Vec<Kernel> = (0..200_000)
        .map(|n| Kernel { start_ns: n * 10, duration_ns: 5, ..Kernel::default() })
        .collect();
    writer.write(&mut rows).unwrap();
    assert!(rows.is_empty());
    writer.finish().unwrap();
    let file = TraceFile::open(&path).unwrap();
    let (all, problems) = file.rows::<Kernel>();
    assert_eq!((all.len(), problems.len()), (200_000, 0));
    let few: usize =
        file.blocks_between::<Kernel>(1_000_000, 1_000_100).map(|rows| rows.len()).sum();
    assert!((10..=65_536).contains(&few), "{few}");
    // A block overlaps a window by the end of its last row, not only by its start.
    assert_eq!(file.blocks_between::<Kernel>(1_999_994, u64::MAX).count(), 1);
    assert_eq!(file.blocks_between::<Kernel>(1_999_996, u64::MAX).count(), 0);
}

#[test]
fn rows_of_small_tables_are_read_as_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    let name = writer.name("NVIDIA H200");
    let device = Device {
        process: 1,
        device: 2,
        name,
        memory_bytes: Some(141 << 30),
        processors: Some(132),
        compute_major: Some(9),
        ..Device::default()
    };
    writer.device(&Device { memory_bytes: None, ..device.clone() });
    writer.device(&device);
    let stream = Stream { stream: 7, priority: Some(1 << 31), name, ..Stream::default() };
    writer.stream(&stream);
    let communicator =
        Communicator { communicator: 5, name, ranks: vec![0, 4, 8], ..Communicator::default() };
    writer.communicator(&communicator);
    let join = ClockJoin { time_ns: 3, foreign_ns: 4, uncertainty_ns: 5, process: 0, source: name };
    writer.clock_join(join);
    let (key, value) = (writer.name("distributedInfo"), writer.name(r#"{"rank":3}"#));
    writer.property(Property { key, value });
    writer.finish().unwrap();
    let file = TraceFile::open(&path).unwrap();
    assert_eq!(file.devices(), [device]);
    assert_eq!(file.streams(), [stream]);
    assert_eq!(file.communicators(), [communicator]);
    assert_eq!(file.clock_joins(), [join]);
    assert_eq!(file.property("distributedInfo"), Some(r#"{"rank":3}"#));
    assert_eq!(file.property("rank"), None);
    assert_eq!(file.name(file.last_name()), r#"{"rank":3}"#);
}

#[test]
fn rows_in_order_come_before_the_rows_that_they_enclose() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    let span = |start_ns, duration_ns| Span { start_ns, duration_ns, ..Span::default() };
    // The blocks overlap, aren't in order of time, and have unsorted rows.
    for rows in [
        vec![span(50, 5), span(40, 2)],
        vec![span(10, 10), span(20, 5), span(41, 1)],
        vec![span(10, 90), span(95, 0)],
        vec![span(200, 1)],
    ] {
        writer.write(&mut rows.clone()).unwrap();
    }
    writer.finish().unwrap();
    let file = TraceFile::open(&path).unwrap();
    let all = |from_ns, to_ns| -> Vec<(u64, u64)> {
        let batches = file.in_order::<Span>(from_ns, to_ns);
        batches.flatten().map(|row| (row.start_ns, row.duration_ns)).collect()
    };
    let whole = [(10, 90), (10, 10), (20, 5), (40, 2), (41, 1), (50, 5), (95, 0), (200, 1)];
    assert_eq!(all(0, u64::MAX), whole);
    // A row that ends exactly where the interval begins is outside. An instant at that time is
    // inside.
    assert_eq!(all(42, 200), [(10, 90), (50, 5), (95, 0)]);
    assert_eq!(all(95, 96), [(10, 90), (95, 0)]);
    assert_eq!(file.extent_ns(), Some((10, 201)));
}
