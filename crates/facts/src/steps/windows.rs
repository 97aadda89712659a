//! Keeps the times at which the recording of a process was switched on and off, since no step may
//! contain a pause.

use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, ProcessIndex};

/// The switches of recording of a process or of the whole run, in order of time.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// The times at which recording was switched on, each with the number of the step that began
    /// then, if the mark has it.
    on: Vec<(u64, Option<u64>)>,
    off: Vec<u64>,
}

impl Windows {
    pub(super) fn of(file: &TraceFile, process: ProcessIndex) -> Windows {
        let mut windows = Windows::default();
        for mark in file.marks().iter().filter(|mark| mark.process.is_none_or(|p| p == process)) {
            windows.take(mark.kind, mark.time_ns, file.name(mark.name));
        }
        windows.on.sort_unstable();
        windows.off.sort_unstable();
        windows
    }

    /// Adds a mark. The marks must be in order of time, unless the caller sorts the switches
    /// afterwards.
    pub(super) fn take(&mut self, kind: MarkKind, time_ns: u64, name: &str) {
        match kind {
            MarkKind::RecordingOn => self.on.push((time_ns, number(name))),
            MarkKind::RecordingOff => self.off.push(time_ns),
            MarkKind::Mark | MarkKind::Step | MarkKind::Histogram | MarkKind::MachineError => {}
        }
    }

    /// Forgets the times before `time_ns` at which recording was switched on.
    pub(super) fn forget_before(&mut self, time_ns: u64) {
        self.on.retain(|(on_ns, _)| *on_ns >= time_ns);
    }

    /// Forgets all switches except the last `count` of each kind.
    pub(super) fn keep_last(&mut self, count: usize) {
        self.on.drain(..self.on.len().saturating_sub(count));
        self.off.drain(..self.off.len().saturating_sub(count));
    }

    /// Whether recording was switched off between these times.
    pub(super) fn pause_within(&self, start_ns: u64, end_ns: u64) -> bool {
        let next = self.off.partition_point(|off| *off < start_ns);
        self.off.get(next).is_some_and(|off| *off < end_ns)
    }

    /// Returns the last time in this range at which recording was switched on, with the number of
    /// the step that began then.
    pub(super) fn begins_within(&self, after_ns: u64, end_ns: u64) -> Option<(u64, Option<u64>)> {
        let until = self.on.partition_point(|(on, _)| *on < end_ns);
        let last = self.on.get(until.checked_sub(1)?)?;
        (last.0 >= after_ns).then_some(*last)
    }
}

/// Returns the number of the step in the name of a mark: `cycle 1: step 4 (--schedule)`.
fn number(name: &str) -> Option<u64> {
    let (_, rest) = name.split_once(": step ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::of_file;
    use super::*;
    use tprof_trace::model::{Mark, Span, SpanKind};
    use tprof_trace::{TraceHeader, TraceWriter};

    fn steps(marks: &[(MarkKind, u64, &str)], updates: &[u64]) -> Vec<(u64, u64, u64)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        for (kind, time_ns, name) in marks {
            let name = writer.name(name);
            writer.mark(Mark { time_ns: *time_ns, process: Some(0), name, kind: *kind });
        }
        let name = writer.name("Optimizer.step#SGD.step");
        let update = |end_ns: &u64| Span {
            start_ns: end_ns - 5,
            duration_ns: 5,
            name,
            kind: SpanKind::Annotation,
            ..Span::default()
        };
        let mut spans: Vec<Span> = updates.iter().map(update).collect();
        writer.write(&mut spans).unwrap();
        writer.finish().unwrap();
        let steps = of_file(&TraceFile::open(&path).unwrap(), None).all;
        steps.iter().map(|step| (step.number, step.start_ns, step.end_ns)).collect()
    }

    const OFF: MarkKind = MarkKind::RecordingOff;
    const ON: MarkKind = MarkKind::RecordingOn;

    #[test]
    fn no_step_lasts_through_a_pause() {
        let step = |time_ns, name| (MarkKind::Step, time_ns, name);
        let marks = [
            step(100, "step 4"),
            step(200, "step 5"),
            step(300, "step 6"),
            (OFF, 301, "--schedule"),
            (ON, 800, "cycle 2: step 11 (--schedule)"),
            step(801, "step 11"),
            step(900, "step 12"),
        ];
        let expected = [(4, 100, 200), (5, 200, 300), (11, 801, 900)];
        assert_eq!(steps(&marks, &[]), expected);
    }

    #[test]
    fn a_schedule_numbers_the_steps_by_updates_and_begins_the_first() {
        let marks = [
            (OFF, 0, "--schedule"),
            (ON, 100, "cycle 1: step 4 (--schedule)"),
            (OFF, 301, "--schedule"),
            (ON, 800, "cycle 2: step 11 (--schedule)"),
        ];
        let expected = [(4, 100, 200), (5, 200, 300), (11, 800, 900)];
        assert_eq!(steps(&marks, &[200, 300, 900]), expected);
    }
}
