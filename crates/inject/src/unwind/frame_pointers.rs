//! Walks a stack by frame pointers only (`--stacks fp`).

use super::ask::ask;
use super::frames::{HashSoFar, Walk};
use super::stack_bounds::{readable, within};
use crate::block::Thread;
use crate::state;
use core::sync::atomic::Ordering::Relaxed;
use tprof_wire::record::StackEnd;

/// Follows frame pointers blindly, inside the stack.
#[cold]
pub fn walk_frame_pointers(thread: &Thread, sp: usize, fp: usize, out: &mut Walk) {
    out.len = 0;
    out.interrupted = false;
    out.end = follow(thread, sp, fp, out);
    let mut hash = HashSoFar::NONE;
    for frame in out.frames.iter().take(out.len) {
        hash.add(*frame);
    }
    out.hash = hash.within(0);
}

/// Why the frames end.
fn follow(thread: &Thread, sp: usize, fp: usize, out: &mut Walk) -> StackEnd {
    if !readable(thread, sp) {
        return StackEnd::OutsideStack;
    }
    // No row is needed, but names are, and the collector must look while the
    // process lives.
    if state::header().is_some_and(|h| h.modules_wanted.load(Relaxed) == 0) {
        ask(thread);
    }
    // SAFETY: checked above.
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
        // SAFETY: aligned, within the readable stack.
        unsafe {
            ra = *((fp + 8) as *const u64);
            fp = *(fp as *const usize);
        }
        if ra == 0 {
            return StackEnd::Whole;
        }
    }
}
