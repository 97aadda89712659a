//! Notes beside events: marks, properties of the file, losses.

use super::ids::{NameId, ProcessIndex};

/// Names of losses that analyses must recognise.
pub mod loss {
    /// Heap events that are in no counter and no record, whatever is recorded.
    pub const EVENTS: &str = "events";
    /// The kernel's records of threads that leave and enter their processor, and of samples.
    pub const PERF_RECORDS: &str = "records of perf events";
    /// Samples of running threads.
    pub const CPU_SAMPLES: &str = "CPU samples";
    /// CPU samples at a time that is not known.
    pub const THROTTLED: &str = "CPU samples for a moment";
}

/// An instant with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Time of the mark.
    pub time_ns: u64,
    /// Index of the process; `None` for the whole run (`tprof ctl mark`).
    pub process: Option<ProcessIndex>,
    /// Name of the mark.
    pub name: NameId,
    /// Kind of the mark.
    pub kind: MarkKind,
}

/// Separates the name of a histogram from its counts, in the name of its mark.
pub const HISTOGRAM_SEPARATOR: char = '\u{1f}';

/// Kinds of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// Set by a person or a program.
    Mark,
    /// A training step begins.
    Step,
    /// Recording was switched on.
    RecordingOn,
    /// Recording was switched off.
    RecordingOff,
    /// A histogram of values of the program; the name holds it, after the histogram's own name.
    Histogram,
}

/// A fact about the whole file that no table holds: of an import, a key of its
/// source's top level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// Key of the property.
    pub key: NameId,
    /// Value, as JSON.
    pub value: NameId,
}

/// Keys of properties that tprof itself writes.
pub mod property {
    /// Events that were counted: an object of names, each with why it was not, or
    /// `null` if it was.
    pub const EVENTS: &str = "tprof.events";
    /// The share of the time for which each event was counted, once that is known: an object of
    /// names. It is below 1 where the processor has too few counters.
    pub const EVENT_SHARES: &str = "tprof.event_shares";
    /// Counters of an event that each thread had, one for each processor: after the last sample of
    /// each, events are not counted any more. A number.
    pub const COUNTERS_PER_THREAD: &str = "tprof.counters_per_thread";
    /// Why there are no proportional set sizes, or none from some moment on: a text.
    pub const NO_PSS: &str = "tprof.no_pss";
    /// Why the kernel's functions have no names, where they were sampled: a text.
    pub const KERNEL_NAMES_HIDDEN: &str = "tprof.kernel_names_hidden";
    /// The beginning of a source file's key; its path follows. The value is a
    /// [`SourceStamp`](super::SourceStamp).
    pub const SOURCE: &str = "tprof.source:";
}

/// Something that was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Time when it was noticed.
    pub time_ns: u64,
    /// Index of the process; `None` for the run.
    pub process: Option<ProcessIndex>,
    /// Kind of record that was lost, e.g. `heap events`.
    pub what: NameId,
    /// Number of records; 0 if that is not known.
    pub count: u64,
    /// Reason of the loss.
    pub why: NameId,
}

/// A source file as it was when a stack first named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceStamp {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Time of the last change, nanoseconds since 1970.
    pub changed_unix_ns: i64,
    /// Whether the file changed after the code that ran was made: for a program after its file was
    /// written, for a script after its process began.
    pub is_newer: bool,
}

impl SourceStamp {
    /// Encodes it as the value of a property.
    pub fn to_json(self) -> String {
        let SourceStamp { bytes, changed_unix_ns, is_newer } = self;
        let newer = if is_newer { ",\"newer\":true" } else { "" };
        format!("{{\"bytes\":{bytes},\"changed_unix_ns\":{changed_unix_ns}{newer}}}")
    }

    /// Decodes the value of a property; `None` if it is none.
    pub fn from_json(text: &str) -> Option<SourceStamp> {
        let value: serde_json::Value = serde_json::from_str(text).ok()?;
        Some(SourceStamp {
            bytes: value.get("bytes")?.as_u64()?,
            changed_unix_ns: value.get("changed_unix_ns")?.as_i64()?,
            is_newer: value.get("newer").is_some_and(|newer| newer == true),
        })
    }
}
