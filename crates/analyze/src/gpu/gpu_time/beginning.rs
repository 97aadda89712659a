//! Idle time at the beginning of a recording that may not have been idle.
//!
//! What was launched before the first event is not in the trace, or not all of it: a
//! device that seems idle may have run it. Work of one stream runs in order, so that a
//! stream's beginning is over once the first work with a recorded launch begins.

use rustc_hash::FxHashMap;

use super::gaps::Gap;
use crate::base::intervals::{Cover, Interval};
use crate::rank::call_names::is_wait;
use crate::rank::{RankTrace, StreamIndex, Work};

/// The part of these gaps of devices with the work that counts in which they may have had work that the
/// trace lacks:
///
/// - before the first work of a stream with a recorded launch, while that work waited on
///   the device although nothing ran; if it was launched before any such work began;
/// - before work of a stream's beginning without a recorded launch;
/// - while the host waited for a device, and no work with a recorded launch had begun.
pub(crate) fn unknown(rank: &RankTrace<'_>, gaps: &[Gap], counts: impl Fn(&Work) -> bool) -> Cover {
    let mut first_of: FxHashMap<StreamIndex, usize> = FxHashMap::default();
    let launched = |at: &usize| rank.launches.call_of(*at).is_some();
    for at in (0..rank.work.len()).filter(launched) {
        first_of.entry(rank.work[at].stream).or_insert(at);
    }
    let Some(&first) = first_of.values().min() else { return Cover::default() };
    let first_ns = rank.work[first].start_ns;
    let end_ns = first_of.values().map(|at| rank.work[*at].start_ns).max().unwrap_or(first_ns);
    let early = gaps.iter().take_while(|gap| gap.interval.end <= end_ns);
    let held = early.filter_map(|gap| {
        let from = rank.work.partition_point(|work| work.start_ns < gap.interval.end);
        let ends = (from..rank.work.len())
            .take_while(|at| rank.work[*at].start_ns == gap.interval.end)
            .filter(|at| counts(&rank.work[*at]))
            .find(|at| *at <= *first_of.get(&rank.work[*at].stream).unwrap_or(&first))?;
        match rank.launches.call_of(ends).map(|call| rank.calls[call].start_ns) {
            None => Some(gap.interval),
            Some(call_ns) if call_ns > first_ns => None,
            Some(_) => Some(Interval::new(gap.late().end, gap.interval.end)),
        }
    });
    let waits = rank.calls.iter().take_while(|call| call.start_ns < first_ns);
    let waits = waits.filter(|call| is_wait(rank.name(call.name)));
    let waits =
        Cover::of(waits.map(|call| Interval::new(call.start_ns, call.end_ns().min(first_ns))));
    let idle = Cover::of(gaps.iter().map(|gap| gap.interval));
    Cover::of(held.filter(|part| part.length() > 0)).union(&waits.intersection(&idle))
}
