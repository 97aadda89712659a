//! Reads what viewers of traces show at one moment: marks, losses and the ends of processes.

use std::borrow::Cow;

use tprof_facts::histograms;
use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, ProcessEnd, ProcessIndex};

use crate::OpenRank;

/// A mark or loss.
pub(crate) struct Moment<'a> {
    pub time_ns: u64,
    /// `None` if it belongs to all processes.
    pub process: Option<ProcessIndex>,
    pub category: &'static str,
    pub name: Cow<'a, str>,
    /// The values of a histogram as JSON, the reason of a loss, or empty.
    pub detail: &'a str,
}

/// Returns the marks within the slice.
pub(crate) fn marks<'a>(part: &'a OpenRank<'_>) -> impl Iterator<Item = Moment<'a>> {
    let trace = &part.trace;
    trace.marks().iter().filter(|mark| part.window.holds(mark.time_ns)).map(|mark| {
        let (category, name, detail) = match mark.kind {
            MarkKind::Mark => ("mark", trace.name(mark.name), ""),
            MarkKind::Step => ("step", trace.name(mark.name), ""),
            MarkKind::MachineError => ("machine error", trace.name(mark.name), ""),
            MarkKind::RecordingOn => ("recording", "recording on", ""),
            MarkKind::RecordingOff => ("recording", "recording off", ""),
            MarkKind::Histogram => {
                let (name, values) = histograms::split(trace.name(mark.name));
                ("histogram", name, values)
            }
        };
        let name = if name.is_empty() { category } else { name }.into();
        Moment { time_ns: mark.time_ns, process: mark.process, category, name, detail }
    })
}

/// Returns the losses within the slice, when they were noticed, with the number of lost events; 0
/// if it is unknown.
pub(crate) fn losses<'a>(part: &'a OpenRank<'_>) -> impl Iterator<Item = (Moment<'a>, u64)> {
    let trace = &part.trace;
    trace.losses().iter().filter(|loss| part.window.holds(loss.time_ns)).map(|loss| {
        let what = trace.name(loss.what);
        let name = match loss.count {
            0 => format!("lost {what}").into(),
            count => format!("lost {count} {what}").into(),
        };
        let (time_ns, process, detail) = (loss.time_ns, loss.process, trace.name(loss.why));
        (Moment { time_ns, process, category: "loss", name, detail }, loss.count)
    })
}

/// Returns the time when a process ended, if it is known, and how it ended.
pub(crate) fn end(trace: &TraceFile, process: ProcessIndex) -> (Option<u64>, String) {
    let Some((end_ns, how)) = trace.process_end(process) else {
        return (None, "not recorded".to_owned());
    };
    let how = match how {
        ProcessEnd::Exited(status) => format!("exit status {status}"),
        ProcessEnd::Signal(signal) => format!("killed by signal {signal}"),
        ProcessEnd::Exec => "exec".to_owned(),
        ProcessEnd::Unknown => "unknown".to_owned(),
    };
    (Some(end_ns), how)
}
