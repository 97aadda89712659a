//! Tests that every kind of event is imported with all of its data.

use crate::common::*;
use tprof_trace::model::*;

/// A launch, its kernel, and the events around them, as a new Kineto writes them.
const LAUNCH: [&str; 5] = [
    r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":7,"tid":8,"ts":10.001,"dur":50.5,"args":{"External id":3,"Record function id":1,"Sequence number":5,"Fwd thread id":0,"Ev Idx":0,"Input Dims":[[2, 3], [3, 4]]}}"#,
    r#"{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":8,"ts":20.5,"dur":4.25,"args":{"External id":3,"cbid":211,"correlation":35}}"#,
    r#"{"ph":"X","cat":"kernel","name":"gemm<\"x\">","pid":0,"tid":7,"ts":30,"dur":12.75,"args":{"External id":3,"queued":0,"device":0,"context":1,"stream":7,"correlation":35,"registers per thread":16,"shared memory":512,"blocks per SM":1.5,"grid":[4,2,1],"block":[128,1,1]}}"#,
    r#"{"ph":"s","id":35,"pid":7,"tid":8,"ts":20.5,"cat":"ac2g","name":"ac2g"}"#,
    r#"{"ph":"f","id":35,"pid":0,"tid":7,"ts":30,"cat":"ac2g","name":"ac2g","bp":"e"}"#,
];

