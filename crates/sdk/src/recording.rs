//! Whether this process records, marks, and steps.

#![allow(unsafe_code)]

use crate::name::Name;
use crate::table::table;

/// Whether this process is recorded at this moment: by tprof, or by another tool through NVTX.
pub fn is_recording() -> bool {
    match table() {
        // SAFETY: it takes nothing.
        Some(table) => unsafe { (table.is_recording)() != 0 },
        None => false,
    }
}

/// Switches recording of this process on, at once; whether it records then. What `tprof run
/// --paused`, `--delay` or `tprof ctl stop` switched off stays off.
pub fn start_recording() -> bool {
    record(1)
}

/// Switches recording of this process off, at once, until [`start_recording`]. Spans that have
/// begun are recorded to their ends. Where recording is off for a part of a run, totals of the
/// heap have a gap, which reports state.
pub fn stop_recording() {
    record(0);
}

fn record(on: i32) -> bool {
    match table() {
        // SAFETY: any number may be passed.
        Some(table) => unsafe { (table.record)(on) != 0 },
        None => false,
    }
}

/// An instant: what [`mark!`](crate::mark!) calls.
#[inline(always)]
pub fn mark_at(name: &'static Name) {
    mark_of(name);
}

/// An instant of a name that is made at run time. [`mark!`](crate::mark!) costs less.
pub fn mark(name: &str) {
    mark_of(&Name::for_a_call(name));
}

#[inline(always)]
fn mark_of(name: &Name) {
    if let Some(table) = table() {
        // SAFETY: a name that outlives the call.
        unsafe { (table.mark)(name) };
    }
}

/// A training step of this number begins, which lasts until the next one does: what `tprof report
/// steps`, `--steps` and comparisons of runs go by. Numbers may begin anywhere and go backwards.
#[inline]
pub fn step(number: u64) {
    // The largest stands for no number.
    step_of(number.min(u64::MAX - 1));
}

/// A training step begins, as by [`step`], of the next number from 0.
#[inline]
pub fn next_step() {
    step_of(u64::MAX);
}

fn step_of(number: u64) {
    if let Some(table) = table() {
        // SAFETY: any number may be passed.
        unsafe { (table.step)(number) };
    }
}
