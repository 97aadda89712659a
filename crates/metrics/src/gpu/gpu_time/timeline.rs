//! Divides the time of one host thread by the thread's activity.

use std::cmp::Reverse;

use tprof_rank::base::intervals::{Cover, Interval};
use tprof_trace::model::{NameId, ProcessIndex};

use super::cause::IdleCause;
use super::host_code::HostCode;

/// A thread that makes no call and runs no operator for this long, in ns, isn't busy launching.
/// PyTorch takes 5 to 50 us between launches, and 250 us from a loss to the first launch of its
/// backward pass.
pub(super) const QUIET_NS: u64 = 500_000;

/// The index that stands for a missing call.
pub(super) const NO_CALL: u32 = u32::MAX;

/// An operator that computes on the host counts as other code, not as launching.
const COMPUTES: HostCode = HostCode::Cause(IdleCause::Python);

/// Intervals, each with a value.
pub(super) type Layer<T> = Vec<(Interval, T)>;

/// The activity of one host thread, in layers.
#[derive(Debug, Default)]
pub(super) struct ThreadTimeline {
    pub process: ProcessIndex,
    /// Causes such as compilation that cover all of their time, including the calls within it.
    pub whole: Layer<IdleCause>,
    /// Calls that block the thread, each with its cause and its index.
    pub blocking: Layer<(IdleCause, u32)>,
    /// Ranges whose names say what the thread does in them.
    pub named: Layer<IdleCause>,
    /// Waits in which the thread was off its core, with exact times.
    pub waits: Layer<HostCode>,
    /// Time in calls and operators.
    pub busy: Cover,
    /// Time outside of calls and operators, in intervals of [`QUIET_NS`] or longer.
    pub quiet: Cover,
    /// Operators of at least [`QUIET_NS`] that make no call to a device: they compute on the host.
    pub computing: Layer<NameId>,
    /// Samples on a core: the time, the duration that the sample stands for, and the code.
    pub samples: Vec<(u64, u64, HostCode)>,
    /// The interval around each sample that the sample explains; see [`around`].
    pub sampled: Layer<HostCode>,
    /// Intervals from one wait for the device to the next with few launches in between. In these,
    /// the thread can't launch ahead of the device. Each has the call of the first wait.
    pub between_waits: Layer<u32>,
}

/// A piece of a thread's time, with what the thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimelinePiece {
    pub interval: Interval,
    pub code: HostCode,
    /// The call that the thread was in, or [`NO_CALL`].
    pub call: u32,
}

impl ThreadTimeline {
    /// Returns the time in which the thread was at work: in calls, in operators, or, by its
    /// samples, on a core.
    pub fn active(&self) -> Cover {
        let on_core = |&(time_ns, weight_ns, _): &(u64, u64, HostCode)| {
            Interval::new(time_ns.saturating_sub(weight_ns), time_ns)
        };
        self.busy.union(&Cover::of(self.samples.iter().map(on_core)))
    }

    /// Cuts an interval into pieces that add up to it, in no particular order.
    pub fn split(&self, interval: Interval, pieces: &mut Vec<TimelinePiece>) {
        let mut push = |interval, code, call| pieces.push(TimelinePiece { interval, code, call });
        let rest = carve(&[interval], &self.whole, |part, cause| {
            push(part, HostCode::Cause(*cause), NO_CALL)
        });
        let rest = carve(&rest, &self.blocking, |part, (cause, call)| {
            push(part, HostCode::Cause(*cause), *call)
        });
        let rest =
            carve(&rest, &self.named, |part, cause| push(part, HostCode::Cause(*cause), NO_CALL));
        let rest = carve(&rest, &self.waits, |part, code| push(part, *code, NO_CALL));
        let mut computing = Vec::new();
        let rest = carve(&rest, &self.computing, |part, _| computing.push(part));
        let unsampled = carve(&computing, &self.sampled, |part, code| {
            // Even if the operator's code belongs to an operator library, it launches nothing here.
            // So it counts as computing on the host.
            let is_cause = matches!(code, HostCode::Cause(_));
            push(part, if is_cause { *code } else { COMPUTES }, NO_CALL);
        });
        unsampled.into_iter().for_each(|part| push(part, COMPUTES, NO_CALL));
        for part in rest {
            let quiet = self.quiet.within(part);
            let busy = Cover::of([part]).without(&quiet);
            for &busy in busy.parts() {
                push(busy, HostCode::Operators, NO_CALL);
            }
            let unsampled =
                carve(quiet.parts(), &self.sampled, |part, code| push(part, *code, NO_CALL));
            for quiet in unsampled {
                push(quiet, HostCode::Quiet, NO_CALL);
            }
        }
    }

