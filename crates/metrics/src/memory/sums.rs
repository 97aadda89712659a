//! Computes a rank's totals from the pass over its events, or from the processes' counters under
//! `--mem sampled`.

use tprof_rank::base::reading::Reading;
use tprof_trace::FilePart;
use tprof_trace::model::{MemoryRecording, ProcessIndex};

use super::heap_within::heap_within;
use super::held_within::HeldWindow;
use super::missing::{CYCLE, NO_TIME, SAMPLED_CYCLE, never_on};
use super::pass::{Pass, Recording};
use super::replay::ProcessSums;

/// The totals of a rank.
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
    /// Returns the totals; a total that is unknown has its reason.
    pub fn sums(&self) -> RankTotals {
        let at = |time_ns: Option<u64>, unknown: &Reading<u64>| match (time_ns, unknown) {
            (_, Reading::Missing(why)) => Reading::missing(why),
            (Some(time_ns), _) => Reading::Is(self.clock.since_start(time_ns)),
            (None, _) => Reading::missing("nothing was allocated"),
        };
        if self.recording == Recording::Off {
            return RankTotals::missing(self.off());
        }
        if let Some(why) = never_on(self.file).or_else(|| self.why_unread()) {
            return RankTotals::missing(&why);
        }
        if self.file.part().is_some()
            && let Some(interval) = self.interval()
        {
            // The processes' own counters cover their whole lives, not only the cycle.
            let (allocations, allocated_bytes) = self.merged.estimates(interval);
            let frees = Reading::missing(SAMPLED_CYCLE);
            let (peak_bytes, mut live_at_exit_bytes) = self.within_part();
            let lasts = |part: &FilePart| part.recorded_ns.iter().any(|(_, to)| *to == u64::MAX);
            if self.file.part().is_some_and(lasts)
                && let Some(totals) = &self.totals
            {
                // Such a part ends with the processes, whose counters know what they left.
                live_at_exit_bytes = totals.live_at_exit_bytes.clone();
            }
            return RankTotals {
                allocations,
                frees,
                allocated_bytes,
                peak_bytes,
                live_at_exit_bytes,
                ..RankTotals::missing(NO_TIME)
            };
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
        let live = |reading: Reading<u64>| match &self.partial {
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

    /// Returns the highest live bytes in the part that is read, and the live bytes at its end.
    /// Processes that ran at the same time need not have had their peaks at the same time: the peak
    /// of all lies between the highest of their peaks and the sum of their peaks.
    fn within_part(&self) -> (Reading<u64>, Reading<u64>) {
        let recorded = self.file.part().map_or(&[][..], |part| &part.recorded_ns);
        let processes =
            self.file.processes().iter().filter(|one| one.memory != MemoryRecording::Off);
        let processes: Vec<ProcessIndex> = processes.map(|one| one.process).collect();
        let window = |process: ProcessIndex, start_ns: u64, end_ns: u64| HeldWindow {
            process,
            start_ns,
            end_ns: end_ns.min(self.end_ns),
        };
        let mut windows: Vec<HeldWindow> = Vec::new();
        let last_ns = recorded.iter().map(|(_, to_ns)| (*to_ns).min(self.end_ns)).max();
        for process in &processes {
            windows.extend(recorded.iter().map(|(from, to)| window(*process, *from, *to)));
            // This window is to find the live bytes at the end. A window begins with the level at
            // its start. At the last time itself, that could still be a level by samples, so the
            // window starts one nanosecond later, when the known reading has replaced it.
            let after = last_ns.map(|at_ns| at_ns.saturating_add(1));
            windows.extend(after.map(|at_ns| HeldWindow {
                process: *process,
                start_ns: at_ns,
                end_ns: at_ns,
            }));
        }
        let held = heap_within(self.file, &windows);
        let (mut highest, mut sum, mut at_end) = (Reading::Is(0), Reading::Is(0), Reading::Is(0));
        for of_process in held.chunks(recorded.len() + 1) {
            let [within @ .., last] = of_process else { continue };
            let most = within.iter().cloned().reduce(|most, held| most.or_higher(&held));
            let most = most.map_or(Reading::missing(CYCLE), |held| held.peak_bytes);
            highest = match (highest.get(), most.get()) {
                (Some(so_far), Some(bytes)) if bytes <= so_far => highest,
                _ => most.clone(),
            };
            sum = sum.plus(most);
            at_end = at_end.plus(last.peak_bytes.clone());
        }
        let most = |reading: &Reading<u64>| {
            Some(reading.get()?.saturating_add(reading.error().copied().unwrap_or(0)))
        };
        let peak = match (highest.get(), most(&sum)) {
            (Some(value), Some(most)) if most > value => {
                Reading::Estimate { value, error: most - value }
            }
            (Some(value), Some(_)) => Reading::Is(value),
            _ => sum,
        };
        (peak, at_end)
    }
}
