//! Finds spans that were open while recording was off, whose figures are unknown.

use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, ProcessIndex};

use super::find::OwnSpan;

pub(super) const PAUSED: &str = "recording was off for a part of a span";

/// The times in which recording was switched off, by process. `None` is the key for the whole run.
pub(super) struct Pauses {
    at: Vec<(Option<ProcessIndex>, u64)>,
}

impl Pauses {
    pub fn of(file: &TraceFile) -> Pauses {
        let off = file.marks().iter().filter(|mark| mark.kind == MarkKind::RecordingOff);
        let mut at: Vec<_> = off.map(|mark| (mark.process, mark.time_ns)).collect();
        at.sort_by_key(|(_, time_ns)| *time_ns);
        Pauses { at }
    }

    /// Whether recording was off for a part of a span.
    pub fn overlap(&self, span: &OwnSpan) -> bool {
        let from = self.at.partition_point(|(_, time_ns)| *time_ns < span.row.start_ns);
        let within = self.at[from..].iter().take_while(|(_, time_ns)| *time_ns < span.end_ns());
        let mut of_it =
            within.filter(|(process, _)| process.is_none_or(|process| process == span.row.process));
        of_it.next().is_some()
    }
}
