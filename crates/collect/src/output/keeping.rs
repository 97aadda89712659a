//! Limits what is kept of what happens (`--keep`), and knows which part that is.

use crate::config::Keep;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use tprof_trace::{KeptRoom, TraceError, TraceHeader, TraceWriter};

/// Beginning of the names of the directories of segments in a run.
pub const SEGMENTS: &str = "kept-";
/// Beginning of the names of the runs within a run that have what was kept at some moment; their
/// numbers follow.
pub const DUMP: &str = "dump-";

/// Whether a run within a run has this name.
pub fn is_dump(name: &str) -> bool {
    name.strip_prefix(DUMP).is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Whether a segment has this name.
pub fn is_segment(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// How only the last part is kept in the files of a collector.
pub struct Keeping {
    keep: Keep,
    room: Arc<KeptRoom>,
    /// Time when the run began, ns. It tells the segments of successive collectors apart, which may
    /// have the same pid.
    start_ns: u64,
}

impl Keeping {
    /// Returns the limits of a run that began at this time, ns.
    pub fn new(keep: Keep, start_ns: u64) -> Keeping {
        Keeping { keep, room: KeptRoom::new(keep.bytes), start_ns }
    }

    /// Creates the collector's file with this number.
    pub(super) fn create(
        &self,
        path: &Path,
        header: &TraceHeader,
        number: usize,
    ) -> Result<TraceWriter, TraceError> {
        let (host, pid) = (&header.host, std::process::id());
        let segments = format!("{SEGMENTS}{host}-{pid}-{:x}-{number}", self.start_ns);
        TraceWriter::create_keeping(path, header, &segments, Arc::clone(&self.room))
    }

    /// Returns the time before which nothing need be kept in a file, ns; `None` if time doesn't
    /// decide that, or if too little has happened.
    pub fn horizon_ns(&self, steps: &StepStarts, now_ns: u64) -> Option<u64> {
        let time = self.keep.time.map(|time| now_ns.saturating_sub(time.as_nanos() as u64));
        let steps = self.keep.steps.and_then(|count| steps.begun_ns(count.into()));
        time.max(steps)
    }

    /// Returns how many steps are kept; `None` if steps don't decide.
    pub fn kept_steps(&self) -> Option<u64> {
        self.keep.steps.map(u64::from)
    }

    /// Returns the option as the user gave it, for reports that name what it left out.
    pub fn option(&self) -> String {
        format!("--keep {}", self.keep)
    }
}

/// When the last steps of a rank began, as often as the engine looked.
#[derive(Debug, Default)]
pub struct StepStarts {
    /// Number of steps begun, and a time at which that was so, ns. The oldest is first.
    seen: VecDeque<(u64, u64)>,
}

impl StepStarts {
    /// Notes that so many steps have begun, of which `kept` are kept.
    pub fn add(&mut self, begun: u64, kept: u64, now_ns: u64) {
        if self.seen.back().is_none_or(|(last, _)| *last < begun) {
            self.seen.push_back((begun, now_ns));
        }
        // One from before the steps that are kept tells when these began.
        while self.seen.get(1).is_some_and(|(count, _)| count + kept < begun) {
            self.seen.pop_front();
        }
    }

    /// Returns a time before the last `count` steps began, as late as it is known, ns; `None` if
    /// fewer steps have begun.
    fn begun_ns(&self, count: u64) -> Option<u64> {
        let (begun, _) = self.seen.back()?;
        let before = self.seen.iter().rev().find(|(at, _)| at + count < *begun)?;
        Some(before.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_steps_are_those_after_a_time_that_is_known() {
        let mut steps = StepStarts::default();
        assert_eq!(steps.begun_ns(3), None);
        // The engine looks every third step.
        for begun in (0..=60).step_by(3) {
            steps.add(begun, 10, begun * 100);
        }
        // Of 60 steps, ten and the one that runs are kept: those from 49 on. It looked at 48.
        assert_eq!(steps.begun_ns(10), Some(4800));
        assert!(steps.seen.len() < 6, "{:?}", steps.seen);
        steps.add(60, 10, 9000);
        assert_eq!(steps.begun_ns(10), Some(4800), "no further step has begun");
    }

    #[test]
    fn the_limit_that_leaves_least_counts() {
        let mut steps = StepStarts::default();
        (0..=100).for_each(|begun| steps.add(begun, 5, begun * 1_000_000_000));
        let now_ns = 101_000_000_000;
        let horizon = |time: Option<u64>, steps_kept| {
            let time = time.map(std::time::Duration::from_secs);
            let keep = Keep { time, steps: steps_kept, bytes: None };
            Keeping::new(keep, 0).horizon_ns(&steps, now_ns).map(|ns| ns / 1_000_000_000)
        };
        assert_eq!(horizon(Some(60), None), Some(41));
        assert_eq!(horizon(None, Some(5)), Some(94));
        assert_eq!(horizon(Some(60), Some(5)), Some(94));
        assert_eq!(horizon(Some(3), Some(5)), Some(98));
        assert_eq!(horizon(None, None), None);
    }

    #[test]
    fn a_dump_has_a_number() {
        assert!(is_dump("dump-1") && is_dump("dump-12"));
        for name in ["dump-", "dump-x", "dump-1/..", "../dump-1", "dump--1", "run"] {
            assert!(!is_dump(name), "{name}");
        }
    }
}
