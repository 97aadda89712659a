//! The time of a rank that is judged, and when its devices were busy.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use crate::base::intervals::{Cover, Interval};
use crate::rank::{Busy, RankTrace, Step, Work};

/// When any of a rank's devices was busy so.
pub(super) fn of_devices<'r>(rank: &'r RankTrace<'_>, of: fn(&Busy) -> &Cover) -> Cow<'r, Cover> {
    match rank.devices() {
        [one] => Cow::Borrowed(of(one)),
        many => Cow::Owned(many.iter().fold(Cover::default(), |all, one| all.union(of(one)))),
    }
}

/// Steps of the process that has most of them.
pub(super) fn steps_of_one_process(rank: &RankTrace<'_>) -> Vec<Step> {
    let mut steps = rank.steps();
    let mut counts: FxHashMap<u32, usize> = FxHashMap::default();
    for step in &steps {
        *counts.entry(step.process).or_default() += 1;
    }
    let most = counts.iter().max_by_key(|(process, count)| (**count, std::cmp::Reverse(**process)));
    if let Some((&process, _)) = most {
        steps.retain(|step| step.process == process);
    }
    steps
}

pub(super) fn window(rank: &RankTrace<'_>, steps: &[Step]) -> Cover {
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
