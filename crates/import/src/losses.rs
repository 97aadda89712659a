//! Counts the events that an import stored and lost, with the reasons for losses.

use crate::document::Malformed;
use tprof_trace::run::LossInfo;

/// Reasons why a part of the source is not in the file. Users see them as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum LossReason {
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

const KINDS: [LossReason; 47] = [
    LossReason::CutOff,
    LossReason::Damaged,
    LossReason::NotJson,
    LossReason::NoObject,
    LossReason::TooLong,
    LossReason::NoPhase,
    LossReason::UnknownPhase,
    LossReason::NoTime,
    LossReason::Range,
    LossReason::UnsetTime,
    LossReason::FarTime,
    LossReason::NegativeDuration,
    LossReason::Duration,
    LossReason::Unmeasured,
    LossReason::Overlapping,
    LossReason::BeginWithoutEnd,
    LossReason::EndWithoutBegin,
    LossReason::DeepNesting,
    LossReason::AsyncEvent,
    LossReason::Object,
    LossReason::OtherTrace,
    LossReason::Sample,
    LossReason::OtherSamples,
    LossReason::SamplePeriod,
    LossReason::SamplesFull,
    LossReason::StackMissing,
    LossReason::MemoryDetails,
    LossReason::CounterValue,
    LossReason::InstantDetails,
    LossReason::EndArguments,
    LossReason::OddArguments,
    LossReason::ArgumentsRefused,
    LossReason::ArgumentsTooLong,
    LossReason::BytesMended,
    LossReason::Repeated,
    LossReason::OtherMembers,
    LossReason::LongStack,
    LossReason::FactTooLong,
    LossReason::MetadataTooLong,
    LossReason::NameTooLong,
    LossReason::NamesFull,
    LossReason::ThreadsFull,
    LossReason::SnapshotRow,
    LossReason::SnapshotTime,
    LossReason::SnapshotDetails,
    LossReason::FrameDetails,
    LossReason::Numbering,
];

impl LossReason {
    /// Whether this reason makes a whole event missing, rather than a part of it.
    pub fn is_event(self) -> bool {
        matches!(
            self,
            LossReason::AsyncEvent
                | LossReason::BeginWithoutEnd
                | LossReason::CounterValue
                | LossReason::DeepNesting
                | LossReason::Duration
                | LossReason::EndWithoutBegin
                | LossReason::FarTime
                | LossReason::MemoryDetails
                | LossReason::NegativeDuration
                | LossReason::NoObject
                | LossReason::NoPhase
                | LossReason::NoTime
                | LossReason::NotJson
                | LossReason::Object
                | LossReason::OtherSamples
                | LossReason::OtherTrace
                | LossReason::Overlapping
                | LossReason::Range
                | LossReason::Sample
                | LossReason::SamplePeriod
                | LossReason::SamplesFull
                | LossReason::SnapshotRow
                | LossReason::TooLong
                | LossReason::UnknownPhase
                | LossReason::Unmeasured
                | LossReason::UnsetTime
        )
    }

    /// Returns the lost data and the reason, in words.
    pub fn text(self) -> (&'static str, &'static str) {
        match self {
            LossReason::AsyncEvent => {
                ("asynchronous events", "the model has only spans of threads")
            }
            LossReason::ArgumentsTooLong => ("arguments", "longer than 256 KiB"),
            LossReason::ArgumentsRefused => ("arguments", "not JSON, or nested too deeply"),
            LossReason::BeginWithoutEnd => ("spans", "a beginning without an end"),
            LossReason::BytesMended => {
                ("bytes of strings", "not UTF-8 or not JSON; they were replaced")
            }
            LossReason::CutOff => ("the rest of the file", "it is cut off or damaged"),
            LossReason::Damaged => (
                "the contents of the file",
                "the checksum of the compressed file does not match: any part may be wrong",
            ),
            LossReason::DeepNesting => ("beginnings of spans", "nested too deeply"),
            LossReason::Duration => ("events", "no duration (`dur`)"),
            LossReason::EndArguments => {
                ("arguments of ends of spans", "the beginning has arguments too")
            }
            LossReason::EndWithoutBegin => ("ends of spans", "an end without a beginning"),
            LossReason::FactTooLong => {
                ("members of the top level", "longer than 256 KiB, or not JSON")
            }
            LossReason::FarTime => ("events", "a start or an end more than a year from all others"),
            LossReason::InstantDetails => {
                ("thread and arguments of instants", "the model has name, time and process")
            }
            LossReason::LongStack => (
                "frames of call stacks",
                "a stack of more than 65,536, or of a function that is its own caller",
            ),
            LossReason::MemoryDetails => ("memory events", "no size"),
            LossReason::MetadataTooLong => {
                ("labels and places of processes and threads", "more than 128 KiB of them")
            }
            LossReason::NameTooLong => ("ends of names", "a name longer than 256 KiB"),
            LossReason::NamesFull => ("names and arguments", "more than 1 GiB of different ones"),
            LossReason::NegativeDuration => ("events", "the duration is negative"),
            LossReason::NoObject => ("events", "no object"),
            LossReason::NoPhase => ("events", "no phase (`ph`)"),
            LossReason::NoTime => ("events", "no time (`ts`), or one that is no number"),
            LossReason::NotJson => ("events", "not JSON"),
            LossReason::Numbering => {
                ("numbers that the profiler gave its records", "nothing refers to them")
            }
            LossReason::Object => ("snapshots of objects", "the model has none"),
            LossReason::OddArguments => ("arguments", "no object"),
            LossReason::OtherMembers => {
                ("members of events", "not in the description of the format")
            }
            LossReason::OtherSamples => ("samples", "of another event than most: no CPU time"),
            LossReason::OtherTrace => {
                ("events in other lists of the top level", "no report reads them")
            }
            LossReason::Overlapping => (
                "kernels and copies",
                "they overlap on one stream, which runs one at a time: their times are wrong",
            ),
            LossReason::Range => ("events", "a time or duration out of range"),
            LossReason::Repeated => ("members of events", "given twice; the last one was taken"),
            LossReason::Sample => ("samples", "events of phase `P` without a frame (`sf`)"),
            LossReason::SamplePeriod => {
                ("samples", "no thread has two, which would show what time one stands for")
            }
            LossReason::SamplesFull => ("samples", "more than four million"),
            LossReason::StackMissing => ("call stacks", "a frame that `stackFrames` does not have"),
            LossReason::ThreadsFull => {
                ("threads", "more than a million; their events are with another")
            }
            LossReason::TooLong => ("events and values", "longer than 64 MiB"),
            LossReason::UnknownPhase => ("events", "of a phase that nothing describes"),
            LossReason::Unmeasured => {
                ("kernels and copies", "a duration of 0, which is none: it was not measured")
            }
            LossReason::UnsetTime => {
                ("events", "a time of 0, long before all others: it was never set")
            }
            LossReason::CounterValue => ("values of counters", "no number"),
            LossReason::FrameDetails => ("details of frames", "the model has name, file and line"),
            LossReason::SnapshotDetails => {
                ("details of a memory snapshot", "longer than 4 KiB, or nested too deeply")
            }
            LossReason::SnapshotTime => (
                "times of entries",
                "0, or more than a year from all others; that of the one before",
            ),
            LossReason::SnapshotRow => {
                ("segments, blocks and entries", "no dict, or without a size, state or action")
            }
        }
    }
}

