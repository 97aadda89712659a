//! Defines rows that aren't events: marks, properties of the file, losses.

use super::ids::{NameId, ProcessIndex};

/// Names of losses that analyses must recognize.
pub mod loss {
    /// Heap events that every counter and every record misses, in any recording mode.
    pub const EVENTS: &str = "events";
    /// Records that the kernel's perf events deliver: samples, and switches of threads on and off a
    /// processor.
    pub const PERF_RECORDS: &str = "records of perf events";
    /// Samples of running threads.
    pub const CPU_SAMPLES: &str = "CPU samples";
    /// CPU samples that were lost at an unknown time.
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

/// In the name of a histogram's mark, separates the histogram's name from its counts.
pub const HISTOGRAM_SEPARATOR: char = '\u{1f}';

/// Kinds of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A mark that a person or a program set.
    Mark,
    /// A training step begins.
    Step,
    /// Recording was switched on.
    RecordingOn,
    /// Recording was switched off.
    RecordingOff,
    /// A histogram of values that the program recorded. The mark's name contains the histogram's
    /// name and then its counts.
    Histogram,
    /// An error of the machine, such as an XID of a GPU or an OOM kill. `tprof_facts` reads the
    /// mark's name.
    MachineError,
}

/// A fact about the whole file that no table contains. In an import, it is a top-level key of the
/// source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// Key of the property.
    pub key: NameId,
    /// Value of the property, as JSON.
    pub value: NameId,
}

/// Keys of the properties that tprof itself writes.
pub mod property {
    /// The hardware events that the user requested, as an object with a key for each event. The
    /// value is the reason why the event wasn't counted, or `null` if it was.
    pub const EVENTS: &str = "tprof.events";
    /// The share of the time for which each event was counted, once that is known: an object with a
    /// key for each event. The share is below 1 if the processor has too few counters.
    pub const EVENT_SHARES: &str = "tprof.event_shares";
    /// The number of counters that each thread had for an event, one for each processor. Events
    /// after the last sample of each counter aren't counted.
    pub const COUNTERS_PER_THREAD: &str = "tprof.counters_per_thread";
    /// Time after which a job without any progress counts as hanging, ns. Only if it was watched.
    pub const ON_HANG: &str = "tprof.on_hang";
    /// What was watched for errors of the machine beside the devices: an object with the keys
    /// `kernel_log` and `network`, whose value is the reason why the source could not be read, or
    /// `null` if it was read; and `are_pids_of_host`, whether the pids in the kernel's log are
    /// those of the run.
    pub const MACHINE: &str = "tprof.machine";
    /// The beginning of the key for a hang; its time follows. The value is an object: `after_ns`,
    /// `verdict` (as `tprof where` has it), `file` (the run's file with all of it, or `null`).
    pub const HANG: &str = "tprof.hang:";
    /// Multiple of its usual time beyond which a step counts as slow, as a decimal number. Only if
    /// steps were watched.
    pub const ON_SLOW_STEP: &str = "tprof.on_slow_step";
    /// The beginning of the key for a slow step; its time follows. The value is an object: `rank`,
    /// `step`, `age_ns`, `usual_ns`, `text`, `function`, `file`, `line`, `stacks` (the run's file
    /// with the stacks of all ranks, or `null`).
    pub const SLOW_STEP: &str = "tprof.slow_step:";
    /// In a dump of what a run kept: the rule of findings whose event the dump was written for, if
    /// there is one.
    pub const DUMPED_FOR: &str = "tprof.dumped_for";
    /// In such a dump: what happened, as the line on standard error has it. Events of the same rule
    /// from before have properties, too. It is absent under `--redact`.
    pub const DUMPED_WHY: &str = "tprof.dumped_why";
    /// The beginning of the key for what is recorded less from a moment on (`--budget`); the process
    /// and the part follow. The value is an object: `process` (`null` for the whole job), `part`,
    /// `time_ns`, `share` (what the part cost, of the CPU time), `budget_percent`, `rate` (of
    /// samples, or `null`).
    pub const THINNED: &str = "tprof.thinned:";
    /// What sampling of kernels' instructions found in a context: an object with `process`, `device`,
    /// `context`, `from_ns`, `period_cycles`, and numbers of samples as CUPTI counts them: `total`,
    /// `dropped` (by the device), `other` (of kernels that aren't the program's), `recorded`, and
    /// `buffer_full` (how often). Or why a process has no samples, or none from a time on: an object
    /// with `process`, `why`, `until_ns` (`null` if it has none at all).
    pub const PC_SAMPLING: &str = "tprof.pc_sampling";
    /// The reason why there are no proportional set sizes, or none after some moment: a text.
    pub const NO_PSS: &str = "tprof.no_pss";
    /// The reason why the kernel's functions have no names in samples: a text.
    pub const KERNEL_NAMES_HIDDEN: &str = "tprof.kernel_names_hidden";
    /// The beginning of the key for a source file; the file's path follows. The value is a
    /// [`SourceStamp`](super::SourceStamp).
    pub const SOURCE: &str = "tprof.source:";
}

/// Records that were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Time when the loss was noticed.
    pub time_ns: u64,
    /// Index of the process; `None` for the whole run.
    pub process: Option<ProcessIndex>,
    /// Kind of the records that were lost, such as `heap events`.
    pub what: NameId,
    /// Number of records; 0 if it isn't known.
    pub count: u64,
    /// Reason of the loss.
    pub why: NameId,
}

/// The state of a source file when a stack first named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceStamp {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Time of the file's last change, nanoseconds since 1970.
    pub changed_unix_ns: i64,
    /// Whether the file changed after the code that ran was made, so that lines may not match. For
    /// a compiled program, this means after the program's file was written; for a script, after its
    /// process began.
    pub is_newer: bool,
}

impl SourceStamp {
    /// Encodes the stamp as the value of a property.
    pub fn to_json(self) -> String {
        let SourceStamp { bytes, changed_unix_ns, is_newer } = self;
        let newer = if is_newer { ",\"newer\":true" } else { "" };
        format!("{{\"bytes\":{bytes},\"changed_unix_ns\":{changed_unix_ns}{newer}}}")
    }

    /// Decodes the value of a property; `None` if it isn't a stamp.
    pub fn from_json(text: &str) -> Option<SourceStamp> {
        let value: serde_json::Value = serde_json::from_str(text).ok()?;
        Some(SourceStamp {
            bytes: value.get("bytes")?.as_u64()?,
            changed_unix_ns: value.get("changed_unix_ns")?.as_i64()?,
            is_newer: value.get("newer").is_some_and(|newer| newer == true),
        })
    }
}
