//! Switches recording, and records marks and steps.

#![allow(unsafe_code)]

use crate::name::Name;
use crate::table::table;

/// Whether this process is being recorded, by tprof or by another tool through NVTX.
pub fn is_recording() -> bool {
    match table() {
        // SAFETY: the function has no arguments, and any thread may call it.
        Some(table) => unsafe { (table.is_recording)() != 0 },
        None => false,
    }
}

/// Switches recording of this process on immediately. Returns whether the process is recorded from
/// then on. Recording stays off if `tprof run --paused`, `--delay` or `tprof ctl stop` switched it
/// off.
pub fn start_recording() -> bool {
    record(1)
}

/// Switches recording of this process off immediately, until [`start_recording`]. Spans that have
/// begun are recorded to their ends. If recording is off for a part of a run, heap totals have a
/// gap, and reports say so.
pub fn stop_recording() {
    record(0);
}

fn record(on: i32) -> bool {
    match table() {
        // SAFETY: the function takes 0 or 1, and any thread may call it.
        Some(table) => unsafe { (table.record)(on) != 0 },
        None => false,
    }
}

/// Records an instant. [`mark!`](crate::mark!) calls it.
#[inline(always)]
pub fn mark_at(name: &'static Name) {
    mark_of(name);
}

/// Records an instant whose name is created at run time. [`mark!`](crate::mark!) costs less.
pub fn mark(name: &str) {
    mark_of(&Name::for_a_call(name));
}

#[inline(always)]
fn mark_of(name: &Name) {
    if let Some(table) = table() {
        // SAFETY: the reference keeps the name and its text alive during the call.
        unsafe { (table.mark)(name) };
    }
}

/// Begins a training step with this number, which lasts until the next one begins. `tprof report
/// steps`, `--steps` and comparisons of runs use these steps. Numbers may begin anywhere and may go
/// backwards.
#[inline]
pub fn step(number: u64) {
    // For tprof, the largest number means "the next number", so it can't be passed on.
    step_of(number.min(u64::MAX - 1));
}

/// Begins a training step like [`step`], with the next number, from 0.
#[inline]
pub fn next_step() {
    step_of(u64::MAX);
}

fn step_of(number: u64) {
    if let Some(table) = table() {
        // SAFETY: the function takes any number, and any thread may call it.
        unsafe { (table.step)(number) };
    }
}
