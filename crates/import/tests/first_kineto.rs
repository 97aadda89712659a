//! Tests importing traces of PyTorch 1.8 to 1.10. Their Kineto writes numbers as text, has one
//! category for operators and annotations, and writes no memory addresses.

use crate::common::*;
use tprof_trace::model::*;

/// One step with an operator, its launch, kernel and arrow, as PyTorch 1.8 writes them.
const STEP: [&str; 9] = [
    r#"{"name":"process_name","ph":"M","ts":1,"pid":0,"tid":0,"args":{"name":"python"}}"#,
    r#"{"name":"thread_name","ph":"M","ts":1,"pid":25738,"tid":"25738","args":{"name":"thread 25738 (python)"}}"#,
    r#"{"ph":"X","cat":"Operator","name":"ProfilerStep#3","pid":25738,"tid":"25738","ts":100,"dur":900,"args":{"Device":25738,"External id":1,"Trace name":"PyTorch Profiler","Trace iteration":0}}"#,
    r#"{"ph":"X","cat":"Operator","name":"aten::mm","pid":25738,"tid":"25738","ts":200,"dur":100,"args":{"Device":25738,"External id":2,"Trace name":"PyTorch Profiler","Trace iteration":0}}"#,
    r#"{"ph":"X","cat":"Runtime","name":"cudaLaunchKernel","pid":25738,"tid":"25738","ts":210,"dur":10,"args":{"cbid":211,"correlation":77,"external id":2,"external ts":200}}"#,
    r#"{"ph":"s","id":77,"pid":25738,"tid":25738,"ts":210,"cat":"async","name":"launch"}"#,
    r#"{"ph":"X","cat":"Kernel","name":"gemm","pid":0,"tid":"stream 7","ts":240,"dur":50,"args":{"queued":0,"device":0,"context":1,"stream":7,"correlation":77,"external id":2,"registers per thread":16,"shared memory":0,"grid":[1,1,1],"block":[64,1,1]}}"#,
    r#"{"ph":"f","id":77,"pid":0,"tid":"stream 7","ts":240,"cat":"async","name":"launch","bp":"e"}"#,
    r#"{"ph":"X","cat":"User","name":"ProfilerStep#3","pid":0,"tid":"stream 7 user","ts":240,"dur":50,"args":{"External id":1}}"#,
];

#[test]
fn quoted_and_unquoted_numbers_are_the_same_thread() {
    let memory = r#"{"ph":"i","s":"t","name":"[memory]","pid":25738,"tid":25738,"ts":220,"args":{"Device Type":1,"Device Id":0,"Bytes":512}}"#;
    let quoted = r#"{"ph":"X","cat":"Operator","name":"aten::t","pid":"25738","tid":"25738","ts":400,"dur":5}"#;
    let other = r#"{"ph":"X","cat":"Operator","name":"MulBackward0","pid":25738,"tid":"25800","ts":300,"dur":5}"#;
    let run = import_events(&[&STEP[..], &[memory, quoted, other]].concat());
    let file = run.file();
    let tids: Vec<u32> = file.threads().iter().map(|thread| thread.tid).collect();
    assert_eq!(tids, [25738, 25800]);
    assert_eq!(file.processes().len(), 1);
    assert_eq!(file.thread_name(0), Some("thread 25738 (python)"));
    let spans = run.rows::<Span>();
    assert!(spans.iter().all(|span| span.thread == u32::from(span.start_ns == 300_000)));
    assert_eq!(run.rows::<DeviceAllocation>()[0].thread, 0);
}

#[test]
fn annotations_among_operators_are_recognized_by_name() {
    let named = |name: &str| {
        format!(r#"{{"ph":"X","cat":"Operator","name":"{name}","pid":1,"tid":"1","ts":1,"dur":1}}"#)
    };
    let kind = |name: &str| {
        let run = import_events(&[&named(name)]);
        let span = run.rows::<Span>()[0];
        assert_eq!(run.name(span.category), "Operator");
        span.kind
    };
    for name in [
        "ProfilerStep#12",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "Optimizer.step#SGD.step",
        "Optimizer.zero_grad#SGD.zero_grad",
        "DistributedDataParallel.forward",
        "nccl:all_reduce",
    ] {
        assert_eq!(kind(name), SpanKind::Annotation, "{name}");
    }
    for name in ["aten::mm", "AddmmBackward", "torch::autograd::GraphRoot", "detach", "forward"] {
        assert_eq!(kind(name), SpanKind::Operator, "{name}");
    }
}

#[test]
fn launch_arrows_are_dropped_and_device_annotations_are_kept() {
    let run = import_events(&STEP);
    assert_eq!(run.rows::<FlowPoint>(), []);
    let kernel = run.rows::<Kernel>()[0];
    assert_eq!((kernel.device, kernel.stream, kernel.correlation), (0, 7, Some(77)));
    let span = run.rows::<DeviceSpan>()[0];
    assert_eq!((span.kind, span.stream), (DeviceSpanKind::Annotation, Some(7)));
    assert!(run.info.completeness.losses.is_empty(), "{:?}", run.info.completeness.losses);
    // Other arrows are stored. An arrow whose tid names a stream ends on that stream.
    let other = |phase: &str, tid: &str| {
        format!(r#"{{"ph":"{phase}","id":5,"pid":0,"tid":{tid},"ts":9,"cat":"mine","name":"x"}}"#)
    };
    let run = import_events(&[&other("s", "3"), &other("f", "\"stream 20\"")]);
    let places: Vec<_> =
        run.rows::<FlowPoint>().iter().map(|row| (row.thread, row.device, row.stream)).collect();
    assert_eq!(places, [(Some(0), None, None), (None, Some(0), Some(20))]);
    for category in ["async_gpu", "async_cpu_to_gpu", "ac2g"] {
        let arrow = format!(
            r#"{{"ph":"s","id":7,"pid":1,"tid":1,"ts":9,"cat":"{category}","name":"cudaLaunchKernel"}}"#
        );
        assert_eq!(import_events(&[&arrow, STEP[3]]).rows::<FlowPoint>(), []);
    }
    let program = r#"{"ph":"s","id":7,"pid":1,"tid":1,"ts":9,"cat":"async","name":"download"}"#;
    assert_eq!(import_events(&[program]).rows::<FlowPoint>().len(), 1);
}

#[test]
fn memory_without_an_address_is_reported() {
    let event = |at: u32, bytes: i64| {
        format!(
            r#"{{"ph":"i","s":"t","name":"[memory]","pid":1,"tid":1,"ts":{at},"args":{{"Device Type":1,"Device Id":0,"Bytes":{bytes}}}}}"#
        )
    };
    let run = import_events(&[&event(1, 512), &event(2, -512)]);
    let rows = run.rows::<DeviceAllocation>();
    assert!(rows.iter().all(|row| !row.is_placed() && row.bytes == Some(512)));
    assert!(rows[1].free);
    assert_eq!(run.info.completeness.lost, 0);
}