impl From<Malformed> for LossReason {
    fn from(broken: Malformed) -> LossReason {
        match broken {
            Malformed::NotJson => LossReason::NotJson,
            Malformed::NoObject => LossReason::NoObject,
            Malformed::TooLong => LossReason::TooLong,
            Malformed::CutOff | Malformed::Tail => LossReason::CutOff,
        }
    }
}

/// Counts of one file.
#[derive(Debug)]
pub(crate) struct Tally {
    /// For each [`LossReason`], the number of losses and the offset of the first.
    lost: [(u64, Option<u64>); KINDS.len()],
    /// Number of rows written.
    pub kept: u64,
    /// Number of arrows from launches to kernels. They are not stored, because correlations contain
    /// the same information.
    pub launch_arrows: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { lost: [(0, None); KINDS.len()], kept: 0, launch_arrows: 0 }
    }
}

/// A kind of data that was not kept.
pub(crate) struct Loss {
    /// Name of the data that was not kept.
    pub what: &'static str,
    /// Number of losses; 0 if unknown.
    pub count: u64,
    /// Why it was not kept.
    pub why: String,
    /// Whether whole events are missing, rather than parts of them.
    pub is_event: bool,
    /// Whether a person who reads the run must know of the loss.
    pub matters: bool,
}

impl Loss {
    /// Converts the loss to the form in `run.json`.
    pub fn into_info(self) -> LossInfo {
        LossInfo { what: self.what.to_owned(), why: self.why, count: self.count }
    }
}

impl Tally {
    /// Counts one loss.
    #[inline(always)]
    pub fn count_loss(&mut self, what: LossReason) {
        self.lost[what as usize].0 += 1;
    }

    /// Counts several losses.
    pub fn count_losses(&mut self, what: LossReason, count: u64) {
        self.lost[what as usize].0 += count;
    }

    /// Counts a loss, with its offset in the text.
    pub fn count_loss_at(&mut self, what: LossReason, offset: u64) {
        let entry = &mut self.lost[what as usize];
        entry.0 += 1;
        entry.1.get_or_insert(offset);
    }

    /// Returns the offset at which the text ended too early, if it did.
    pub fn cut_at(&self) -> Option<u64> {
        self.lost[LossReason::CutOff as usize].1
    }

    /// Returns all losses by kind.
    pub fn losses(&self) -> Vec<Loss> {
        let there = KINDS.iter().filter(|kind| self.lost[**kind as usize].0 > 0);
        let loss = |kind: &LossReason| {
            let (what, why) = kind.text();
            let (count, offset) = self.lost[*kind as usize];
            let why = match offset {
                Some(offset) if *kind == LossReason::CutOff => format!("{why}, at byte {offset}"),
                Some(offset) => format!("{why}; the first at byte {offset}"),
                None => why.to_owned(),
            };
            let count =
                if matches!(kind, LossReason::CutOff | LossReason::Damaged) { 0 } else { count };
            Loss {
                what,
                count,
                why,
                is_event: kind.is_event(),
                matters: *kind != LossReason::Numbering,
            }
        };
        there.map(loss).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loss_reason_has_its_own_counter() {
        let mut places: Vec<usize> = KINDS.iter().map(|kind| *kind as usize).collect();
        places.sort_unstable();
        assert_eq!(places, (0..KINDS.len()).collect::<Vec<_>>());
    }
}