    /// Returns the operators that compute on the host in an interval, each with its time in it, ns.
    pub fn computing(&self, interval: Interval) -> impl Iterator<Item = (NameId, u64)> {
        let first = self.computing.partition_point(|(at, _)| at.end <= interval.start);
        let inside = self.computing[first..].iter();
        let inside = inside.take_while(move |(at, _)| at.start < interval.end);
        inside.map(move |(at, name)| (*name, at.overlap(interval).length()))
    }

    /// Returns the call of the last wait before a moment, if the thread waits every few launches at
    /// that time.
    pub fn wait_before(&self, time_ns: u64) -> Option<u32> {
        let after = self.between_waits.partition_point(|(at, _)| at.end <= time_ns);
        let (at, call) = self.between_waits.get(after)?;
        (at.start <= time_ns).then_some(*call)
    }
}

/// Returns the interval that each sample explains where the thread makes no call: up to twice the
/// sample's own duration, before and after it. Where the intervals of two samples overlap, the time
/// belongs to the later sample. `samples` are in order of time.
pub(super) fn around(samples: &[(u64, u64, HostCode)]) -> Layer<HostCode> {
    let begins = |at: usize| {
        let (time_ns, weight_ns, _) = samples[at];
        let last_ns = at.checked_sub(1).map_or(0, |before| samples[before].0);
        time_ns.saturating_sub(weight_ns.saturating_mul(2)).max(last_ns)
    };
    let of = |(at, &(time_ns, weight_ns, code)): (usize, &(u64, u64, HostCode))| {
        let reach_ns = time_ns.saturating_add(weight_ns.saturating_mul(2));
        let next_ns = if at + 1 < samples.len() { begins(at + 1) } else { u64::MAX };
        (Interval::new(begins(at), reach_ns.min(next_ns)), code)
    };
    let all = samples.iter().enumerate().map(of);
    all.filter(|(interval, _)| interval.length() > 0).collect()
}

/// Sorts intervals, and cuts each interval that begins before an earlier one ended. Of intervals
/// that begin together, the longest stays; of equal ones, the first.
pub(super) fn ordered<T>(mut layer: Layer<T>) -> Layer<T> {
    layer.sort_by_key(|(interval, _)| (interval.start, Reverse(interval.end)));
    let mut until = 0;
    layer.retain_mut(|(interval, _)| {
        interval.start = interval.start.max(until);
        until = until.max(interval.end);
        interval.start < interval.end
    });
    layer
}

