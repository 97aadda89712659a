//! Measures the machine's load: the time in which the threads that drive a side's ranks were ready
//! to run but had no core.
//!
//! Other programs cause this time. It makes steps longer, but isn't due to the code.

use rustc_hash::FxHashMap;
use tprof_metrics::host::{RankHost, StepTime};
use tprof_rank::Step;
use tprof_rank::samples::Part;

/// Returns the time without a core in each step, ns. The time is `None` if the driving thread
/// wasn't sampled or has different steps.
pub(super) fn lost_in_steps(steps: &[Step], driver: Option<&RankHost>) -> Vec<Option<u64>> {
    let driver = driver.filter(|driver| lost_ns(driver).is_some());
    let times = driver.map_or(&[][..], |driver| driver.steps.as_slice());
    let times: FxHashMap<u64, &StepTime> = times.iter().map(|time| (time.number, time)).collect();
    let of_step = |step: &Step| {
        let time = times.get(&step.number)?;
        let is_same = driver?.driver.process == step.process;
        let is_same = is_same && time.wall_ns == step.interval.length();
        is_same.then(|| time.ns(Part::NoCore))
    };
    steps.iter().map(of_step).collect()
}

/// Returns the time without a core from a rank's start to the end of its judged time, ns; `None` if
/// it wasn't recorded, as in traces of other tools.
pub(super) fn lost_ns(driver: &RankHost) -> Option<u64> {
    let is_known = driver.ledger.wall_ns > driver.ledger.ns(Part::Unknown);
    is_known.then(|| driver.ledger.ns(Part::NoCore) + driver.start_up.ns(Part::NoCore))
}

#[cfg(test)]
mod tests {
    use tprof_document::Cell;
    use tprof_trace::model::{
        MemoryRecording, Process, Sample, Span, SpanKind, Thread, ThreadState,
    };
    use tprof_trace::{TraceHeader, TraceWriter};

    use super::super::amount::HostNameKind;
    use super::super::verdict::LOAD_DIFFERED;
    use super::super::{Comparison, Gate, Side, SideOptions};

    const MS: u64 = 1_000_000;

    /// Makes a run whose thread works and then has no core in each step. `steps` has the two times
    /// of each step, in ms.
    fn side(steps: &[(u64, u64)]) -> Side {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let header = TraceHeader { rank: Some(0), ..TraceHeader::default() };
        let mut writer = TraceWriter::create(&path, &header).unwrap();
        let command = writer.name("train");
        writer.process(&Process {
            process: 0,
            pid: 7,
            parent: 1,
            rank: Some(0),
            command,
            exe: command,
            start_ns: 0,
            memory: MemoryRecording::Off,
        });
        writer.thread(&Thread { thread: 0, process: 0, tid: 7, start_ns: 0 });
        let (mut spans, mut samples) = (Vec::new(), Vec::new());
        let mut start_ns = 1000 * MS;
        for (at, (work, lost)) in steps.iter().enumerate() {
            let name = writer.name(&format!("ProfilerStep#{at}"));
            let (lost_ns, work_ns) = (lost * MS, work * MS);
            let duration_ns = (lost_ns + work_ns).max(MS);
            let kind = SpanKind::Annotation;
            spans.push(Span { start_ns, duration_ns, kind, name, ..Span::default() });
            let ready = Sample {
                time_ns: start_ns,
                weight_ns: lost_ns,
                state: ThreadState::Runnable,
                ..Sample::default()
            };
            samples.extend((lost_ns > 0).then_some(ready));
            let state = ThreadState::Running;
            samples.extend((1..=*work).map(|ms| Sample {
                time_ns: start_ns + lost_ns + ms * MS - 1,
                weight_ns: MS,
                cpu: Some(0),
                state,
                ..Sample::default()
            }));
            start_ns += duration_ns;
        }
        writer.write(&mut spans).unwrap();
        writer.write(&mut samples).unwrap();
        writer.finish().unwrap();
        Side::read(dir.path(), &SideOptions::default()).unwrap()
    }

