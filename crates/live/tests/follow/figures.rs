//! Tests the figures of snapshots, and how they are passed on.

use tprof_live::{EventKind, Metric, Snapshot, prometheus};
use tprof_trace::model::*;
use tprof_trace::run::{Completeness, LossInfo, ProcessInfo};

use super::run::{Run, SECOND, START, every, values};

#[test]
fn gauges_of_a_program_have_the_unit_of_their_names() {
    let mut run = Run::begun(9 * SECOND, 2);
    run.counter(1, SECOND, "queue_bytes", 12.0);
    run.counter(1, 2 * SECOND, "loss", 0.5);
    // A counter that tprof itself writes isn't a gauge of the program.
    run.counter(1, 3 * SECOND, "mapped_bytes", 1.0);
    let snapshot = run.follower().poll();
    let gauges = snapshot.metrics.iter().filter(|metric| metric.key.starts_with("gauge:"));
    let found: Vec<_> =
        gauges.map(|of| (of.key.as_str(), of.unit.as_str(), of.values.clone())).collect();
    assert_eq!(
        found,
        [
            ("gauge:queue_bytes", "bytes", vec![None, Some(12.0)]),
            ("gauge:loss", "none", vec![None, Some(0.5)]),
        ]
    );
}

#[test]
fn losses_are_in_totals_and_metrics_and_are_events() {
    let mut run = Run::begun(9 * SECOND, 2);
    let loss = |count| Completeness {
        recorded: 1000,
        samples: 24,
        lost: count,
        losses: vec![LossInfo { what: "heap events".into(), why: "full".into(), count }],
        ..Completeness::default()
    };
    let process = |lost| ProcessInfo {
        pid: 100,
        file: Some("rank-0.tprof".to_owned()),
        lost,
        ..ProcessInfo::default()
    };
    run.info.completeness = loss(5);
    run.info.processes = vec![process(Some(5)), process(None)];
    run.write_info();
    let mut follower = run.follower();
    let snapshot = follower.poll();
    // The total is the sum of events and samples.
    assert_eq!((snapshot.totals.recorded, snapshot.totals.lost), (1024, 5));
    assert_eq!(values(&snapshot, "lost"), [Some(5.0), None]);
    let text = |snapshot: &Snapshot| {
        let losses = snapshot.events.iter().filter(|event| event.kind == EventKind::Loss);
        losses.map(|event| event.text.clone()).collect::<Vec<_>>()
    };
    assert_eq!(text(&snapshot), ["lost: 5 heap events: full"]);
    run.info.completeness = loss(6);
    run.write_info();
    assert_eq!(text(&follower.poll()), [""; 0], "a loss has another event only after it doubled");
    run.info.completeness = loss(10);
    run.write_info();
    assert_eq!(text(&follower.poll()), ["lost: 10 heap events: full"]);
}

#[test]
fn values_of_metrics_are_in_the_history_and_the_heat_map() {
    let mut run = Run::begun(1300 * SECOND, 2);
    run.mark_steps(0, every(SECOND, 1200));
    // The last step of rank 1 takes 50 s.
    run.mark_steps(1, every(SECOND, 600).chain([650 * SECOND]));
    let mut follower = run.follower();
    follower.poll();
    let heat = follower.heat("step_ns");
    assert_eq!((heat.rows.len(), heat.values.len()), (2, 2));
    let columns = &heat.columns;
    assert!(columns.len() <= 200 && columns[0].from == 0);
    assert!(columns.windows(2).all(|pair| pair[0].to == pair[1].from));
    assert!(columns.last().unwrap().to >= 1300 * SECOND);
    let slow = columns.iter().position(|of| (of.from..of.to).contains(&(650 * SECOND))).unwrap();
    assert_eq!(heat.values[1][slow].0, Some(5e10), "a cell has the largest of its values");
    assert_eq!((heat.least.0, heat.most.0), (Some(1e9), Some(5e10)));
    // Rank 1 has no step after 650 s.
    assert_eq!(heat.values[1][slow + 5].0, None);
    assert!(heat.folded.unwrap().starts_with("max of "));
    assert!(follower.heat("nonsense").missing.unwrap().contains("step_ns"));
    assert!(follower.heat("gpu_power_watts").missing.is_some());
    let history = follower.with_history().history.unwrap();
    let course = &history.series["step_ns"];
    assert_eq!((course.len(), course[0].len()), (2, history.times_ns.len()));
    assert!(history.times_ns.len() <= 300 && history.times_ns.is_sorted());
    assert!(course[0].iter().flatten().count() > 100);
    assert!(!history.series.contains_key("gpu_power_watts"));
}

