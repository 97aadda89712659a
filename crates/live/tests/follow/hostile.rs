//! Gives a follower any values, as a damaged or hostile file may contain them.

use proptest::prelude::*;
use tprof_live::{Snapshot, prometheus};
use tprof_trace::model::*;
use tprof_trace::{TraceHeader, TraceWriter};

use super::run::{Run, SECOND, START};

/// Any times, among them extreme ones, as a damaged or hostile file may contain them.
fn times() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), START..START + 100 * SECOND]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn hostile_values_never_panic(
        starts in (times(), times(), times()),
        rows in prop::collection::vec((0..7u8, times(), times(), any::<f64>()), 0..60),
        finished: bool,
    ) {
        let mut run = Run::begun(60 * SECOND, 1);
        let header = TraceHeader {
            start_ns: starts.0,
            start_unix_ns: starts.1,
            ..TraceHeader::default()
        };
        let path = run.path().join("rank-1.tprof");
        let mut writer = TraceWriter::create(&path, &header).unwrap();
        let names = ["rss_bytes", "Optimizer.step#A.step", "step 18446744073709551615", "loss"];
        let names = names.map(|name| writer.name(name));
        for (kind, time_ns, other, value) in rows {
            let (process, name) = (Some(other as u32 % 2), names[(other % 4) as usize]);
            match kind {
                0 => writer.counter(Counter { time_ns, process, device: None, name, value }),
                1 => writer.counter(Counter { time_ns, process: None, device: Some(1), name, value }),
                2 => writer.mark(Mark { time_ns, process, name, kind: MarkKind::Step }),
                3 => {
                    let kind = [MarkKind::RecordingOn, MarkKind::RecordingOff][(other % 2) as usize];
                    let name = writer.name("cycle 1: step 18446744073709551615 (--schedule)");
                    writer.mark(Mark { time_ns, process, name, kind });
                }
                4 => {
                    let kind = [SpanKind::Annotation, SpanKind::Nvtx][(other % 2) as usize];
                    let span = Span { start_ns: time_ns, duration_ns: other, kind, name, ..Span::default() };
                    writer.write(&mut vec![span]).unwrap();
                }
                5 => {
                    let row = Sample { time_ns, weight_ns: other, stack: 1, ..Sample::default() };
                    writer.write(&mut vec![row; 3]).unwrap();
                }
                _ => {
                    writer.process(&Process {
                        process: other as u32 % 2,
                        pid: 7,
                        parent: 7,
                        rank: None,
                        command: name,
                        exe: name,
                        start_ns: time_ns,
                        memory: MemoryRecording::Off,
                    });
                    let tid = other as u32 % 9;
                    writer.thread(&Thread { thread: 0, process: 0, tid, start_ns: time_ns });
                    if other % 3 == 0 {
                        writer.process_end(0, time_ns, ProcessEnd::Signal(other as i32));
                    }
                }
            }
            writer.flush().unwrap();
        }
        run.info.start_unix_ns = starts.2;
        run.info.completeness.lost = starts.0;
        run.info.end_ns = Some(starts.1);
        run.info.finished = finished;
        run.write_info();
        let mut follower = run.follower();
        for _ in 0..2 {
            let snapshot = follower.poll();
            prop_assert_eq!(snapshot.ranks.len(), 2);
            let metrics = snapshot.metrics.iter().map(|metric| metric.key.clone());
            metrics.for_each(|key| drop(follower.heat(&key)));
            let whole = follower.with_history();
            let text = serde_json::to_string(&whole).unwrap();
            prop_assert!(serde_json::from_str::<Snapshot>(&text).is_ok());
            prometheus(&[("a", &whole)]);
        }
    }
}
