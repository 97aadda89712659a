//! Finds idle time at the beginning of a recording in which the device may have run unrecorded
//! work.
//!
//! Work that was launched before the first recorded event may be missing from the trace, in full or
//! in part. A device that seems idle may have run it. Work of one stream runs in order. So once
//! work with a recorded launch begins on a stream, all earlier work is done, and the stream's
//! beginning is over.

use rustc_hash::FxHashMap;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::call_names::is_wait;
use tprof_rank::{RankTrace, StreamIndex};

use super::gaps::Gap;

/// The beginning of a rank's recording.
pub struct RecordingStart {
    /// For each stream, the index of the first work with a recorded launch.
    first_of: FxHashMap<StreamIndex, usize>,
    /// The index of the first work with a recorded launch on any stream; `None` if no launch was
    /// recorded.
    first: Option<usize>,
    /// The moment at which the last stream's beginning is over, ns.
    end_ns: u64,
    /// Calls in which the host waited for a device, up to the start of the work `first`.
    waits: Cover,
}

impl RecordingStart {
    /// Finds the beginning of a rank's recording from the launches of its work.
    pub fn of(rank: &RankTrace<'_>) -> RecordingStart {
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

    /// Returns the part of these gaps in which the devices may have run work that the trace lacks.
    /// `work` is the work of the gaps' devices. The part consists of:
    ///
    /// - the time before a stream's first work with a recorded launch, in which that work seems to
    ///   have waited on the device while nothing ran; only if the work was launched before any work
    ///   with a recorded launch began;
    /// - the time before work without a recorded launch, in a stream's beginning;
    /// - the time in which the host waited for a device, before any work with a recorded launch
    ///   began.
    pub fn unknown(&self, rank: &RankTrace<'_>, gaps: &[Gap], work: &[u32]) -> Cover {
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