    /// Returns the cell of a metric in the table of times.
    fn cell(comparison: &Comparison, metric: &str, column: &str) -> Cell {
        let table = comparison.tables.iter().find(|table| table.key == "times").unwrap();
        let at = table.columns.iter().position(|of| of.key == column).unwrap();
        let row = table.rows.iter().find(|row| row[0] == Cell::from(metric));
        row.unwrap_or_else(|| panic!("no {metric} in {table:?}"))[at].clone()
    }

    fn trips(comparison: &Comparison, gate: &str) -> Option<bool> {
        comparison.trips(&gate.parse::<Gate>().unwrap())
    }

    const BUSY: [(u64, u64); 4] = [(2, 27), (2, 25), (2, 28), (2, 24)];

    #[test]
    fn slower_code_on_a_less_loaded_machine_is_not_better() {
        let slow = [(20, 1), (21, 0), (20, 0), (19, 1)];
        let both = Comparison::of(side(&BUSY), side(&slow));
        assert_eq!(cell(&both, "step_time", "change"), Cell::from(-7.5e6));
        assert_eq!(cell(&both, "step_time", "verdict"), LOAD_DIFFERED.into());
        let metric = "step_time_without_lost_cores";
        let of = |column| cell(&both, metric, column);
        assert_eq!((of("a"), of("b")), (Cell::from(2e6), Cell::from(20e6)));
        assert_eq!(of("verdict"), "worse".into());
        // If only the load decides a condition, the condition has no answer. The other conditions
        // have one.
        assert_eq!(trips(&both, "step_time>+5%"), None);
        assert_eq!(trips(&both, "step_time>+1000%"), Some(false));
        assert_eq!(trips(&both, "step_time_without_lost_cores>+5%"), Some(true));
        let notes = both.notes.join("\n");
        assert!(notes.contains("no core for 26.0 ms in A and for 500.0 us in B"), "{notes}");
    }

    #[test]
    fn varying_load_does_not_hide_a_change_of_the_code() {
        let (fast, slow) =
            ([(2, 90), (2, 10), (2, 150), (2, 60)], [(9, 40), (9, 2), (9, 70), (9, 8)]);
        let both = Comparison::of(side(&fast), side(&slow));
        assert_eq!(cell(&both, "step_time", "verdict"), LOAD_DIFFERED.into());
        assert_eq!(trips(&both, "step_time>+5%"), None);
        // On each side, the steps differ only by the load, so the change without lost cores is
        // certain.
        assert_eq!(trips(&both, "step_time_without_lost_cores>+5%"), Some(true));
    }

    #[test]
    fn the_work_of_a_step_of_warm_up_is_not_a_part_of_the_other_steps() {
        let steps = |first: u64| {
            let mut steps = vec![(20, 0); 12];
            steps[0].0 = first;
            steps
        };
        let (even, slow) = (side(&steps(20)), side(&steps(600)));
        assert_eq!(slow.warm_up.len(), 1);
        let running = |side: &Side| -> f64 {
            let of = side.host.amounts.iter().filter(|((sort, _, key), _)| {
                *sort == HostNameKind::Part && super::super::causes::is_of_steps(key)
            });
            of.map(|((sort, ..), amount)| side.host.mean_of(*sort, *amount, true).value).sum()
        };
        assert_eq!((running(&even) / 1e6).round(), 20.0);
        assert_eq!((running(&slow) / 1e6).round(), 20.0);
    }

    #[test]
    fn lost_time_is_unknown_for_a_thread_without_samples() {
        let both = Comparison::of(side(&[(0, 0), (0, 0)]), side(&[(0, 0), (0, 0)]));
        let times = both.tables.iter().find(|table| table.key == "times").unwrap();
        assert_eq!(times.rows.len(), 1, "{times:?}");
        assert!(times.about.contains("without load: no thread with steps"), "{}", times.about);
    }

    #[test]
    fn equal_load_does_not_change_the_verdict() {
        let slow = [(20, 27), (20, 25), (20, 28), (20, 24)];
        let both = Comparison::of(side(&BUSY), side(&slow));
        assert_eq!(cell(&both, "step_time", "verdict"), "worse".into());
        assert_eq!(trips(&both, "step_time>+5%"), Some(true));
        assert!(!both.notes.join("\n").contains("no core for"), "{:?}", both.notes);
    }
}