/// Cuts the parts of the intervals that the layer covers out and passes each to `found`. Returns
/// the rest.
fn carve<T>(
    intervals: &[Interval],
    layer: &Layer<T>,
    mut found: impl FnMut(Interval, &T),
) -> Vec<Interval> {
    let mut rest = Vec::with_capacity(intervals.len());
    for &interval in intervals {
        let first = layer.partition_point(|(at, _)| at.end <= interval.start);
        let mut start = interval.start;
        for (at, what) in layer[first..].iter().take_while(|(at, _)| at.start < interval.end) {
            if at.start > start {
                rest.push(Interval::new(start, at.start));
            }
            let part = at.overlap(interval);
            found(part, what);
            start = part.end;
        }
        if start < interval.end {
            rest.push(Interval::new(start, interval.end));
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_layer_is_cut_where_it_overlaps_itself() {
        let at = |start, end| (Interval::new(start, end), ());
        let layer = ordered(vec![at(5, 20), at(0, 10), at(12, 15)]);
        assert_eq!(layer, [at(0, 10), at(10, 20)]);
    }

    #[test]
    fn the_longest_of_intervals_that_begin_together_wins() {
        let at = |start, end, what| (Interval::new(start, end), what);
        let layer = ordered(vec![at(0, 5, "inner"), at(0, 20, "outer"), at(20, 30, "outer")]);
        assert_eq!(layer, [at(0, 20, "outer"), at(20, 30, "outer")]);
        let layer = ordered(vec![at(0, 20, "outer"), at(0, 20, "inner")]);
        assert_eq!(layer, [at(0, 20, "outer")]);
    }

    #[test]
    fn layers_take_precedence_in_order() {
        let at = Interval::new;
        let timeline = ThreadTimeline {
            whole: vec![(at(0, 10), IdleCause::Compile)],
            blocking: vec![(at(5, 20), (IdleCause::Sync, 7))],
            named: vec![(at(15, 30), IdleCause::Data)],
            busy: Cover::of([at(0, 40)]),
            quiet: Cover::of([at(40, 1_000_000)]),
            sampled: around(&[(100, 60, HostCode::Cause(IdleCause::Python))]),
            ..ThreadTimeline::default()
        };
        let mut pieces = Vec::new();
        timeline.split(at(0, 200), &mut pieces);
        let found: Vec<_> = pieces.iter().map(|one| (one.interval, one.code, one.call)).collect();
        let cause = HostCode::Cause;
        assert_eq!(
            found,
            [
                (at(0, 10), cause(IdleCause::Compile), NO_CALL),
                (at(10, 20), cause(IdleCause::Sync), 7),
                (at(20, 30), cause(IdleCause::Data), NO_CALL),
                (at(30, 40), HostCode::Operators, NO_CALL),
                (at(40, 200), cause(IdleCause::Python), NO_CALL),
            ]
        );
    }

    #[test]
    fn a_sample_explains_at_most_twice_its_time_on_either_side() {
        let (first, second) = (HostCode::Cause(IdleCause::Python), HostCode::Operators);
        let layer = around(&[(100, 10, first), (130, 10, second), (500, 20, first)]);
        let at = Interval::new;
        assert_eq!(layer, [(at(80, 110), first), (at(110, 150), second), (at(460, 540), first)]);
    }

    fn layer() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..300, 1_u64..40), 0..8)
    }

    proptest! {
        #[test]
        fn pieces_add_up_to_the_interval(
            whole in layer(), blocking in layer(), named in layer(), waits in layer(),
            busy in layer(), samples in prop::collection::vec(0_u64..300, 0..8),
            start in 0_u64..200, length in 1_u64..200,
        ) {
            let at = |list: &[(u64, u64)]| -> Vec<Interval> {
                list.iter().map(|(from, long)| Interval::new(*from, from + long)).collect()
            };
            let busy = Cover::of(at(&busy));
            let mut samples: Vec<_> =
                samples.iter().map(|at| (*at, 10, HostCode::Operators)).collect();
            samples.sort_by_key(|sample| sample.0);
            let timeline = ThreadTimeline {
                whole: ordered(at(&whole).into_iter().map(|at| (at, IdleCause::Compile)).collect()),
                blocking: ordered(at(&blocking).into_iter().map(|at| (at, (IdleCause::Sync, 1))).collect()),
                named: ordered(at(&named).into_iter().map(|at| (at, IdleCause::Data)).collect()),
                waits: ordered(at(&waits).into_iter().map(|at| (at, HostCode::OtherThread)).collect()),
                quiet: Cover::of([Interval::new(0, 500)]).without(&busy),
                busy,
                sampled: around(&samples),
                ..ThreadTimeline::default()
            };
            let mut pieces = Vec::new();
            let all = Interval::new(start, start + length);
            timeline.split(all, &mut pieces);
            prop_assert_eq!(pieces.iter().map(|one| one.interval.length()).sum::<u64>(), length);
            prop_assert_eq!(Cover::of(pieces.iter().map(|one| one.interval)), Cover::of([all]));
        }
    }
}
