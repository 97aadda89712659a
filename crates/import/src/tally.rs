//! What was read, what of it was kept, and what was not and why.

use crate::document::Broken;
use tprof_trace::run::LossInfo;

/// Why something of the source is not in the file. The text is shown to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Lost {
    AsyncEvent,
    ArgumentsTooLong,
    ArgumentsRefused,
    BeginWithoutEnd,
    BytesMended,
    CutOff,
    Damaged,
    DeepNesting,
    Duration,
    EndArguments,
    EndWithoutBegin,
    FactTooLong,
    FarTime,
    InstantDetails,
    LongStack,
    MemoryDetails,
    MetadataTooLong,
    NameTooLong,
    NamesFull,
    NegativeDuration,
    NoObject,
    NoPhase,
    NoTime,
    NotJson,
    Numbering,
    Object,
    OddArguments,
    OtherMembers,
    OtherSamples,
    OtherTrace,
    Overlapping,
    Range,
    Repeated,
    Sample,
    SamplePeriod,
    SamplesFull,
    StackMissing,
    ThreadsFull,
    TooLong,
    UnknownPhase,
    Unmeasured,
    UnsetTime,
    CounterValue,
    FrameDetails,
    SnapshotDetails,
    SnapshotRow,
    SnapshotTime,
}

const KINDS: [Lost; 47] = [
    Lost::CutOff,
    Lost::Damaged,
    Lost::NotJson,
    Lost::NoObject,
    Lost::TooLong,
    Lost::NoPhase,
    Lost::UnknownPhase,
    Lost::NoTime,
    Lost::Range,
    Lost::UnsetTime,
    Lost::FarTime,
    Lost::NegativeDuration,
    Lost::Duration,
    Lost::Unmeasured,
    Lost::Overlapping,
    Lost::BeginWithoutEnd,
    Lost::EndWithoutBegin,
    Lost::DeepNesting,
    Lost::AsyncEvent,
    Lost::Object,
    Lost::OtherTrace,
    Lost::Sample,
    Lost::OtherSamples,
    Lost::SamplePeriod,
    Lost::SamplesFull,
    Lost::StackMissing,
    Lost::MemoryDetails,
    Lost::CounterValue,
    Lost::InstantDetails,
    Lost::EndArguments,
    Lost::OddArguments,
    Lost::ArgumentsRefused,
    Lost::ArgumentsTooLong,
    Lost::BytesMended,
    Lost::Repeated,
    Lost::OtherMembers,
    Lost::LongStack,
    Lost::FactTooLong,
    Lost::MetadataTooLong,
    Lost::NameTooLong,
    Lost::NamesFull,
    Lost::ThreadsFull,
    Lost::SnapshotRow,
    Lost::SnapshotTime,
    Lost::SnapshotDetails,
    Lost::FrameDetails,
    Lost::Numbering,
];

impl Lost {
    /// Whether events are missing for it, not only something about them.
    pub fn is_event(self) -> bool {
        matches!(
            self,
            Lost::AsyncEvent
                | Lost::BeginWithoutEnd
                | Lost::CounterValue
                | Lost::DeepNesting
                | Lost::Duration
                | Lost::EndWithoutBegin
                | Lost::FarTime
                | Lost::MemoryDetails
                | Lost::NegativeDuration
                | Lost::NoObject
                | Lost::NoPhase
                | Lost::NoTime
                | Lost::NotJson
                | Lost::Object
                | Lost::OtherSamples
                | Lost::OtherTrace
                | Lost::Overlapping
                | Lost::Range
                | Lost::Sample
                | Lost::SamplePeriod
                | Lost::SamplesFull
                | Lost::SnapshotRow
                | Lost::TooLong
                | Lost::UnknownPhase
                | Lost::Unmeasured
                | Lost::UnsetTime
        )
    }

