//! Measures what recording operators costs a thread, and leaves some out where that is too much.
//!
//! Under [`mode::AUTO`] operators take at most a hundredth of a thread's time: where those of all
//! steps take more, [turns](super::step_sampling) are taken. Of each 32nd operator the ticks of its callbacks are read;
//! PyTorch's own part, which it has only while a callback is enabled, is three times as much
//! (docs/operators.md). The steps of a schedule are few, and recorded whole whatever that takes.

use super::open::OpenOperators;
use super::step_sampling;
use crate::block::Thread;
use crate::{arch, pytorch_registration, ring, schedule, state};
use core::sync::atomic::Ordering::Relaxed;
use tprof_wire::operators::{mode, note};
use tprof_wire::record::ExtKind;

/// One of this many operators is measured.
const EACH: u64 = 32;
/// Operators after which the share is computed.
const WINDOW: u64 = 1 << 13;
/// Operators after which the share is computed where steps are sampled and the recorded one is
/// over: fewer tell little.
const ENOUGH: u64 = 1 << 8;
/// The operators' share of the thread's time is one in this.
const SHARE: u64 = 100;
/// PyTorch's part and ours, in terms of ours.
const PARTS: u64 = 4;
/// A callback that takes longer, some 10 us, was interrupted, or waited for the collector, which
/// is counted by itself.
const LONGEST: u64 = 1 << 15;
/// One step in so many is recorded at least.
const FEWEST: u64 = 1000;

/// The clock, if the operator that begins is measured; else 0.
#[inline(always)]
pub fn begins(thread: &Thread, open: &OpenOperators) -> u64 {
    if !open.count.get().is_multiple_of(EACH) {
        return 0;
    }
    let clock = thread.clock();
    if open.turn.get() != step_sampling::recorded_step() {
        next_turn(thread, open);
    }
    if open.since.get() == 0 {
        open.since.set(clock);
    }
    clock
}

/// The first operator of another recorded step: what was measured in the last one is judged.
#[cold]
#[inline(never)]
fn next_turn(thread: &Thread, open: &OpenOperators) {
    if open.count.get() >= ENOUGH {
        judge(thread, open, open.last.get());
    }
    for word in [&open.count, &open.ticks, &open.since] {
        word.set(0);
    }
    open.turn.set(step_sampling::recorded_step());
}

/// Called when the callback for the beginning of a measured operator is done.
#[inline(always)]
pub fn measured(thread: &Thread, open: &OpenOperators, began: u64) {
    if began != 0 {
        took(thread, open, began);
    }
}

/// Adds what one of [`EACH`] callbacks took since this clock.
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

/// An operator's end was recorded, of this clock.
#[inline(always)]
pub fn ends(thread: &Thread, open: &OpenOperators, clock: u64) {
    let count = open.count.get();
    if count.is_multiple_of(EACH) {
        took(thread, open, clock);
    }
    open.count.set(count + 1);
    if count + 1 >= WINDOW {
        judge(thread, open, clock);
    }
}

#[cold]
#[inline(never)]
fn judge(thread: &Thread, open: &OpenOperators, now: u64) {
    let elapsed = now.saturating_sub(open.since.get());
    let taken = open.ticks.get() * EACH * PARTS;
    for word in [&open.count, &open.ticks, &open.since] {
        word.set(0);
    }
    if state::OPERATORS.load(Relaxed) != mode::AUTO
        || elapsed == 0
        || schedule::is_followed()
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
