//! Tests that the devices of every vendor are recognized by the categories of their events.

use crate::common::*;
use tprof_trace::model::*;

fn event(category: &str, name: &str, pid: u32, tid: u32, ts: u32, args: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":{pid},"tid":{tid},"ts":{ts},"dur":5,"args":{{{args}}}}}"#
    )
}

fn import_all(events: &[String]) -> Run {
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    import_events(&events)
}

#[test]
fn work_and_launches_of_every_accelerator_are_recognized() {
    for (runtime, kernel, copy) in [
        ("mtia_runtime", "mtia_ccp_events", "mtia_ccp_events"),
        ("xpu_runtime", "kernel", "gpu_memcpy"),
        ("xpu_driver", "kernel", "gpu_memcpy"),
        ("privateuse1_runtime", "kernel", "gpu_memcpy"),
        ("privateuse1_driver", "kernel", "gpu_memcpy"),
        ("glow_runtime", "kernel", "gpu_memcpy"),
        ("hpu_op", "kernel", "gpu_memcpy"),
    ] {
        let copy_name = if copy == kernel { "dma_h2d" } else { "Memcpy HtoD (Host -> Device)" };
        let run = import_all(&[
            event("cpu_op", "aten::mm", 9, 9, 100, r#""External id":1"#),
            event(runtime, "launch", 9, 9, 101, r#""correlation":4"#),
            event(kernel, "fc_kernel", 2, 3, 110, r#""device":2,"stream":3,"correlation":4"#),
            event(copy, copy_name, 2, 4, 120, r#""device":2,"stream":4,"bytes":64"#),
        ]);
        let spans = run.rows::<Span>();
        let call = spans.iter().find(|span| span.correlation == Some(4)).unwrap();
        assert!(matches!(call.kind, SpanKind::Runtime | SpanKind::Driver), "{runtime}");
        assert_eq!(run.name(call.category), runtime);
        let kernels = run.rows::<Kernel>();
        let places: Vec<_> =
            kernels.iter().map(|row| (row.device, row.stream, row.correlation)).collect();
        assert_eq!(places, [(2, 3, Some(4))], "{runtime}");
        let copies = run.rows::<MemoryCopy>();
        assert_eq!(copies.iter().map(|row| row.bytes).collect::<Vec<_>>(), [Some(64)], "{runtime}");
        // A device's number is in the place of a pid, but must not create a process.
        assert_eq!(run.file().processes().len(), 1, "{runtime}");
    }
}

#[test]
fn waits_events_and_counters_belong_to_their_device() {
    let counter =
        r#"{"ph":"C","cat":"mtia_counters","name":"HBM read","pid":2,"ts":9,"args":{"value":5.5}}"#;
    let run = import_all(&[
        event("cpu_op", "aten::mm", 9, 9, 1, ""),
        event("xpu_sync", "Sync", 2, 3, 2, r#""device":2,"stream":3"#),
        event("cuda_event", "Event Record", 2, 3, 3, r#""device":2,"stream":3"#),
        event("mtia_insight", "PE busy", 2, 3, 4, ""),
        event("xpu_scope_profiler", "gemm", 2, 3, 5, ""),
        counter.to_owned(),
    ]);
    assert_eq!(run.rows::<Synchronization>().len(), 1);
    let spans = run.rows::<DeviceSpan>();
    let kinds: Vec<_> = spans.iter().map(|row| (row.kind, run.name(row.category))).collect();
    use DeviceSpanKind::{Counters, Other};
    assert_eq!(kinds, [(Other, "cuda_event"), (Other, "mtia_insight"), (Counters, "")]);
    let counters = run.file().counters();
    assert_eq!((counters[0].device, counters[0].process), (Some(2), None));
    assert_eq!(run.file().processes().len(), 1);
}

#[test]
fn repeated_labels_are_stored_once() {
    let label = |index: usize, value: usize| {
        format!(
            r#"{{"name":"process_sort_index","ph":"M","ts":{index},"pid":"Spans","tid":0,"args":{{"sort_index":{value}}}}}"#
        )
    };
    let mut events: Vec<String> = (0..5000).map(|at| label(at, 7)).collect();
    events.push(label(6000, 8));
    events.push(event("cpu_op", "a", 1, 1, 1, ""));
    let run = import_all(&events);
    let losses = &run.info.completeness.losses;
    assert!(losses.is_empty(), "{losses:?}");
    let kept = run.file().property("tprof.metadata").unwrap();
    assert_eq!(
        kept,
        r#"[{"args":{"sort_index":8},"name":"process_sort_index","pid":"Spans","tid":0}]"#
    );
    // If there are too many different labels, the rest is a loss with its own name.
    let many = |at: usize| {
        format!(
            r#"{{"name":"thread_sort_index","ph":"M","ts":1,"pid":1,"tid":{at},"args":{{"sort_index":1}}}}"#
        )
    };
    let mut events: Vec<String> = (0..5000).map(many).collect();
    events.push(event("cpu_op", "a", 1, 1, 1, ""));
    let losses = import_all(&events).info.completeness.losses;
    assert_eq!(losses.len(), 1);
    assert_eq!(losses[0].what, "labels and places of processes and threads");
}
