//! A rank's totals, from the pass over its events or from the processes' counters.

use super::missing::SAMPLED_CYCLE;
use super::pass::{Pass, Recording};
use super::replay::ProcessSums;
use crate::base::reading::Reading;

/// The rank's totals.
pub(crate) struct RankTotals {
    pub allocations: Reading<u64>,
    pub frees: Reading<u64>,
    pub allocated_bytes: Reading<u64>,
    pub peak_bytes: Reading<u64>,
    pub peak_at_ns: Reading<u64>,
    pub live_at_exit_bytes: Reading<u64>,
}

impl RankTotals {
    fn missing(why: &str) -> RankTotals {
        let missing = || Reading::missing(why);
        RankTotals {
            allocations: missing(),
            frees: missing(),
            allocated_bytes: missing(),
            peak_bytes: missing(),
            peak_at_ns: missing(),
            live_at_exit_bytes: missing(),
        }
    }
}

impl Pass<'_> {
    /// The totals, with the reason where there is none.
    pub fn sums(&self) -> RankTotals {
        let at = |time_ns: Option<u64>, unknown: &Reading<u64>| match (time_ns, unknown) {
            (_, Reading::Missing(why)) => Reading::missing(why),
            (Some(time_ns), _) => Reading::Is(self.clock.since_start(time_ns)),
            (None, _) => Reading::missing("nothing was allocated"),
        };
        if self.recording == Recording::Off {
            return RankTotals::missing(self.off());
        }
        if let Some(why) = self.unread() {
            return RankTotals::missing(&why);
        }
        if let (Some(_), Some(why)) = (self.file.part(), self.partial)
            && let Some(interval) = self.interval()
        {
            // The processes' own counters are of their whole lives.
            let (allocations, allocated_bytes) = self.merged.estimates(interval);
            let frees = Reading::missing(SAMPLED_CYCLE);
            return RankTotals { allocations, frees, allocated_bytes, ..RankTotals::missing(why) };
        }
        if let Some(totals) = &self.totals {
            return RankTotals {
                allocations: totals.allocations.clone(),
                frees: totals.frees.clone(),
                allocated_bytes: totals.allocated_bytes.clone(),
                peak_at_ns: at(totals.peak_at_ns, &totals.peak_bytes),
                peak_bytes: totals.peak_bytes.clone(),
                live_at_exit_bytes: totals.live_at_exit_bytes.clone(),
            };
        }
        let sum = |part: fn(&ProcessSums) -> u64| {
            let parts = self.replay.processes.iter().map(part);
            Reading::Is(parts.fold(0, u64::saturating_add))
        };
        let live = |reading: Reading<u64>| match self.partial {
            Some(why) => Reading::missing(why),
            None => reading,
        };
        let peak_bytes = live(Reading::Is(self.replay.peak));
        RankTotals {
            allocations: sum(|process| process.allocations),
            frees: sum(|process| process.frees),
            allocated_bytes: sum(|process| process.bytes),
            peak_at_ns: at(self.replay.peak_at_ns, &peak_bytes),
            peak_bytes,
            live_at_exit_bytes: live(sum(|process| process.live)),
        }
    }
}
