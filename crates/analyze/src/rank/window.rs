//! The time of a rank that is judged, and when its devices were busy.

use std::borrow::Cow;

use super::busy::Busy;
use super::rows::Work;
use super::steps::Step;
use super::trace::RankTrace;
use crate::base::intervals::{Cover, Interval};

/// When any of a rank's devices was busy so.
pub(crate) fn of_devices<'r>(rank: &'r RankTrace<'_>, of: fn(&Busy) -> &Cover) -> Cow<'r, Cover> {
    match rank.devices() {
        [one] => Cow::Borrowed(of(one)),
        many => Cow::Owned(many.iter().fold(Cover::default(), |all, one| all.union(of(one)))),
    }
}

pub(crate) fn window(rank: &RankTrace<'_>, steps: &[Step]) -> Cover {
    if steps.is_empty() {
        let end = rank.work.iter().map(Work::end_ns).max();
        let work = rank.work.first().zip(end);
        let first = rank.file.processes().iter().map(|process| process.start_ns).min();
        let life = first.map(|first| Interval::new(first, rank.file.last_ns()));
        return Cover::of(work.map(|(first, end)| Interval::new(first.start_ns, end)).or(life));
    }
    let mut parts: Vec<Interval> = steps.iter().map(|step| step.interval).collect();
    for (work, step) in rank.work.iter().zip(rank.steps_of_work(steps)) {
        if let Some(step) = step {
            let part = &mut parts[step as usize];
            part.end = part.end.max(work.end_ns());
        }
    }
    Cover::of(parts)
}