#[test]
fn a_launch_is_joined_to_its_operator_and_its_kernel() {
    let run = import_events(&LAUNCH);
    let spans = run.rows::<Span>();
    let (operator, launch) = (spans[0], spans[1]);
    assert_eq!((operator.kind, launch.kind), (SpanKind::Operator, SpanKind::Runtime));
    assert_eq!((operator.start_ns, operator.duration_ns), (10_001, 50_500));
    assert_eq!(
        (operator.external, operator.sequence, operator.forward_thread),
        (Some(3), Some(5), Some(0))
    );
    assert_eq!(run.name(operator.name), "aten::mm");
    assert_eq!(run.name(operator.args), r#"{"Input Dims":[[2,3],[3,4]]}"#);
    assert_eq!((launch.correlation, run.name(launch.args)), (Some(35), r#"{"cbid":211}"#));
    let kernel = run.rows::<Kernel>()[0];
    assert_eq!((kernel.start_ns, kernel.duration_ns), (30_000, 12_750));
    assert_eq!((kernel.correlation, kernel.external, kernel.stream), (Some(35), Some(3), 7));
    assert_eq!((kernel.grid, kernel.block), ([4, 2, 1], [128, 1, 1]));
    assert_eq!((kernel.registers, kernel.shared_dynamic_bytes), (Some(16), Some(512)));
    assert_eq!(run.name(kernel.name), "gemm<\"x\">");
    assert_eq!(run.name(kernel.args), r#"{"blocks per SM":1.5}"#);
    // The trace's arrow from the launch to its kernel isn't stored, because their correlation
    // already joins them.
    assert_eq!(run.rows::<FlowPoint>(), []);
    assert_eq!(run.file().processes().len(), 1);
    assert_eq!(run.file().processes()[0].pid, 7);
    assert_eq!(run.info.completeness.lost, 0);
    assert!(run.info.completeness.losses.is_empty());
}

#[test]
fn times_count_from_1970_if_the_trace_has_a_base() {
    let text = br#"{"baseTimeNanoseconds": 1727743122000000000, "traceEvents": [
        {"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":2413669095762.437,"dur":1}]}"#;
    let run = import_text(text).unwrap();
    assert_eq!(run.rows::<Span>()[0].start_ns, 1_727_743_122_000_000_000 + 2_413_669_095_762_437);
    assert_eq!(run.info.start_unix_ns, run.info.start_ns);
    let old = import_events(&[
        r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1694128201426602,"dur":2}"#,
    ]);
    assert_eq!(old.rows::<Span>()[0].start_ns, 1_694_128_201_426_602_000);
    let relative = import_events(&[r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":2}"#]);
    assert_eq!((relative.info.start_ns, relative.info.start_unix_ns), (5000, 0));
}

#[test]
fn copies_have_direction_memory_and_bytes() {
    let run = import_events(&[
        r#"{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pinned -> Device)","pid":1,"tid":20,"ts":1,"dur":2,"args":{"device":1,"context":1,"stream":20,"correlation":9,"bytes":4096,"memory bandwidth (GB/s)":2.048}}"#,
        r#"{"ph":"X","cat":"gpu_memset","name":"Memset (Device)","pid":1,"tid":7,"ts":5,"dur":2,"args":{"device":1,"stream":7,"bytes":128}}"#,
        r#"{"ph":"X","cat":"gpu_memcpy","name":"CopyDeviceToHost","pid":2,"tid":0,"ts":9,"dur":2,"args":{"device":2,"stream":0,"kind":"DtoH"}}"#,
    ]);
    let copies = run.rows::<MemoryCopy>();
    let kinds: Vec<_> = copies.iter().map(|copy| (copy.kind, copy.bytes, copy.device)).collect();
    assert_eq!(
        kinds,
        [
            (CopyKind::HostToDevice, Some(4096), 1),
            (CopyKind::Memset, Some(128), 1),
            (CopyKind::DeviceToHost, None, 2)
        ]
    );
    assert_eq!((copies[0].from, copies[0].to), (MemoryKind::Pinned, MemoryKind::Device));
    assert_eq!(run.name(copies[0].args), r#"{"memory bandwidth (GB/s)":2.048}"#);
}

#[test]
fn waits_have_the_event_that_they_wait_for() {
    let run = import_events(&[
        r#"{"ph":"X","cat":"cuda_sync","name":"Stream Wait Event","pid":0,"tid":20,"ts":1,"dur":0,"args":{"External id":5183,"cuda_sync_kind":"Stream Wait Event","wait_on_stream":7,"wait_on_cuda_event_record_corr_id":5180,"wait_on_cuda_event_id":20,"stream":20,"correlation":5183,"device":0,"context":1}}"#,
        r#"{"ph":"X","cat":"cuda_sync","name":"Context Sync","pid":0,"tid":-1,"ts":2,"dur":3,"args":{"cuda_sync_kind":"Context Sync","stream":-1,"correlation":6,"device":0,"context":1}}"#,
    ]);
    let waits = run.rows::<Synchronization>();
    assert_eq!((waits[0].kind, waits[0].stream), (SyncKind::StreamWaitEvent, Some(20)));
    assert_eq!(
        (waits[0].event, waits[0].event_stream, waits[0].event_correlation),
        (Some(20), Some(7), Some(5180))
    );
    assert_eq!((waits[1].kind, waits[1].stream, waits[1].event), (SyncKind::Context, None, None));
}

#[test]
fn memory_events_are_allocations_and_frees() {
    let run = import_events(&[
        r#"{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":7,"tid":8,"ts":1,"args":{"Ev Idx":4,"Device Type":1,"Device Id":1,"Addr":139927786356736,"Bytes":512,"Total Allocated":5565076480,"Total Reserved":12782141440}}"#,
        r#"{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":7,"tid":8,"ts":2,"args":{"Device Type":0,"Device Id":-1,"Addr":64,"Bytes":-512}}"#,
    ]);
    let rows = run.rows::<DeviceAllocation>();
    assert_eq!((rows[0].free, rows[0].bytes, rows[0].device), (false, Some(512), Some(1)));
    assert_eq!(rows[0].total_reserved_bytes, Some(12_782_141_440));
    assert_eq!((rows[1].free, rows[1].bytes, rows[1].device), (true, Some(512), None));
    assert_eq!(rows[1].total_allocated_bytes, None);
}

#[test]
fn call_stacks_are_frames_with_names() {
    let run = import_events(&[
        r#"{"ph":"X","cat":"cpu_op","name":"a","pid":7,"tid":8,"ts":1,"dur":9,"args":{"Call stack":"net.py(12): forward;train.py(3): <module>"}}"#,
        r#"{"ph":"X","cat":"cpu_op","name":"b","pid":7,"tid":8,"ts":2,"dur":1,"args":{"Call stack":"net.py(12): forward;train.py(3): <module>"}}"#,
        r#"{"ph":"X","cat":"cpu_op","name":"c","pid":7,"tid":8,"ts":3,"dur":1,"args":{"Call stack":""}}"#,
    ]);
    let spans = run.rows::<Span>();
    assert_eq!(spans[0].stack, spans[1].stack);
    assert_eq!(spans[2].stack, 0);
    let stack = run.file().stack(0, spans[0].stack).unwrap();
    assert!(stack.frames.iter().all(|frame| frame & SYNTHETIC_FRAME != 0));
    let symbols = run.file().symbols(0, stack.frames[0]);
    assert_eq!(
        (run.name(symbols[0].function), run.name(symbols[0].file), symbols[0].line),
        ("forward", "net.py", 12)
    );
    assert_eq!(stack.frames.len(), 2);
}

#[test]
fn python_functions_refer_to_their_callers() {
    let run = import_events(&[
        r#"{"ph":"X","cat":"python_function","name":"train.py(3): step","pid":7,"tid":8,"ts":1,"dur":9,"args":{"Python parent id":null,"Python id":1,"Ev Idx":77}}"#,
        r#"{"ph":"X","cat":"python_function","name":"net.py(9): forward","pid":7,"tid":8,"ts":2,"dur":5,"args":{"Python parent id":1,"Python id":2,"Python module id":4,"Ev Idx":78}}"#,
    ]);
    let spans = run.rows::<Span>();
    assert_eq!((spans[0].kind, spans[0].id, spans[0].parent), (SpanKind::Python, Some(1), None));
    assert_eq!((spans[1].id, spans[1].parent), (Some(2), Some(1)));
    assert_eq!(run.name(spans[1].args), r#"{"Python module id":4}"#);
    // These numbers are counted as losses of parts, but the run is still complete without them.
    assert_eq!(run.lost("nothing refers to them"), 2);
    assert!(run.info.completeness.losses.is_empty());
}

#[test]
fn annotations_are_kept_on_host_and_device() {
    let run = import_events(&[
        r#"{"ph":"X","cat":"user_annotation","name":"ProfilerStep#5","pid":7,"tid":8,"ts":1,"dur":9,"args":{"External id":2,"Ev Idx":1}}"#,
        r#"{"ph":"X","cat":"gpu_user_annotation","name":"ProfilerStep#5","pid":0,"tid":7,"ts":3,"dur":9,"args":{"External id":2}}"#,
        r#"{"ph":"X","cat":"cuda_profiler_range","name":"gemm","pid":0,"tid":0,"ts":3,"dur":9,"args":{"smsp__inst.sum":12.5}}"#,
        r#"{"ph":"X","cat":"overhead","name":"Buffer Flush","pid":-1,"tid":0,"ts":4,"dur":1}"#,
    ]);
    let spans = run.rows::<Span>();
    let kinds: Vec<_> = spans.iter().map(|span| span.kind).collect();
    assert_eq!(kinds, [SpanKind::Annotation, SpanKind::Overhead]);
    let ranges = run.rows::<DeviceSpan>();
    let kinds: Vec<_> = ranges.iter().map(|range| (range.kind, range.external)).collect();
    assert_eq!(kinds, [(DeviceSpanKind::Annotation, Some(2)), (DeviceSpanKind::Counters, None)]);
    assert_eq!(run.name(ranges[1].args), r#"{"smsp__inst.sum":12.5}"#);
}

#[test]
fn generic_chrome_events_are_spans_marks_counters_and_arrows() {
    let text = br#"[
        {"ph":"M","name":"process_name","pid":3,"args":{"name":"server"}},
        {"ph":"M","name":"thread_name","pid":3,"tid":4,"args":{"name":"worker"}},
        {"ph":"M","name":"thread_sort_index","pid":3,"tid":4,"args":{"sort_index":-5}},
        {"ph":"B","name":"outer","cat":"io","pid":3,"tid":4,"ts":1,"args":{"file":"x"}},
        {"ph":"B","name":"inner","cat":"io","pid":3,"tid":4,"ts":2},
        {"ph":"E","pid":3,"tid":4,"ts":3.5,"args":{"bytes":5}},
        {"ph":"E","pid":3,"tid":4,"ts":9},
        {"ph":"C","name":"queue","pid":3,"ts":4,"args":{"length":7,"waiting":2.5}},
        {"ph":"C","name":"rss","pid":3,"ts":5,"args":{"value":1e3}},
        {"ph":"i","s":"p","name":"go","pid":3,"tid":4,"ts":6},
        {"ph":"s","cat":"rpc","name":"call","id":"0x1f","pid":3,"tid":4,"ts":2.5},
        {"ph":"f","cat":"rpc","name":"call","id":31,"pid":3,"tid":4,"ts":8},
        {"ph":"N","name":"o","id":1,"pid":3,"tid":4,"ts":1},
        {"ph":"b","cat":"a","name":"async","id":1,"pid":3,"tid":4,"ts":1}
    "#;
    let run = import_text(text).unwrap();
    let spans = run.rows::<Span>();
    let shape: Vec<_> = spans
        .iter()
        .map(|s| (run.name(s.name), s.start_ns, s.duration_ns, run.name(s.args)))
        .collect();
    assert_eq!(
        shape,
        [("outer", 1000, 8000, r#"{"file":"x"}"#), ("inner", 2000, 1500, r#"{"bytes":5}"#)]
    );
    assert!(spans.iter().all(|span| run.name(span.category) == "io"));
    let file = run.file();
    assert_eq!(file.name(file.processes()[0].command), "server");
    assert_eq!(file.thread_name(spans[0].thread), Some("worker"));
    let counters: Vec<_> =
        file.counters().iter().map(|row| (file.name(row.name), row.value)).collect();
    assert_eq!(counters, [("queue length", 7.0), ("queue waiting", 2.5), ("rss", 1000.0)]);
    assert_eq!(file.name(file.marks()[0].name), "go");
    let arrows = run.rows::<FlowPoint>();
    assert_eq!((arrows[0].end, arrows[1].end), (FlowEnd::Start, FlowEnd::End));
    assert_eq!((arrows[0].id, arrows[1].id), (31, 31));
    assert_eq!((run.lost("the model has none"), run.lost("only spans of threads")), (1, 1));
    assert_eq!(run.info.completeness.lost, 2);
    assert!(file.property("tprof.metadata").unwrap().contains("\"sort_index\":-5"));
}

#[test]
fn the_top_level_becomes_properties_devices_and_groups() {
    let text = br#"{"schemaVersion": 1, "with_stack": true,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 42297524224, "computeMajor": 8, "computeMinor": 0, "numSms": 108, "warpSize": 32}],
        "distributedInfo": {"backend": "nccl", "rank": 5, "world_size": 8, "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [1, 5]}]},
        "traceEvents": [], "traceName": "x.json"}"#;
    let run = import_files(&[("rank-9.json", text)]).unwrap();
    check(&run);
    let file = run.file();
    // The rank in the trace takes precedence over the rank in the file's name.
    assert_eq!(run.dir.files()[0].rank, Some(5));
    assert_eq!(file.header().rank, Some(5));
    assert_eq!(file.property("schemaVersion"), Some("1"));
    assert_eq!(file.property("traceName"), Some("\"x.json\""));
    let device = &file.devices()[0];
    assert_eq!((device.memory_bytes, device.processors), (Some(42_297_524_224), Some(108)));
    assert_eq!((device.compute_major, device.compute_minor), (Some(8), Some(0)));
    assert_eq!(file.name(device.properties), r#"{"warpSize":32}"#);
    let group = &file.communicators()[0];
    assert_eq!((group.communicator, group.size, group.rank), (0, Some(2), Some(1)));
    assert_eq!((file.name(group.description), &group.ranks[..]), ("default_pg", &[1, 5][..]));
}

#[test]
fn an_object_that_is_written_as_text_is_read() {
    let text = br#"{"distributedInfo": "{\"rank\": \"3\", \"world_size\": 4, \"backend\": \"gloo\"}", "traceEvents": []}"#;
    let run = import_text(text).unwrap();
    assert_eq!(run.dir.files()[0].rank, Some(3));
    let group = &run.file().communicators()[0];
    assert_eq!((group.size, group.rank), (Some(4), Some(3)));
}

#[test]
fn spans_that_begin_together_are_sorted_with_the_longer_one_first() {
    let run = import_events(&[
        r#"{"ph":"X","cat":"cpu_op","name":"inner","pid":1,"tid":1,"ts":5,"dur":1}"#,
        r#"{"ph":"X","cat":"cpu_op","name":"outer","pid":1,"tid":1,"ts":5,"dur":3}"#,
    ]);
    let names: Vec<_> = run.rows::<Span>().iter().map(|s| run.name(s.name).to_owned()).collect();
    assert_eq!(names, ["outer", "inner"]);
}

/// Returns the functions of a stack, innermost first, with their modules.
fn functions(run: &Run, stack: StackId) -> Vec<(&str, &str)> {
    let frames = run.file().stack(0, stack).unwrap().frames.clone();
    let symbol = |frame: &u64| {
        let symbol = &run.file().symbols(0, *frame)[0];
        (run.name(symbol.function), run.name(symbol.module))
    };
    frames.iter().map(symbol).collect()
}

#[test]
fn samples_of_the_top_level_are_cpu_samples() {
    // The frames may come before or after the samples, and ids may be numbers or texts.
    let frames = r#""stackFrames": {"1": {"name": "main", "category": "app"},
        "2": {"name": "inner", "category": "libx.so", "parent": "1"}}"#;
    let samples = r#""samples": [
        {"cpu": 3, "tid": 8, "ts": 1500, "name": "cycles", "sf": 2, "weight": 1},
        {"cpu": 3, "tid": 8, "ts": 2500, "name": "cycles", "sf": "2", "weight": 2},
        {"cpu": 3, "tid": 9, "ts": 3500, "name": "cycles", "sf": 1, "weight": 1},
        {"cpu": 3, "tid": 8, "ts": 2600, "name": "cache-misses", "sf": 1, "weight": 1}]"#;
    let events = r#""traceEvents": [
        {"name": "step", "ph": "X", "ts": 1000, "dur": 5000, "pid": 7, "tid": 8, "sf": 2}]"#;
    for members in [[events, samples, frames], [frames, samples, events]] {
        let run = import_text(format!("{{{}}}", members.join(",\n")).as_bytes()).unwrap();
        let rows = run.rows::<Sample>();
        let shape: Vec<_> = rows.iter().map(|row| (row.time_ns, row.weight_ns, row.cpu)).collect();
        let cpu = Some(3);
        assert_eq!(
            shape,
            [(1_500_000, 1_000_000, cpu), (2_500_000, 2_000_000, cpu), (3_500_000, 1_000_000, cpu)]
        );
        let inner = [("inner", "libx.so"), ("main", "app")];
        assert_eq!(functions(&run, rows[0].stack), inner);
        assert_eq!(functions(&run, rows[1].stack), inner);
        assert_eq!(functions(&run, rows[2].stack), inner[1..]);
        let span = run.rows::<Span>()[0];
        assert_eq!(functions(&run, span.stack), inner);
        assert_eq!((rows[0].thread, rows[0].process), (span.thread, span.process));
        let tids = [rows[0].thread, rows[2].thread].map(|at| run.file().threads()[at as usize].tid);
        assert_eq!(tids, [8, 9]);
        assert_eq!(run.info.completeness.samples, 3);
        // Samples of cache misses are not CPU time.
        assert_eq!((run.lost("of another event"), run.info.completeness.lost), (1, 1));
        assert!(run.imported.notes[0].contains("each stands for 1"), "{:?}", run.imported.notes);
    }
}

#[test]
fn samples_that_cannot_be_read_are_counted() {
    let import = |samples: &str| {
        import_text(format!(r#"{{"traceEvents": [], "samples": [{samples}]}}"#).as_bytes()).unwrap()
    };
    // With a single sample, the sampling period is unknown.
    let run = import(r#"{"tid": 8, "ts": 1, "sf": 1}"#);
    assert_eq!((run.lost("no thread has two"), run.rows::<Sample>().len()), (1, 0));
    let run = import(r#"17, {"tid": 8, "sf": 1}, {"tid": 8, "ts": 1}, {"tid": 8, "ts": 5}"#);
    assert_eq!((run.lost("no object"), run.lost("no time")), (1, 1));
    assert_eq!(run.rows::<Sample>().len(), 2);
    let run = import(r#"{"tid": 8, "ts": 1, "sf": 4}, {"tid": 8, "ts": 5, "sf": 4}"#);
    assert_eq!((run.lost("`stackFrames` does not have"), run.rows::<Sample>().len()), (1, 2));
    // This frame is its own caller, so its stack would be endless.
    let run = import_text(
        br#"{"traceEvents": [], "stackFrames": {"1": {"name": "f", "parent": 1}},
        "samples": [{"tid": 8, "ts": 1, "sf": 1}, {"tid": 8, "ts": 2, "sf": 1}]}"#,
    )
    .unwrap();
    assert_eq!(run.lost("a stack of more than"), 1);
}

#[test]
fn events_in_lists_that_no_report_reads_are_counted() {
    let text = br#"{"traceEvents": [{"ph":"i","name":"a","pid":1,"tid":1,"ts":1,"s":"p"}],
        "systemTraceEvents": "cat-7 [001] 1.0: sched_switch\nls-8 [001] 2.0: sched_switch\n",
        "powerEvents": [{"ts": 1}, {"ts": 2}, {"ts": 3}], "tags": ["a", "b"],
        "deviceProperties": [{"id": 0}], "otherData": {"version": "x"}}"#;
    let run = import_text(text).unwrap();
    assert_eq!((run.lost("no report reads"), run.info.completeness.lost), (5, 5));
    assert_eq!(run.file().property("tags"), Some(r#"["a","b"]"#));
}