#[test]
fn many_ranks_are_folded_into_rows() {
    let mut run = Run::begun(60 * SECOND, 300);
    run.counter(0, 5 * SECOND, "rss_bytes", 3.0);
    run.counter(299, 5 * SECOND, "rss_bytes", 7.0);
    let mut follower = run.follower();
    follower.poll();
    let heat = follower.heat("rss_bytes");
    assert_eq!((heat.rows.len(), heat.rows[149].label.as_str()), (150, "rank 298 to rank 299"));
    assert_eq!(heat.most.0, Some(7.0));
    assert!(heat.folded.unwrap().contains("2 ranks"));
    // The history has only the first 32 ranks.
    assert_eq!(follower.with_history().history.unwrap().series["rss_bytes"].len(), 32);
}

#[test]
fn snapshots_survive_json_and_prometheus_escapes_labels() {
    let mut run = Run::begun(60 * SECOND, 1);
    run.mark_steps(0, every(SECOND, 9));
    run.counter(0, SECOND, "odd \"name\"\n\\", 1.5);
    let mut follower = run.follower();
    follower.poll();
    let snapshot = follower.with_history();
    let text = serde_json::to_string(&snapshot).unwrap();
    assert!(text.contains(r#""key":"step_ns","unit":"ns""#) && text.contains(":[1000000000]"));
    let read: Snapshot = serde_json::from_str(&text).unwrap();
    // The figures of steps are for scrapers only.
    assert_eq!(Snapshot { figures: snapshot.figures.clone(), ..read }, snapshot);
    let text = prometheus(&[("a\"b", &snapshot), ("c", &snapshot)]);
    let gauge = r#"tprof_rank_gauge{run="a\"b",rank="0",file="rank-0.tprof",host="elsewhere",name="odd \"name\"\n\\"} 1.5"#;
    assert!(text.contains(gauge), "{text}");
    assert!(text.contains("tprof_rank_step_seconds{run=\"c\",rank=\"0\","));
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split('{').next().unwrap();
        assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1, "{name}");
    }
    assert!(Metric::ALL.iter().all(|metric| Metric::ALL[metric.place()] == *metric));
}

#[test]
fn a_failed_request_gets_its_line_once_the_file_has_its_stack() {
    let mut run = Run::begun(3 * SECOND, 1);
    let mut follower = run.follower();
    let writer = run.writer(0);
    let action = writer.name("oom");
    let args = writer.name(r#"{"allocated": 4096, "reserved": null, "thread": 0}"#);
    let row = AllocatorEvent {
        time_ns: Some(START + SECOND),
        device: Some(1),
        action,
        bytes: 2 << 20,
        stack: 7,
        args,
        ..AllocatorEvent::default()
    };
    let other = AllocatorEvent { action: writer.name("alloc"), ..row };
    writer.write(&mut vec![row, other, row]).unwrap();
    writer.flush().unwrap();
    let first = follower.poll();
    let failed = first.ranks[0].out_of_memory.clone().unwrap();
    assert_eq!((failed.count, failed.time_ns, failed.line), (2, Some(SECOND), None));
    assert_eq!((failed.asked_bytes, failed.device), (2 << 20, Some(1)));
    assert_eq!((failed.allocated_bytes, failed.reserved_bytes), (Some(4096), None));
    let of_kind = |snapshot: &Snapshot| {
        let events = snapshot.events.iter().filter(|one| one.kind == EventKind::OutOfMemory);
        events.map(|one| (one.time_ns, one.text.clone())).collect::<Vec<_>>()
    };
    assert_eq!(of_kind(&first), []);
    let writer = run.writer(0);
    let frames = [SYNTHETIC_FRAME, SYNTHETIC_FRAME | 1].to_vec();
    writer.stack(&Stack { process: 0, stack: 7, end: 0, frames });
    let module = writer.name("[python]");
    for (at, file, line) in [(0, "/usr/lib/python3.12/ctypes/__init__.py", 4), (1, "/job.py", 63)] {
        let (address, depth, file) = (SYNTHETIC_FRAME | at, 0, writer.name(file));
        let function = writer.name("step");
        writer.symbol(&Symbol { process: 0, address, depth, function, file, line, module });
    }
    writer.flush().unwrap();
    let second = follower.poll();
    let failed = second.ranks[0].out_of_memory.as_ref().unwrap();
    assert_eq!(failed.line.as_deref(), Some("/job.py:63 (step)"));
    let text = "2 requests for device memory failed, the last for 2.0 MiB of GPU 1 at /job.py:63 \
                (step); 4.0 KiB allocated";
    assert_eq!(of_kind(&second), [(SECOND, text.to_owned())]);
    assert_eq!(of_kind(&follower.poll()), []);
    assert!(prometheus(&[("r", &second)]).contains("tprof_run_out_of_memory_total{run=\"r\"} 2"));
}
