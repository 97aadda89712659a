//! Finds work that overlaps other work on its stream. A stream runs one kernel or copy at a time,
//! so a time must be wrong.
//!
//! If a piece of work overlaps several pieces that follow, its own start or end is wrong. A first
//! pass over a file finds such pieces, and a second pass leaves them out and counts them. A piece
//! that overlaps only one other is kept and counted, because it may be right: a dependent launch
//! (PDL) begins before the preceding work has ended. The trace doesn't show whether an overlap has
//! this reason, or comes from a wrong time or a repeated record.

use rustc_hash::{FxHashMap, FxHashSet};

/// Number of pieces of work to sort at a time. Sorting small batches suffices, because files are
/// mostly in order already.
const BATCH: usize = 1 << 14;
/// A piece that overlaps this many following pieces is wrong. A dependent launch overlaps only one.
const OVERLAPPED: u32 = 2;
/// An overlap up to this length may come from rounding to whole microseconds.
const ROUNDED_NS: u64 = 1000;
/// Largest number of pieces on one stream that may run at once: the branches of one launch of a
/// graph.
const MAX_RUNNING: usize = 256;
/// If more than one piece in this many overlaps several others, the trace's stream number isn't one
/// stream but stands for several.
const WRONG_AT_MOST: u64 = 4;
/// Largest number of pieces with wrong times that are remembered.
const MAX_WRONG: usize = 1 << 20;

/// A kernel or a copy on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamWork {
    /// Number of the work's stream, unique over all devices and contexts.
    pub stream: u64,
    pub start_ns: u64,
    pub duration_ns: u64,
    /// Launch of the work. Pieces from one launch of a graph may run at once.
    pub launch: Option<u64>,
}

impl StreamWork {
    fn end_ns(self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// Work that has begun and may still run.
#[derive(Clone, Copy, Debug)]
struct RunningWork {
    work: StreamWork,
    /// Number of following pieces that began before this piece's end.
    overlapped: u32,
    /// Whether this piece was counted as overlapping.
    overlaps: bool,
}

#[derive(Debug, Default)]
struct Stream {
    running: Vec<RunningWork>,
    count: u64,
    /// Number of pieces that overlap others.
    overlapping: u64,
    /// Number of pieces that overlap several others.
    wrong: u64,
}

/// All streams of a file.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    batch: Vec<StreamWork>,
    streams: FxHashMap<u64, Stream>,
    wrong: Vec<StreamWork>,
    /// Whether some wrong pieces weren't remembered, because there were too many.
    is_full: bool,
}

/// Number of overlapping kernels and copies that may be right.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Overlaps {
    /// Number of pieces that overlap several others because their stream number stands for several
    /// streams.
    pub shared: u64,
    /// Number of pieces that overlap one other piece.
    pub one: u64,
}

impl Overlaps {
    /// Returns notes for people who read the run.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let overlap = |count| match count {
            1 => "1 kernel or copy overlaps".to_owned(),
            count => format!("{count} kernels and copies overlap"),
        };
        let shared = (self.shared > 0).then(|| {
            format!(
                "{} several others on one stream, so that its number stands for several streams: \
                 busy time counts each moment once",
                overlap(self.shared)
            )
        });
        let one = (self.one > 0).then(|| {
            format!(
                "{} one other on one stream, as dependent launches do, wrong times, and records \
                 that are there twice: busy time counts each moment once, sums of durations do not",
                overlap(self.one)
            )
        });
        shared.into_iter().chain(one)
    }
}

