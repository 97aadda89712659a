//! Walks a stack by frame pointers only (`--stacks fp`).

use super::ask::{ask_for_mappings, forget_patience};
use super::frames::{HashSoFar, Walk, outermost};
use super::stack_bounds::{readable, within};
use super::tables::{RowSearch, search};
use super::{loaded_rows, rows};
use crate::block::Thread;
use crate::state;
use core::sync::atomic::Ordering::Relaxed;
use tprof_wire::record::StackEnd;
use tprof_wire::region::stack_mode;

/// Walks by frame pointers within the stack, without using rows to check them.
#[cold]
pub fn walk_frame_pointers(thread: &Thread, sp: usize, fp: usize, out: &mut Walk) {
    out.len = 0;
    out.interrupted = false;
    let code = rows::code();
    out.end = follow(thread, sp, fp, out);
    let mut hash = HashSoFar::NONE;
    for frame in out.frames.iter().take(out.len) {
        hash.add(*frame);
    }
    out.hash = hash.within(outermost(code));
}

/// Makes the collector read the mappings of the code in a stack that is being defined, while that
/// code is loaded. Names need this, and a walk by frame pointers has not asked for rows. Addresses
/// that are not code are left out, since a function may use the frame pointer's register for
/// anything.
pub fn know_code(thread: &Thread, walk: &Walk) {
    if state::STACK_MODE.load(Relaxed) != stack_mode::FP {
        return;
    }
    let quiet = thread.is_quiet();
    for pc in walk.frames.iter().take(walk.len).map(|frame| frame.wrapping_sub(1)) {
        let is_unknown = || matches!(search(pc, quiet, false), RowSearch::Unknown);
        let is_code = || !loaded_rows::can_find() || loaded_rows::find(pc).is_some();
        if is_unknown() && is_code() && ask_for_mappings(thread) && !is_unknown() {
            forget_patience();
        }
    }
}

/// Follows frame pointers and stores the frames. Returns how the walk ends.
fn follow(thread: &Thread, sp: usize, fp: usize, out: &mut Walk) -> StackEnd {
    if !readable(thread, sp) {
        return StackEnd::OutsideStack;
    }
    // SAFETY: `readable` has just checked the word at `sp`, which is aligned.
    let mut ra = unsafe { *(sp as *const u64) };
    let mut fp = fp;
    let mut low = sp;
    loop {
        let Some(place) = out.frames.get_mut(out.len) else { return StackEnd::TooDeep };
        *place = ra;
        out.len += 1;
        if fp == 0 {
            return StackEnd::Whole;
        }
        if fp <= low || fp & 7 != 0 || !within(thread, fp, fp.wrapping_add(16)) {
            return StackEnd::OutsideStack;
        }
        low = fp;
        // SAFETY: `fp` is aligned, and both words are within the readable stack.
        unsafe {
            ra = *((fp + 8) as *const u64);
            fp = *(fp as *const usize);
        }
        if ra == 0 {
            return StackEnd::Whole;
        }
    }
}
