//! Remembers a thread's last walk of its stack, so that the next walk skips the frames that have
//! not changed.
//!
//! From a state on (return address, stack pointer, frame pointer), a walk depends only on the words
//! that it reads. So if a walk reaches a state of the last walk, and the words that the last walk
//! read from there outwards have kept their values, the remaining frames are exactly the same. The
//! comparison needs no unwind rows, and none of its loads waits for another. Most of a stack stays
//! the same between two allocations: in the compiler cc1, all but 2.8 of 19.2 frames.
//!
//! A signal handler may walk the stack while this thread does. So each walk takes the next number,
//! and what a walk remembers counts only as long as no other walk has begun.

use super::frames::Walk;
use crate::block::Thread;
use crate::signal_cell::SignalCell;
use crate::{state, sys};
use core::sync::atomic::{Ordering::*, compiler_fence};
use tprof_wire::record::MAX_FRAMES;

/// Largest number of remembered states: those of the outermost frames, and the stack's end.
pub const MAX_KEPT: usize = 96;
/// Number of stacks that a thread takes before it remembers walks: fewer are not worth two pages of
/// memory.
const STACKS_BEFORE: u32 = 64;
/// Number of stacks for which a thread stops remembering when its stacks have little in common.
pub const PAUSE: u32 = 1024;
/// Maximum number by which walked frames may exceed skipped frames before such a pause.
pub const PATIENCE: u32 = 256;

/// The states that a thread remembers of its last walk, the outermost first. The first one is the
/// stack's end. A place on the stack is its distance below the stack's top in bytes, a multiple of
/// 8.
#[repr(C)]
pub struct LastWalk {
    /// The number of the walk that began last.
    pub number: SignalCell<usize>,
    /// `number << 16 | len`: the number of the walk that saved the states, and how many it saved.
    pub valid: SignalCell<usize>,
    /// The top of the stack that the states are on.
    pub top: SignalCell<usize>,
    /// The code generation, which changes with the code that is loaded.
    pub code: SignalCell<u64>,
    /// The number of stacks that remain of the [`PAUSE`].
    pub pause: SignalCell<u32>,
    /// The number of frames that remain of the [`PATIENCE`].
    pub patience: SignalCell<u32>,
    /// Bit set of the states whose frame pointer was read from the stack and matters outwards.
    pub links: [SignalCell<u64>; MAX_KEPT.div_ceil(64)],
    /// Stack pointers. The return address lies just below each. [`MARK`] is set if the frames
    /// outside of a state depend on its frame pointer.
    pub sp: [SignalCell<u32>; MAX_KEPT],
    /// Return addresses of the frames.
    pub ra: [SignalCell<u64>; MAX_KEPT],
    /// Hash of a state's frame and all frames outside of it.
    pub hash: [SignalCell<u64>; MAX_KEPT],
    /// Frame pointers of the frames.
    pub fp: [SignalCell<usize>; MAX_KEPT],
    /// Places from which the frame pointers in `links` were read.
    pub fp_at: [SignalCell<u32>; MAX_KEPT],
    /// States of the walk in progress, from the innermost.
    pub steps: [Step; MAX_FRAMES],
}

impl LastWalk {
    /// Returns the last walk of this thread; `None` if [`map`] has not mapped memory for it.
    #[inline(always)]
    pub fn of(thread: &Thread) -> Option<&LastWalk> {
        // SAFETY: the pointer is null, or `map` mapped it for this thread; it is unmapped only when
        // the thread ends.
        unsafe { thread.last_walk.get().cast::<LastWalk>().as_ref() }
    }
}

/// The state of a frame in a walk.
#[repr(C)]
pub struct Step {
    pub fp: SignalCell<usize>,
    /// The lower half is the stack pointer, with [`MARK`] if the caller's frame is found by `fp`.
    /// The upper half is the place where the caller's frame pointer is saved, or 0 if it is still
    /// in its register.
    pub places: SignalCell<u64>,
}

impl Step {
    #[inline(always)]
    /// Returns the stack pointer, with its [`MARK`].
    pub fn sp(&self) -> u32 {
        self.places.get() as u32
    }

    #[inline(always)]
    /// Returns the place where the caller's frame pointer is saved, or 0 if it is in its register.
    pub fn saved(&self) -> u32 {
        (self.places.get() >> 32) as u32
    }
}

/// Flag in the lowest bit of a place on the stack. The bit is free, as places are multiples of 8.
pub const MARK: u32 = 1;

/// Returns the address from which places on the stack are counted: the stack's top, rounded up to a
/// multiple of 8 because it need not be aligned.
#[inline(always)]
pub fn top(thread: &Thread) -> usize {
    thread.stack_high.get().wrapping_add(7) & !7
}

/// Maps memory for a thread that takes many stacks.
#[cold]
#[inline(never)]
pub fn map(thread: &Thread) -> Option<()> {
    let is_checked = !state::CHECK_STACKS.load(Relaxed).is_null();
    let is_worth_it = thread.stacks.get() >= STACKS_BEFORE || is_checked;
    if is_worth_it && !thread.is_quiet() && !thread.ended.get() {
        let last = sys::map_anonymous(size_of::<LastWalk>())?;
        // SAFETY: the memory was just mapped. It is zeroed, and zero is valid for every field.
        unsafe { (*last.cast::<LastWalk>()).patience.set(PATIENCE) };
        thread.last_walk.set(last);
        super::shapes::map();
    }
    None
}

/// Unmaps the memory that `map` mapped for a thread that is about to end.
pub fn forget(thread: &Thread) {
    let last = thread.last_walk.get();
    if !last.is_null() {
        thread.last_walk.set(core::ptr::null_mut());
        // SAFETY: `map` mapped the memory, and only this thread uses it, which ends here.
        unsafe { sys::unmap(last, size_of::<LastWalk>()) };
    }
}

/// Appends to a walk the frames that it skipped, from the last walk. Returns false if another walk
/// has begun since, which may have overwritten them.
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
