//! What recording operators costs a thread, and the end of it where that is too much.
//!
//! Under [`mode::AUTO`] operators are recorded as long as they take at most a hundredth of a
//! thread's time. Of each 32nd operator the ticks of its callbacks are read; PyTorch's own part,
//! which it has only while a callback is registered, is three times as much (docs/operators.md).

use super::open::OpenOperators;
use crate::block::Thread;
use crate::{arch, arming, ring, state};
use core::sync::atomic::Ordering::Relaxed;
use tprof_wire::operators::{mode, note};
use tprof_wire::record::ExtKind;

/// Of so many operators one is measured.
const EACH: u64 = 32;
/// Operators after which the share is computed.
const WINDOW: u64 = 1 << 13;
/// Their share of the thread's time is one in this.
const SHARE: u64 = 100;
/// PyTorch's part and ours, in terms of ours.
const PARTS: u64 = 4;
/// A callback that takes longer, some 10 us, was interrupted, or waited for the collector, which
/// is counted by itself.
const LONGEST: u64 = 1 << 15;

/// The clock, if the operator that begins is measured; else 0.
#[inline(always)]
pub fn begins(thread: &Thread, open: &OpenOperators) -> u64 {
    if !open.count.get().is_multiple_of(EACH) {
        return 0;
    }
    let clock = thread.clock();
    if open.since.get() == 0 {
        open.since.set(clock);
    }
    clock
}

/// Its beginning is over.
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
    let ticks = thread.clock().saturating_sub(since);
    if ticks < LONGEST {
        open.ticks.set(open.ticks.get() + ticks);
        arch::add_local(&thread.slot().operator_ticks, ticks * EACH);
    }
}

/// An operator's end was recorded, which began then.
#[inline(always)]
pub fn ends(thread: &Thread, open: &OpenOperators, began: u64) {
    let count = open.count.get();
    if count.is_multiple_of(EACH) {
        took(thread, open, began);
    }
    open.count.set(count + 1);
    if count + 1 >= WINDOW {
        judge(thread, open, began);
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
    if state::OPERATORS.load(Relaxed) == mode::AUTO
        && taken.saturating_mul(SHARE) > elapsed
        && arming::disable_for_good()
    {
        let words = [taken, elapsed];
        ring::ext(thread, ExtKind::OperatorNote, note::OVER_BUDGET, now, &words);
    }
}
