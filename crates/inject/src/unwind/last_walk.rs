//! Stores the last walk of a thread's stack, so that the thread's next walk skips the frames that
//! have not changed.
//!
//! A state is a return address, a stack pointer and a frame pointer. From a state on, a walk
//! depends only on the words that it reads. So suppose that a walk reaches a state of the last
//! walk, and that the words which the last walk read from there outwards are unchanged. Then the
//! remaining frames are the same.
//!
//! The comparison of these words needs no unwind rows, and none of its loads depends on another.
//! Most of a stack stays the same between two allocations: in the compiler cc1, all but 2.8 of 19.2
//! frames.
//!
//! A signal handler may walk the stack while this thread does. So each walk gets a new number, and
//! what a walk stores is valid only until another walk begins.

use super::frames::Walk;
use crate::block::Thread;
use crate::signal_cell::SignalCell;
use crate::{state, sys};
use tprof_wire::record::MAX_FRAMES;
use tprof_wire::sync::{Ordering::*, compiler_fence};

/// Maximum number of stored states: those of the outermost frames, and the stack's end.
pub const MAX_KEPT: usize = 96;
/// Number of stacks that a thread takes before its walks are stored. For fewer stacks, this isn't
/// worth two pages of memory.
const STACKS_BEFORE: u32 = 64;
/// If a thread's stacks have little in common, walks are not stored for this many stacks.
pub const PAUSE: u32 = 1024;
/// Such a pause begins when the walked frames exceed the skipped frames by this number.
pub const PATIENCE: u32 = 256;

/// The states of a thread's last walk, the outermost first. The first one is the stack's end. A
/// place on the stack is stored as its distance in bytes below the stack's top, which is a multiple
/// of 8.
#[repr(C)]
pub struct LastWalk {
    /// The number of the walk that began last.
    pub number: SignalCell<usize>,
    /// `number << 16 | len`: the number of the walk whose states these are, and the number of
    /// states.
    pub valid: SignalCell<usize>,
    /// The top of the stack that the states are on.
    pub top: SignalCell<usize>,
    /// The code generation at that walk. It changes whenever code is unloaded.
    pub code: SignalCell<u64>,
    /// The number of stacks that remain of a [`PAUSE`].
    pub pause: SignalCell<u32>,
    /// The number of frames that remain of [`PATIENCE`].
    pub patience: SignalCell<u32>,
    /// Bit set of the states whose frame pointer was read from the stack and is needed for outer
    /// frames.
    pub links: [SignalCell<u64>; MAX_KEPT.div_ceil(64)],
    /// Stack pointers of the states. The return address is just below each. [`MARK`] is set if the
    /// outer frames depend on the state's frame pointer.
    pub sp: [SignalCell<u32>; MAX_KEPT],
    /// Return addresses of the frames.
    pub ra: [SignalCell<u64>; MAX_KEPT],
    /// Hash of a state's frame together with all outer frames.
    pub hash: [SignalCell<u64>; MAX_KEPT],
    /// Frame pointers of the frames.
    pub fp: [SignalCell<usize>; MAX_KEPT],
    /// For the states in `links`, the places from which their frame pointers were read.
    pub fp_at: [SignalCell<u32>; MAX_KEPT],
    /// States of the walk that is in progress, the innermost first.
    pub steps: [Step; MAX_FRAMES],
}

impl LastWalk {
    /// Returns this thread's last walk; `None` if [`map`] has not mapped memory for it.
    #[inline(always)]
    pub fn of(thread: &Thread) -> Option<&LastWalk> {
        // SAFETY: the pointer is null, or `map` mapped it for this thread. `forget` unmaps it only
        // when the thread ends.
        unsafe { thread.last_walk.get().cast::<LastWalk>().as_ref() }
    }
}

/// The state of a frame in a walk.
#[repr(C)]
pub struct Step {
    pub fp: SignalCell<usize>,
    /// The low half is the stack pointer, with [`MARK`] if the caller's frame is found through
    /// `fp`. The high half is the place where the caller's frame pointer is saved, or 0 if it is
    /// still in its register.
    pub places: SignalCell<u64>,
}

impl Step {
    /// Returns the stack pointer, with its [`MARK`].
    #[inline(always)]
    pub fn sp(&self) -> u32 {
        self.places.get() as u32
    }

    /// Returns the place where the caller's frame pointer is saved, or 0 if it is in its register.
    #[inline(always)]
    pub fn saved(&self) -> u32 {
        (self.places.get() >> 32) as u32
    }
}

/// Flag in the lowest bit of a place on the stack. The bit is free, as places are multiples of 8.
pub const MARK: u32 = 1;

/// Returns the address from which places on the stack are counted. That is the stack's top, which
/// need not be aligned, rounded up to a multiple of 8.
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
        // SAFETY: the memory was just mapped and zeroed, and zero is a valid value of every field.
        unsafe { (*last.cast::<LastWalk>()).patience.set(PATIENCE) };
        thread.last_walk.set(last);
        super::shapes::map();
    }
    None
}

/// Unmaps a thread's memory of walks. Called when the thread is about to end.
pub fn forget(thread: &Thread) {
    let last = thread.last_walk.get();
    if !last.is_null() {
        thread.last_walk.set(core::ptr::null_mut());
        // SAFETY: `map` mapped the memory, and only this thread uses it, which is ending.
        unsafe { sys::unmap(last, size_of::<LastWalk>()) };
    }
}

/// Appends to a walk the frames that it skipped, from the last walk. Returns false if another walk
/// has begun since then, which may have overwritten them.
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
