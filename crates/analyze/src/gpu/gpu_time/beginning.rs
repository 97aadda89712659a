//! Idle time at the beginning of a recording that may not have been idle.
//!
//! Work that was launched before the first event is missing from the trace, or a part of it is: a
//! device that seems idle may have run it. Work of one stream runs in order, so that a stream's
//! beginning is over once the first work with a recorded launch begins.

use rustc_hash::FxHashMap;

use super::gaps::Gap;
use crate::base::intervals::{Cover, Interval};
use crate::rank::call_names::is_wait;
use crate::rank::{RankTrace, StreamIndex};

/// The beginning of a rank's recording.
pub(crate) struct RecordingStart {
    /// For each stream: the first work with a recorded launch.
    first_of: FxHashMap<StreamIndex, usize>,
    /// The first work with a recorded launch on any stream; `None` if no launch was recorded.
    first: Option<usize>,
    /// The moment at which the last stream's beginning is over, ns.
    end_ns: u64,
    /// Host waits for a device until the first one.
    waits: Cover,
}

impl RecordingStart {
    pub(crate) fn of(rank: &RankTrace<'_>) -> RecordingStart {
        let mut first_of: FxHashMap<StreamIndex, usize> = FxHashMap::default();
        let launched = |at: &usize| rank.launches.call_of(*at).is_some();
        for at in (0..rank.work.len()).filter(launched) {
            first_of.entry(rank.work[at].stream).or_insert(at);
        }
        let first = first_of.values().min().copied();
        let first_ns = first.map_or(0, |first| rank.work[first].start_ns);
        let end_ns = first_of.values().map(|at| rank.work[*at].start_ns).max().unwrap_or(first_ns);
        let waits = rank.calls.iter().take_while(|call| call.start_ns < first_ns);
        let waits = waits.filter(|call| is_wait(rank.name(call.name)));
        let waits =
            Cover::of(waits.map(|call| Interval::new(call.start_ns, call.end_ns().min(first_ns))));
        RecordingStart { first_of, first, end_ns, waits }
    }

    /// The part of these gaps, of devices with this work, in which the devices may have had work
    /// that the trace lacks:
    ///
    /// - before the first work of a stream with a recorded launch, while that work waited on the
    ///   device although nothing ran; if it was launched before any such work began;
    /// - before work of a stream's beginning without a recorded launch;
    /// - while the host waited for a device, and no work with a recorded launch had begun.
    pub(crate) fn unknown(&self, rank: &RankTrace<'_>, gaps: &[Gap], work: &[u32]) -> Cover {
        let Some(first) = self.first else { return Cover::default() };
        let first_ns = rank.work[first].start_ns;
        let early = gaps.iter().take_while(|gap| gap.interval.end <= self.end_ns);
        let start_ns = |at: u32| rank.work[at as usize].start_ns;
        let held = early.filter_map(|gap| {
            let from = work.partition_point(|at| start_ns(*at) < gap.interval.end);
            let last = |at: usize| *self.first_of.get(&rank.work[at].stream).unwrap_or(&first);
            let ends = (work[from..].iter())
                .take_while(|at| start_ns(**at) == gap.interval.end)
                .map(|at| *at as usize)
                .find(|at| *at <= last(*at))?;
            match rank.launches.call_of(ends).map(|call| rank.calls[call].start_ns) {
                None => Some(gap.interval),
                Some(call_ns) if call_ns > first_ns => None,
                Some(_) => Some(Interval::new(gap.late().end, gap.interval.end)),
            }
        });
        let idle = Cover::of(gaps.iter().map(|gap| gap.interval));
        let held = Cover::of(held.filter(|part| part.length() > 0));
        held.union(&self.waits.intersection(&idle))
    }
}