    /// What was lost, and why.
    pub fn text(self) -> (&'static str, &'static str) {
        match self {
            Lost::AsyncEvent => ("asynchronous events", "the model has only spans of threads"),
            Lost::ArgumentsTooLong => ("arguments", "longer than 256 KiB"),
            Lost::ArgumentsRefused => ("arguments", "not JSON, or nested too deeply"),
            Lost::BeginWithoutEnd => ("spans", "a beginning without an end"),
            Lost::BytesMended => ("bytes of strings", "not UTF-8 or not JSON; they were replaced"),
            Lost::CutOff => ("the rest of the file", "it is cut off or damaged"),
            Lost::Damaged => (
                "the contents of the file",
                "the checksum of the compressed file does not match: any part may be wrong",
            ),
            Lost::DeepNesting => ("beginnings of spans", "nested too deeply"),
            Lost::Duration => ("events", "no duration (`dur`)"),
            Lost::EndArguments => ("arguments of ends of spans", "the beginning has arguments too"),
            Lost::EndWithoutBegin => ("ends of spans", "an end without a beginning"),
            Lost::FactTooLong => ("members of the top level", "longer than 256 KiB, or not JSON"),
            Lost::FarTime => ("events", "a start or an end more than a year from all others"),
            Lost::InstantDetails => {
                ("thread and arguments of instants", "the model has name, time and process")
            }
            Lost::LongStack => (
                "frames of call stacks",
                "a stack of more than 65,536, or of a function that is its own caller",
            ),
            Lost::MemoryDetails => ("memory events", "no size"),
            Lost::MetadataTooLong => {
                ("labels and places of processes and threads", "more than 128 KiB of them")
            }
            Lost::NameTooLong => ("ends of names", "a name longer than 256 KiB"),
            Lost::NamesFull => ("names and arguments", "more than 1 GiB of different ones"),
            Lost::NegativeDuration => ("events", "the duration is negative"),
            Lost::NoObject => ("events", "no object"),
            Lost::NoPhase => ("events", "no phase (`ph`)"),
            Lost::NoTime => ("events", "no time (`ts`), or one that is no number"),
            Lost::NotJson => ("events", "not JSON"),
            Lost::Numbering => {
                ("numbers that the profiler gave its records", "nothing refers to them")
            }
            Lost::Object => ("snapshots of objects", "the model has none"),
            Lost::OddArguments => ("arguments", "no object"),
            Lost::OtherMembers => ("members of events", "not in the description of the format"),
            Lost::OtherSamples => ("samples", "of another event than most: no CPU time"),
            Lost::OtherTrace => ("events in other lists of the top level", "no report reads them"),
            Lost::Overlapping => (
                "kernels and copies",
                "they overlap on one stream, which runs one at a time: their times are wrong",
            ),
            Lost::Range => ("events", "a time or duration out of range"),
            Lost::Repeated => ("members of events", "given twice; the last one was taken"),
            Lost::Sample => ("samples", "events of phase `P` without a frame (`sf`)"),
            Lost::SamplePeriod => {
                ("samples", "no thread has two, which would show what time one stands for")
            }
            Lost::SamplesFull => ("samples", "more than four million"),
            Lost::StackMissing => ("call stacks", "a frame that `stackFrames` does not have"),
            Lost::ThreadsFull => ("threads", "more than a million; their events are with another"),
            Lost::TooLong => ("events and values", "longer than 64 MiB"),
            Lost::UnknownPhase => ("events", "of a phase that nothing describes"),
            Lost::Unmeasured => {
                ("kernels and copies", "a duration of 0, which is none: it was not measured")
            }
            Lost::UnsetTime => ("events", "a time of 0, long before all others: it was never set"),
            Lost::CounterValue => ("values of counters", "no number"),
            Lost::FrameDetails => ("details of frames", "the model has name, file and line"),
            Lost::SnapshotDetails => {
                ("details of a memory snapshot", "longer than 4 KiB, or nested too deeply")
            }
            Lost::SnapshotTime => (
                "times of entries",
                "0, or more than a year from all others; that of the one before",
            ),
            Lost::SnapshotRow => {
                ("segments, blocks and entries", "no dict, or without a size, state or action")
            }
        }
    }
}

impl From<Broken> for Lost {
    fn from(broken: Broken) -> Lost {
        match broken {
            Broken::NotJson => Lost::NotJson,
            Broken::NoObject => Lost::NoObject,
            Broken::TooLong => Lost::TooLong,
            Broken::CutOff | Broken::Tail => Lost::CutOff,
        }
    }
}

/// Counts of one file.
#[derive(Debug)]
pub(crate) struct Tally {
    /// By [`Lost`]: how many, and where the first was.
    lost: [(u64, Option<u64>); KINDS.len()],
    /// Rows written.
    pub kept: u64,
    /// Arrows from launches to kernels: correlations have the same content.
    pub launch_arrows: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { lost: [(0, None); KINDS.len()], kept: 0, launch_arrows: 0 }
    }
}

/// Something that was not kept.
pub(crate) struct Loss {
    /// What.
    pub what: &'static str,
    /// How many; 0 if that is not known.
    pub count: u64,
    /// Why.
    pub why: String,
    /// Whether events are missing for it.
    pub is_event: bool,
    /// Whether a reader of the run must know.
    pub matters: bool,
}

impl Loss {
    /// As `run.json` has it.
    pub fn into_info(self) -> LossInfo {
        LossInfo { what: self.what.to_owned(), why: self.why, count: self.count }
    }
}

impl Tally {
    /// Notes that something was not kept.
    #[inline(always)]
    pub fn lose(&mut self, what: Lost) {
        self.lost[what as usize].0 += 1;
    }

    /// Notes that several were not kept.
    pub fn lose_many(&mut self, what: Lost, count: u64) {
        self.lost[what as usize].0 += count;
    }

    /// Notes that something was not kept, and where it is in the text.
    pub fn lose_at(&mut self, what: Lost, offset: u64) {
        let entry = &mut self.lost[what as usize];
        entry.0 += 1;
        entry.1.get_or_insert(offset);
    }

    /// Where the text ended before its end, if it did.
    pub fn cut_at(&self) -> Option<u64> {
        self.lost[Lost::CutOff as usize].1
    }

    /// What was not kept, by kind.
    pub fn losses(&self) -> Vec<Loss> {
        let there = KINDS.iter().filter(|kind| self.lost[**kind as usize].0 > 0);
        let loss = |kind: &Lost| {
            let (what, why) = kind.text();
            let (count, offset) = self.lost[*kind as usize];
            let why = match offset {
                Some(offset) if *kind == Lost::CutOff => format!("{why}, at byte {offset}"),
                Some(offset) => format!("{why}; the first at byte {offset}"),
                None => why.to_owned(),
            };
            let count = if matches!(kind, Lost::CutOff | Lost::Damaged) { 0 } else { count };
            Loss { what, count, why, is_event: kind.is_event(), matters: *kind != Lost::Numbering }
        };
        there.map(loss).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_place() {
        let mut places: Vec<usize> = KINDS.iter().map(|kind| *kind as usize).collect();
        places.sort_unstable();
        assert_eq!(places, (0..KINDS.len()).collect::<Vec<_>>());
    }
}
