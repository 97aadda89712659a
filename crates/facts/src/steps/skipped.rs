//! Finds updates that a gradient scaler skipped because a gradient was not finite.
//!
//! `GradScaler.step` checks the gradients and calls the optimizer only if all are finite;
//! `GradScaler.update` follows in either case. Both run operators of PyTorch. If no update of an
//! optimizer lies between a check and the update of the scale, all updates were skipped. A fused
//! optimizer is always called and gets the outcome of the check. So an update that it skips itself
//! has a range like any other, and is not found here.

use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, SpanKind};

use super::step::StepRange;
use super::windows::Windows;

/// The operator that checks gradients.
const CHECK: &str = "aten::_amp_foreach_non_finite_check_and_unscale_";
/// The operator that adapts the scale, once for each update, whether skipped or not.
const SCALE: &str = "aten::_amp_update_scale_";

/// Whether a span with this kind and name belongs to a gradient scaler.
pub(super) fn is_sign(kind: SpanKind, name: &str) -> bool {
    kind == SpanKind::Operator && (name == CHECK || name == SCALE)
}

/// An event of a scaler or an update of an optimizer, in order of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Check,
    Update,
    Scale,
}

/// Returns the times at which a process's scales were adapted after skipped updates, ns, in order.
/// Returns `None` if no scaler was recorded. `updates` are the updates of the process.
pub(super) fn of_process(
    file: &TraceFile,
    ranges: &[StepRange],
    process: ProcessIndex,
    updates: &[StepRange],
) -> Option<Vec<u64>> {
    let of_scaler = ranges
        .iter()
        .filter(|range| range.process == process && is_sign(range.kind, file.name(range.name)));
    let event = |range: &StepRange| match file.name(range.name) == CHECK {
        true => (range.start_ns, Event::Check),
        false => (range.end_ns, Event::Scale),
    };
    let mut events: Vec<(u64, Event)> = of_scaler.map(event).collect();
    if events.is_empty() {
        return None;
    }
    events.extend(updates.iter().map(|update| (update.start_ns, Event::Update)));
    events.sort_unstable();
    let windows = Windows::of(file, process);
    let mut skipped = Vec::new();
    // The time of the first check in an iteration, and whether an optimizer has updated since.
    let mut checked: Option<(u64, bool)> = None;
    for (ns, event) in events {
        match event {
            Event::Check => checked = checked.or(Some((ns, false))),
            Event::Update => checked = checked.map(|(from_ns, _)| (from_ns, true)),
            Event::Scale => {
                if let Some((from_ns, false)) = checked.take()
                    && !windows.pause_within(from_ns, ns)
                {
                    skipped.push(ns);
                }
            }
        }
    }
    Some(skipped)
}

#[cfg(test)]
mod tests {
    use super::super::step::Batches;
    use super::super::{Steps, of_file};
    use super::*;
    use tprof_trace::model::{Mark, MarkKind, Span};
    use tprof_trace::{TraceHeader, TraceWriter};

    const NEXT: &str = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    const SGD: &str = "Optimizer.step#SGD.step";
    const ADAM: &str = "Optimizer.step#Adam.step";

    /// Finds the steps of spans of 5 ns. Recording is off for a moment at each of `pauses`.
    fn of(spans: &[(u64, &str)], pauses: &[u64]) -> Steps {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        for &time_ns in pauses {
            let name = writer.name("paused");
            let mark = |time_ns, kind| Mark { time_ns, process: Some(0), name, kind };
            writer.mark(mark(time_ns, MarkKind::RecordingOff));
            writer.mark(mark(time_ns + 1, MarkKind::RecordingOn));
        }
        let mut rows: Vec<Span> = Vec::new();
        for &(start_ns, name) in spans {
            let kind = match name.starts_with("aten::") {
                true => SpanKind::Operator,
                false => SpanKind::Annotation,
            };
            let name = writer.name(name);
            rows.push(Span { start_ns, duration_ns: 5, kind, name, ..Span::default() });
        }
        writer.write(&mut rows).unwrap();
        writer.finish().unwrap();
        of_file(&TraceFile::open(&path).unwrap(), None)
    }

    fn times(steps: &Steps) -> Vec<(u64, u64)> {
        steps.all.iter().map(|step| (step.start_ns, step.end_ns)).collect()
    }

    /// Makes the spans of one iteration that begins at this time, with or without a batch and an
    /// update.
    fn iteration(at: u64, fetches: bool, updates: bool) -> Vec<(u64, &'static str)> {
        let mut spans = vec![(at + 50, CHECK), (at + 80, SCALE)];
        spans.extend(fetches.then_some((at, NEXT)));
        spans.extend(updates.then_some((at + 60, SGD)));
        spans
    }

    #[test]
    fn a_skipped_update_is_neither_validation_nor_a_part_of_a_step() {
        let updated = [true, true, false, true, true];
        let each = |fetches| {
            let at = move |(&updates, at): (&bool, u64)| iteration(at * 100, fetches, updates);
            updated.iter().zip(1..).flat_map(at).collect::<Vec<_>>()
        };
        let steps = of(&each(true), &[]);
        assert_eq!(times(&steps), [(100, 165), (165, 265), (385, 465), (465, 565)]);
        assert_eq!(steps.batches, Some(Batches { a_step: 1, updates: 1, outside: 0 }));
        assert_eq!(steps.skipped, Some(1));
        let steps = of(&each(false), &[]);
        assert_eq!(times(&steps), [(165, 265), (385, 465), (465, 565)]);
        assert_eq!((steps.batches, steps.skipped), (None, Some(1)));
    }

    #[test]
    fn batches_of_validation_stay_outside_beside_those_of_skipped_updates() {
        let mut spans: Vec<_> = (1..4).flat_map(|at| iteration(at * 100, true, true)).collect();
        spans.extend([(400, NEXT), (410, NEXT), (420, NEXT)]);
        spans.extend(iteration(500, true, false));
        spans.extend(iteration(600, true, true));
        let steps = of(&spans, &[]);
        assert_eq!(steps.batches, Some(Batches { a_step: 1, updates: 1, outside: 3 }));
        assert_eq!(steps.skipped, Some(1));
    }

    #[test]
    fn a_group_with_an_update_is_not_skipped() {
        let at =
            |at| [(at, CHECK), (at + 10, SGD), (at + 20, CHECK), (at + 30, ADAM), (at + 40, SCALE)];
        let mut spans = [at(100), at(200), at(300)].concat();
        spans.retain(|span| *span != (230, ADAM) && *span != (310, SGD));
        assert_eq!(of(&spans, &[]).skipped, Some(0));
    }

    #[test]
    fn partly_recorded_updates_are_not_skipped() {
        let all = |at| iteration(at, true, true);
        let without_check = [(170, SCALE)].into_iter().chain(all(200)).chain(all(300));
        assert_eq!(of(&without_check.collect::<Vec<_>>(), &[]).skipped, Some(0));
        let spans = [all(100), iteration(200, true, false), all(300)].concat();
        assert_eq!(of(&spans, &[]).skipped, Some(1));
        assert_eq!(of(&spans, &[260]).skipped, Some(0));
        assert_eq!(of(&[(100, NEXT), (150, SGD), (200, NEXT), (250, SGD)], &[]).skipped, None);
    }
}
