//! Measures what share of a thread's time is spent on recording operators, and records fewer steps
//! if the share is too large.
//!
//! Under [`mode::AUTO`], and once `--budget` demands it ([`thinned::OPERATORS_OF_ALL_STEPS`]),
//! recording operators may cost at most a 200th of a thread's time. If recording all steps costs
//! more, only [some steps](super::step_sampling) are recorded. The ticks of tprof's callbacks are
//! measured for each 32nd operator. PyTorch's own part, which exists only
//! while a callback is enabled, costs five times as much (docs/operators.md). If a schedule
//! chooses the steps, they are few, and are all recorded at any cost.

use super::open::OpenOperators;
use super::step_sampling;
use crate::block::Thread;
use crate::{arch, pytorch_registration, ring, schedule, state};
use tprof_wire::operators::{mode, note};
use tprof_wire::record::ExtKind;
use tprof_wire::region::thinned;
use tprof_wire::sync::Ordering::Relaxed;

/// One in this many operators is measured.
const EACH: u64 = 32;
/// Number of recorded operators after which the share is computed, over as many recorded steps as
/// they take. With fewer operators, a single slow callback would have too much weight.
const WINDOW: u64 = 1 << 13;
/// The share of a thread's time that operators may cost: one part in this many.
const SHARE: u64 = 200;
/// The cost of PyTorch's and tprof's parts together, as a multiple of tprof's part.
const PARTS: u64 = 6;
/// A callback that takes longer, about 10 us, was interrupted or waited for the collector. Waits
/// are counted separately.
const LONGEST: u64 = 1 << 15;
/// One step in this many is recorded at the least. Recording all operators can't cost more than half
/// of a thread's time, so this always meets the share.
const FEWEST: u64 = 100;

/// Returns the clock if the operator that is beginning is measured, otherwise 0.
#[inline(always)]
pub fn begins(thread: &Thread, open: &OpenOperators) -> u64 {
    if !open.count.get().is_multiple_of(EACH) {
        return 0;
    }
    let clock = thread.clock();
    notice_turn(open, clock);
    clock
}

/// Begins the time of a recorded step in a window, if this measured operator is the first of it.
fn notice_turn(open: &OpenOperators, clock: u64) {
    if open.turn.get() != step_sampling::recorded_step() {
        next_turn(open);
    }
    if open.since.get() == 0 {
        open.since.set(clock);
    }
}

/// Called at the first measured operator of another recorded step. The time between two recorded
/// steps doesn't count, since nothing was recorded then.
#[cold]
#[inline(never)]
fn next_turn(open: &OpenOperators) {
    if open.since.get() != 0 {
        let lasted = open.last.get().saturating_sub(open.since.get());
        open.before.set(open.before.get() + lasted);
    }
    open.since.set(0);
    open.turn.set(step_sampling::recorded_step());
}

/// Called when the callback for the beginning of a measured operator is done.
#[inline(always)]
pub fn measured(thread: &Thread, open: &OpenOperators, began: u64) {
    if began != 0 {
        took(thread, open, began);
    }
}

/// Adds the ticks since `since`, which is when the callback of a measured operator began.
#[cold]
#[inline(never)]
fn took(thread: &Thread, open: &OpenOperators, since: u64) {
    let now = thread.clock();
    open.last.set(now);
    let ticks = now.saturating_sub(since);
    if ticks < LONGEST {
        open.ticks.set(open.ticks.get() + ticks);
        arch::add_local(&thread.slot().operator_ticks, ticks * EACH);
    }
}

/// Called when an operator's end was recorded at this clock.
#[inline(always)]
pub fn ends(thread: &Thread, open: &OpenOperators, clock: u64) {
    let count = open.count.get();
    if count.is_multiple_of(EACH) {
        // An operator in which others were called may be measured at its end, but not at its
        // beginning, so a recorded step may begin with an end.
        notice_turn(open, clock);
        took(thread, open, clock);
    }
    open.count.set(count + 1);
    if count + 1 >= WINDOW {
        notice_turn(open, clock);
        judge(thread, open, clock);
    }
}

#[cold]
#[inline(never)]
fn judge(thread: &Thread, open: &OpenOperators, now: u64) {
    let elapsed = open.before.get() + now.saturating_sub(open.since.get());
    let taken = open.ticks.get() * EACH * PARTS;
    for word in [&open.count, &open.ticks, &open.since, &open.before] {
        word.set(0);
    }
    let is_limited = state::OPERATORS.load(Relaxed) == mode::AUTO
        || state::is_thinned(thinned::OPERATORS_OF_ALL_STEPS);
    if !is_limited
        || elapsed == 0
        || schedule::chooses_steps()
        || !pytorch_registration::can_pause()
    {
        return;
    }
    let every = taken.saturating_mul(SHARE).div_ceil(elapsed).clamp(1, FEWEST);
    if step_sampling::set_every(every as u32) {
        let millionths = taken.saturating_mul(1_000_000) / elapsed;
        ring::ext(thread, ExtKind::OperatorNote, note::TURNS, now, &[every, millionths]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::open;
    use crate::testing::Attached;

    #[test]
    fn time_between_recorded_steps_does_not_count() {
        let attached = Attached::new();
        let thread = attached.thread();
        let open = open::of(thread).unwrap();
        let elapsed = |now: u64| open.before.get() + now - open.since.get();
        // The first step ends between two measured operators.
        for clock in 1_000..1_000 + EACH {
            begins(thread, open);
            ends(thread, open, clock);
        }
        open.since.set(1_000);
        open.last.set(1_500);
        open.turn.set(step_sampling::recorded_step().wrapping_sub(1));
        // The next one begins with operators around others: only an end is measured.
        ends(thread, open, 1_000_000);
        assert_eq!(open.turn.get(), step_sampling::recorded_step());
        assert_eq!(elapsed(1_000_100), 500 + 100);
    }
}
