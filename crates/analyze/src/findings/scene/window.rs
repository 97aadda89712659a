//! The time of a rank that is judged, and when its devices were busy.

use std::borrow::Cow;

use crate::base::intervals::{Cover, Interval};
use crate::rank::{Busy, RankTrace, Step, Work};

/// When any of a rank's devices was busy so.
pub(super) fn of_devices<'r>(rank: &'r RankTrace<'_>, of: fn(&Busy) -> &Cover) -> Cow<'r, Cover> {
    match rank.devices() {
        [one] => Cow::Borrowed(of(one)),
        many => Cow::Owned(many.iter().fold(Cover::default(), |all, one| all.union(of(one)))),
    }
}

pub(super) fn window(rank: &RankTrace<'_>, steps: &[Step]) -> Cover {
    if steps.is_empty() {
        let end = rank.work.iter().map(Work::end_ns).max();
        let work = rank.work.first().zip(end);
        let first = rank.file.processes().iter().map(|process| process.start_ns).min();
        let life = first.map(|first| Interval::new(first, rank.file.last_ns()));
        return Cover::of(work.map(|(first, end)| Interval::new(first.start_ns, end)).or(life));
    }
    rank.window_of_steps(steps)
}
