//! Whether ranks hang, for a collector that watches them.

use crate::state::{HostState, RankState};
use crate::verdict::Verdict;
use tprof_facts::units;

impl RankState {
    /// Whether no step and no operation between ranks was recorded for this long, and the rank did
    /// nothing else.
    fn is_quiet(&self, limit_ns: u64) -> bool {
        self.quiet_ns().is_none_or(|quiet_ns| quiet_ns >= limit_ns)
            && self.idle_ns.is_none_or(|idle_ns| idle_ns >= limit_ns)
    }
}

/// Whether these ranks hang: one had steps or operations between ranks, and none that has not ended
/// does anything.
pub fn hang<'s>(ranks: impl Iterator<Item = &'s RankState>, limit_ns: u64) -> bool {
    let live: Vec<&RankState> = ranks.filter(|rank| rank.end.is_none()).collect();
    live.iter().any(|rank| rank.quiet_ns().is_some())
        && live.iter().all(|rank| rank.is_quiet(limit_ns))
}

impl Verdict {
    /// Says that the job hung, and why.
    pub fn of_hang(&self, after_ns: u64) -> String {
        let (after, kind) = (units::duration(after_ns), self.kind.words());
        format!("the job hung for {after}: {kind}: {}", self.text)
    }
}

impl HostState {
    /// Whether the host's ranks hang.
    pub fn hangs(&self, limit_ns: u64) -> bool {
        hang(self.ranks.iter(), limit_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{RankEnd, StepState};

    const MINUTE: u64 = 60_000_000_000;

    fn rank(step_age_ns: Option<u64>, idle_ns: u64) -> RankState {
        let step = step_age_ns.map(|age_ns| StepState { age_ns, ..StepState::default() });
        RankState { step, idle_ns: Some(idle_ns), ..RankState::default() }
    }

    #[test]
    fn ranks_hang_if_none_does_anything_for_long_enough() {
        let of = |ranks: &[RankState]| {
            HostState { ranks: ranks.to_vec(), ..HostState::default() }.hangs(MINUTE)
        };
        let hangs = rank(Some(2 * MINUTE), MINUTE);
        assert!(of(&[hangs.clone(), hangs.clone()]));
        assert!(of(&[hangs.clone(), rank(None, MINUTE)]));
        assert!(!of(&[hangs.clone(), rank(Some(2 * MINUTE), 5)]), "one evaluates");
        assert!(!of(&[hangs.clone(), rank(Some(5), MINUTE)]), "one steps");
        assert!(!of(&[rank(None, 9 * MINUTE)]), "nothing was recorded yet");
        let ended = RankState { end: Some(RankEnd::default()), ..rank(Some(5), 5) };
        assert!(of(&[hangs, ended.clone()]) && !of(&[ended]));
    }
}
