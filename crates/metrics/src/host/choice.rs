//! Chooses the thread of the same process that the driving thread waits for: one that works while
//! the driving thread waits, and works less at other times.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::Part;
use tprof_trace::model::ThreadIndex;

use super::timeline::ThreadWork;
use super::wait_sites::{Hint, WaitSite};

/// An awaited team must be at work for at least this share of the wait.
const LEAST_WORK: f64 = 0.3;
/// A team counts as well sampled if its time on a core is at most this multiple of the time that
/// its samples stand for.
const MOST_UNSAMPLED: f64 = 2.0;
/// Time on a core without samples doesn't matter if it is less than this share of a team's
/// activity.
const MOST_LEFT_OUT: f64 = 0.1;
/// A thread whose end is awaited ends at most this long before or after the end of the wait, ns.
const ENDS_WITHIN_NS: u64 = 2_000_000;
/// Beginning of the names of PyTorch's threads for backward passes.
pub const AUTOGRAD: &str = "pt_autograd_";

/// Chooses among the other threads of the driving thread's process, one wait site at a time.
pub(super) struct ThreadChoice<'t> {
    pub timelines: &'t [ThreadWork],
    pub waits: &'t WaitSite,
    /// Ends of the waits, in order of time.
    pub ends_ns: Vec<u64>,
    pub window: Interval,
    /// Threads that have already been chosen.
    pub used: FxHashSet<ThreadIndex>,
}

/// The time of waits. Some waits lie at a known time, `exact`. The others lie somewhere in `added`
/// and last `added_ns` in total.
pub(super) struct WaitingTime<'k> {
    pub exact: &'k Cover,
    pub added: &'k Cover,
    pub added_ns: u64,
}

impl WaitingTime<'_> {
    fn ns(&self) -> u64 {
        self.exact.length() + self.added_ns
    }

    /// Returns how much of `time` may lie in the waits, ns.
    fn shared(&self, time: &Cover) -> u64 {
        time.shared(self.exact) + time.shared(self.added).min(self.added_ns)
    }
}

/// Returns the ratio of a team's time on a core to the time that its samples stand for. The ratio
/// is high if the team had many short-lived threads, for example. Returns `None` if there are too
/// few samples to show what the team did.
pub(super) fn unsampled(team: &[&ThreadWork]) -> Option<f64> {
    let sum = |of: &dyn Fn(&ThreadWork) -> u64| team.iter().map(|one| of(one)).sum::<u64>() as f64;
    let running_ns = sum(&|one| one.running_ns);
    let sampled_ns = sum(&|one| one.sampled_ns);
    let times = if running_ns > 0.0 { running_ns / sampled_ns } else { 1.0 };
    // If the team's threads hardly run, their waits show what they do, so samples aren't needed.
    let is_little = running_ns - sampled_ns < MOST_LEFT_OUT * sum(&|one| one.busy.length());
    (times <= MOST_UNSAMPLED || is_little).then_some(times.clamp(1.0, MOST_UNSAMPLED))
}

impl<'t> ThreadChoice<'t> {
    /// Returns the team of threads that the driving thread most likely waits for. The thread with
    /// the most work in the waits comes first. Returns nothing if no team is likely.
    pub fn next(&mut self, kept: &WaitingTime<'_>) -> Vec<&'t ThreadWork> {
        let mut teams: BTreeMap<&str, Vec<&ThreadWork>> = BTreeMap::new();
        for timeline in self.timelines.iter().filter(|one| !self.used.contains(&one.thread)) {
            teams.entry(&timeline.team).or_default().push(timeline);
        }
        let scored = teams.into_values().filter_map(|team| Some((self.score(&team, kept)?, team)));
        let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, mut team)) = best else { return Vec::new() };
        team.sort_rows_by_key(|one| std::cmp::Reverse(kept.shared(&self.work(one))));
        self.used.extend(team.iter().map(|one| one.thread));
        team
    }

    /// Returns the time in which a thread works on what the driving thread waits for. In a wait for
    /// data, its sleep doesn't count: the driving thread then still waits for data.
    pub fn work(&self, one: &ThreadWork) -> Cover {
        match self.waits.at.part {
            Part::Data => one.busy.without(&one.asleep),
            _ => one.busy.clone(),
        }
    }

    /// Returns a score that is higher for a more likely team; `None` if the driving thread doesn't
    /// wait for the team.
    fn score(&self, team: &[&ThreadWork], kept: &WaitingTime<'_>) -> Option<f64> {
        let union = |of: &dyn Fn(&ThreadWork) -> Cover| Cover::any(team.iter().map(|one| of(one)));
        let (work, waits) = (union(&|one| self.work(one)), union(&|one| one.waits.clone()));
        let inside_ns = kept.shared(&work);
        let outside_ns = work.length() - inside_ns;
        let share = |ns: u64, of: u64| ns as f64 / of.max(1) as f64;
        let inside = share(inside_ns, kept.ns());
        let outside = share(outside_ns, self.window.length().saturating_sub(kept.ns()));
        // A thread that mostly waits, such as one that polls something once a second, happens to
        // wait during any other wait. So it isn't likely to be awaited.
        let is_waiting = kept.shared(&waits) * 2 > inside_ns;
        unsampled(team)?;
        if inside < LEAST_WORK || is_waiting && outside * 2.0 > inside {
            return None;
        }
        let is_known = match self.waits.hint {
            Hint::Nothing => false,
            Hint::Autograd => team.iter().any(|one| one.name.starts_with(AUTOGRAD)),
            Hint::Pool => team.iter().any(|one| one.is_of_pool),
            Hint::Ends => team.iter().any(|one| one.end_ns.is_some_and(|ns| self.has_end(ns))),
        };
        Some(inside - outside / 2.0 + if is_known { 1.0 } else { 0.0 })
    }

    /// Whether one of the waits ends close to this moment.
    fn has_end(&self, ns: u64) -> bool {
        let next = self.ends_ns.partition_point(|end| *end + ENDS_WITHIN_NS < ns);
        self.ends_ns.get(next).is_some_and(|end| end.abs_diff(ns) <= ENDS_WITHIN_NS)
    }
}
