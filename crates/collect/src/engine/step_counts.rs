//! Counts the steps of PyTorch jobs on request, with the same numbers in all processes.
//!
//! While recording is off in the session, PyTorch calls no callback of the injected library, so the
//! updates of optimizers aren't counted. `tprof ctl start --steps` makes the processes count. Each
//! begins to count at another moment, so their numbers differ at first. Processes that take their
//! steps together begin each step at about the same time. So the numbers of a process are shifted
//! until steps of the same time have the same number.

use super::inbox::Reply;
use super::main_loop::Engine;
use crate::schedule::SOURCES;
use crate::targets::boundaries::Boundaries;
use crate::targets::own_switch::ScheduleOrigin;
use crate::targets::target::{Target, Targets};
use tprof_os::sys;
use tprof_wire::schedule::Schedule;

/// Number of steps that the first process must have counted before others are compared with it.
const LEAD: usize = 5;
/// Counting ends if nobody has asked for steps for this long.
const UNASKED_NS: u64 = 30_000_000_000;
const COMMAND: &str = "tprof ctl";

impl Engine {
    /// Makes processes count steps if they don't yet, and returns what to reply until they count
    /// alike; `None` once steps can be requested by their numbers.
    pub(super) fn count_steps(&mut self) -> Option<Reply> {
        let must_ask = self.targets.values().any(|target| target.counts_only_if_asked())
            && !self.targets.values().any(|target| target.always_counts());
        if !must_ask || self.recording.steps.is_some() {
            return None;
        }
        let now = sys::monotonic_ns();
        let began = self.recording.counted_ns.replace(now).is_none();
        if began {
            self.targets.values_mut().for_each(Target::forget_steps);
            self.apply_counting(now);
        }
        let waits = began || !is_aligned(&self.targets);
        waits.then(|| Reply {
            waits: true,
            ..Reply::new(
                false,
                format!("no process of the run has made {LEAD} steps yet; {SOURCES}"),
            )
        })
    }

    /// Returns the last steps that have been counted on request: number, and time in nanoseconds
    /// since 1970. Empty if steps aren't counted so.
    pub(super) fn counted_steps(&self) -> Vec<(u64, u64)> {
        if self.recording.counted_ns.is_none() {
            return Vec::new();
        }
        let (start_ns, start_unix_ns) = (self.parts.info.start_ns, self.parts.info.start_unix_ns);
        let of_day = |time_ns: u64| start_unix_ns.wrapping_add(time_ns).wrapping_sub(start_ns);
        let longest = counted(&self.targets).max_by_key(|(_, of)| (of.is_aligned, of.len()));
        let steps = longest.map(|(_, of)| of.steps().map(|(n, ns)| (n, of_day(ns))).collect());
        steps.unwrap_or_default()
    }

    /// The schedule of processes while no steps are requested.
    pub(super) fn counting(&self) -> Schedule {
        Schedule { boundaries: self.recording.counted_ns.is_some(), ..Schedule::COUNT }
    }

    pub(super) fn apply_counting(&mut self, now: u64) {
        let (schedule, by) =
            (self.counting(), ScheduleOrigin { command: COMMAND, ..self.recording.by() });
        for target in self.targets.values_mut() {
            target.schedule(schedule, by, &mut self.out, now);
            target.notice_steps(schedule.boundaries);
        }
    }

    /// Ends counting, except for requested steps.
    pub(super) fn end_counting(&mut self) {
        if self.recording.counted_ns.take().is_some() && self.recording.steps.is_none() {
            self.apply_counting(sys::monotonic_ns());
        }
    }

    /// Makes the counts of processes agree that have begun to count.
    pub(super) fn align_steps(&mut self, now: u64) {
        let Some(asked_ns) = self.recording.counted_ns else { return };
        align(&mut self.targets);
        if self.recording.steps.is_none() && now.saturating_sub(asked_ns) > UNASKED_NS {
            self.end_counting();
        }
    }
}

/// The steps that each live process has counted.
fn counted(targets: &Targets) -> impl Iterator<Item = (u64, &Boundaries)> {
    let live = targets.iter().filter(|(_, target)| target.end.is_none());
    live.map(|(number, target)| (*number, target.counted_steps()))
}

/// Whether processes count steps, and all of them alike.
fn is_aligned(targets: &Targets) -> bool {
    let mut all = counted(targets).filter(|(_, of)| of.len() > 0).peekable();
    all.peek().is_some() && all.all(|(_, of)| of.is_aligned)
}

/// Shifts the counts of processes that don't agree with the others yet.
fn align(targets: &mut Targets) {
    let longest = counted(targets).max_by_key(|(_, of)| (of.is_aligned, of.len()));
    let Some((lead, boundaries)) = longest.filter(|(_, of)| of.len() >= LEAD) else { return };
    let shifts = counted(targets).filter(|(_, of)| !of.is_aligned).filter_map(|(number, of)| {
        Some((number, if number == lead { 0 } else { of.shift_to(boundaries)? }))
    });
    for (number, shift) in shifts.collect::<Vec<_>>() {
        if let Some(target) = targets.get_mut(&number) {
            target.shift_steps(shift);
        }
    }
}
