//! A thread's last walk: what has not changed since is not walked again.
//!
//! From a state on (return address, stack pointer, frame pointer) a walk depends on nothing but
//! the words that it reads. So where a walk comes to a state of the last one, and the words that
//! the last one read from there outwards have the values that they had, the rest is the same,
//! exactly. To compare them takes no row, and no load waits for another. Between two allocations
//! most of a stack stays: of cc1's 19.2 frames all but 2.8.
//!
//! A signal handler may walk while this thread does: each walk takes the next number, and what one
//! remembers counts only as long as no other has begun.

use super::frames::Walk;
use crate::block::Thread;
use crate::signal_cell::SignalCell;
use crate::{state, sys};
use core::sync::atomic::{Ordering::*, compiler_fence};
use tprof_wire::record::MAX_FRAMES;

/// Frames that are remembered, the outermost of a stack, and its end.
pub const MAX_KEPT: usize = 96;
/// Stacks that a thread takes before it remembers any: two pages are not worth it before.
const STACKS_BEFORE: u32 = 64;
/// Stacks for which a thread whose stacks have little in common does not remember.
pub const PAUSE: u32 = 1024;
/// Frames that may be walked beyond half of all, before such a pause.
pub const PATIENCE: u32 = 256;

/// The states that a thread remembers of its last walk, from the outermost: the first of them is
/// the stack's end. Places on the stack are bytes below its top, multiples of 8.
#[repr(C)]
pub struct LastWalk {
    /// The number of the walk that began last.
    pub number: SignalCell<usize>,
    /// `number << 16 | len`: how many states that walk left.
    pub valid: SignalCell<usize>,
    /// The top of the stack, and the code generation, that they belong to.
    pub top: SignalCell<usize>,
    pub code: SignalCell<u64>,
    /// See [`PAUSE`] and [`PATIENCE`].
    pub pause: SignalCell<u32>,
    pub patience: SignalCell<u32>,
    /// Bit set of the states with a frame pointer that was read and matters.
    pub links: [SignalCell<u64>; MAX_KEPT.div_ceil(64)],
    /// Stack pointers; the return address lies just below. With [`MARK`] where what lies outwards
    /// depends on the frame pointer.
    pub sp: [SignalCell<u32>; MAX_KEPT],
    pub ra: [SignalCell<u64>; MAX_KEPT],
    /// Hash over a state's frame and all outside of it.
    pub hash: [SignalCell<u64>; MAX_KEPT],
    pub fp: [SignalCell<usize>; MAX_KEPT],
    /// Places where the frame pointers in `links` were read.
    pub fp_at: [SignalCell<u32>; MAX_KEPT],
    /// States of the walk in progress, from the innermost.
    pub steps: [Step; MAX_FRAMES],
}

impl LastWalk {
    /// The last walk of this thread, if it has any.
    #[inline(always)]
    pub fn of(thread: &Thread) -> Option<&LastWalk> {
        // SAFETY: null, or mapped by `map` for this thread, until it ends.
        unsafe { thread.last_walk.get().cast::<LastWalk>().as_ref() }
    }
}

/// The state of a frame in a walk.
#[repr(C)]
pub struct Step {
    pub fp: SignalCell<usize>,
    /// The stack pointer, with [`MARK`] where the caller's frame is found by `fp`; in the upper
    /// half where the caller's frame pointer is saved, 0 if it is still in its register.
    pub places: SignalCell<u64>,
}

impl Step {
    #[inline(always)]
    /// The stack pointer, with [`MARK`].
    pub fn sp(&self) -> u32 {
        self.places.get() as u32
    }

    #[inline(always)]
    /// Place where the caller's frame pointer is saved.
    pub fn saved(&self) -> u32 {
        (self.places.get() >> 32) as u32
    }
}

/// Set in a place on the stack, which is a multiple of 8.
pub const MARK: u32 = 1;

/// The address that places on the stack are counted from: its top, which need not be aligned.
#[inline(always)]
pub fn top(thread: &Thread) -> usize {
    thread.stack_high.get().wrapping_add(7) & !7
}

/// Memory for a thread that takes many stacks.
#[cold]
#[inline(never)]
pub fn map(thread: &Thread) -> Option<()> {
    let is_checked = !state::CHECK_STACKS.load(Relaxed).is_null();
    let is_worth_it = thread.stacks.get() >= STACKS_BEFORE || is_checked;
    if is_worth_it && !thread.is_quiet() && !thread.ended.get() {
        let last = sys::map_anonymous(size_of::<LastWalk>())?;
        // SAFETY: just mapped, zeroed, which every field's type allows.
        unsafe { (*last.cast::<LastWalk>()).patience.set(PATIENCE) };
        thread.last_walk.set(last);
        super::shapes::map();
    }
    None
}

/// This thread is gone: so is what it remembered.
pub fn forget(thread: &Thread) {
    let last = thread.last_walk.get();
    if !last.is_null() {
        thread.last_walk.set(core::ptr::null_mut());
        // SAFETY: mapped by `map`, and used by this thread only, which ends here.
        unsafe { sys::unmap(last, size_of::<LastWalk>()) };
    }
}

/// Writes the frames of the last walk that a walk left out. False if another walk began since.
#[cold]
pub fn complete(thread: &Thread, walk: &mut Walk) -> bool {
    let Some(last) = LastWalk::of(thread) else { return false };
    let kept = last.ra.get(1..=walk.rest).unwrap_or(&[]);
    let new = walk.len - walk.rest;
    for (to, from) in walk.frames.iter_mut().skip(new).zip(kept.iter().rev()) {
        *to = from.get();
    }
    compiler_fence(SeqCst);
    walk.rest = 0;
    last.number.get() == walk.number
}