impl Streams {
    /// Adds one kernel or copy of a stream.
    #[inline]
    pub fn add(&mut self, work: StreamWork) {
        self.batch.push(work);
        if self.batch.len() == BATCH {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.sort_unstable_by_key(|work| (work.start_ns, work.duration_ns));
        for work in batch.drain(..) {
            let stream = self.streams.entry(work.stream).or_default();
            stream.count += 1;
            stream.running.retain_mut(|running| {
                let (before, end_ns) = (running.work, running.work.end_ns());
                if end_ns <= work.start_ns.saturating_add(ROUNDED_NS) {
                    return end_ns > work.start_ns;
                }
                let is_of_other = work.launch.is_none() || before.launch != work.launch;
                let is_later = work.start_ns >= before.start_ns;
                if !running.overlaps && (is_of_other && is_later || before == work) {
                    running.overlaps = true;
                    stream.overlapping += 1;
                }
                running.overlapped += u32::from(is_of_other && work.start_ns > before.start_ns);
                if running.overlapped < OVERLAPPED {
                    return true;
                }
                stream.wrong += 1;
                match self.wrong.len() {
                    MAX_WRONG => self.is_full = true,
                    _ => self.wrong.push(before),
                }
                false
            });
            if stream.running.len() < MAX_RUNNING {
                stream.running.push(RunningWork { work, overlapped: 0, overlaps: false });
            }
        }
        self.batch = batch;
    }

    /// Returns the work whose times must be wrong, and the number of other pieces that overlap.
    pub fn overlaps(mut self) -> (FxHashSet<StreamWork>, Overlaps) {
        self.sweep();
        let is_one = |stream: &Stream| {
            !self.is_full && stream.wrong.saturating_mul(WRONG_AT_MOST) <= stream.count
        };
        let shared = self.streams.values().filter(|stream| !is_one(stream));
        let shared = shared.map(|stream| stream.wrong).sum();
        let is_wrong = |work: &StreamWork| self.streams.get(&work.stream).is_some_and(is_one);
        let wrong = self.wrong.iter().copied().filter(is_wrong).collect();
        let one = self.streams.values().map(|stream| stream.overlapping - stream.wrong).sum();
        (wrong, Overlaps { shared, one })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaps(all: &[(u64, u64, u64)]) -> (FxHashSet<StreamWork>, Overlaps) {
        let mut streams = Streams::default();
        for (number, (stream, start_us, duration_us)) in (0..).zip(all.iter().copied()) {
            let (start_ns, duration_ns) = (1000 * start_us, 1000 * duration_us);
            streams.add(StreamWork { stream, start_ns, duration_ns, launch: Some(number) });
        }
        streams.overlaps()
    }

    /// Returns work that begins every 100 us and lasts 80 us.
    fn regular(stream: u64, count: u64) -> Vec<(u64, u64, u64)> {
        (0..count).map(|number| (stream, 100 * number, 80)).collect()
    }

    #[test]
    fn work_that_overlaps_several_others_is_wrong() {
        let mut all = regular(7, 20);
        all[5].2 = 900;
        let (wrong, others) = overlaps(&all);
        let wrong: Vec<u64> = wrong.iter().map(|work| work.start_ns).collect();
        assert_eq!((wrong, others), (vec![500_000], Overlaps::default()));
        // This piece lasts to the end of the file. The pieces are also out of order, and mixed with
        // pieces of another stream.
        all[5].2 = 1 << 40;
        all.extend(regular(8, 20));
        all.reverse();
        assert_eq!(overlaps(&all).0.iter().map(|work| work.start_ns).sum::<u64>(), 500_000);
    }

    #[test]
    fn work_that_overlaps_only_one_other_is_counted() {
        let count = |all: &[_]| {
            let (wrong, overlaps) = overlaps(all);
            assert!(wrong.is_empty() && overlaps.shared == 0, "{wrong:?} {overlaps:?}");
            overlaps.one
        };
        // In the first list, each piece overlaps the next one. In the second, one piece lies within
        // another. In the third, two begin together.
        let next: Vec<_> = (0..20).map(|number| (7, 100 * number, 150)).collect();
        assert_eq!(count(&next), 19);
        assert_eq!(count(&[(7, 0, 80), (7, 100, 80), (7, 120, 20), (7, 200, 80)]), 1);
        assert_eq!(count(&[(7, 0, 80), (7, 100, 80), (7, 100, 20), (7, 200, 80)]), 1);
        // An overlap of up to a microsecond comes from rounding.
        assert_eq!(count(&[(7, 0, 101), (7, 100, 80)]), 0);
        assert_eq!(count(&regular(7, 20)), 0);
    }

    #[test]
    fn a_repeated_record_counts_as_an_overlap() {
        let mut streams = Streams::default();
        let work = StreamWork { stream: 7, start_ns: 5_000, duration_ns: 80_000, launch: Some(3) };
        for _ in 0..2 {
            streams.add(work);
        }
        assert_eq!(streams.overlaps(), (FxHashSet::default(), Overlaps { shared: 0, one: 1 }));
    }

    #[test]
    fn a_number_that_stands_for_several_streams_is_noted() {
        let all: Vec<_> = (0..20).map(|number| (7, 100 * number, 350)).collect();
        let (wrong, others) = overlaps(&all);
        assert_eq!((wrong.len(), others), (0, Overlaps { shared: 18, one: 1 }));
    }

    #[test]
    fn branches_of_a_graph_may_run_at_once() {
        let mut streams = Streams::default();
        for start_ns in (0..20).map(|number| 10_000 * number) {
            let duration_ns = if start_ns == 50_000 { 70_000 } else { 8_000 };
            streams.add(StreamWork { stream: 7, start_ns, duration_ns, launch: Some(3) });
        }
        assert_eq!(streams.overlaps(), Default::default());
    }
}
