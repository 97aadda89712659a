//! Tracks which part of a thread's stack is known to be readable.

use crate::block::Thread;
use crate::{arch, state, sys};
use core::sync::atomic::Ordering::Relaxed;

/// Whether `[low, high)` is in the readable part of the stack.
#[inline(always)]
pub fn within(thread: &Thread, low: usize, high: usize) -> bool {
    (low >= thread.stack_low.get() && high <= thread.stack_high.get() && low <= high)
        || extend(thread, low, high)
}

/// Whether the word at `at` is in the readable part of the stack.
#[inline(always)]
pub fn readable(thread: &Thread, at: usize) -> bool {
    within(thread, at, at.wrapping_add(8))
}

/// Number of bytes below the top of a thread's own stack that are checked at once.
const MOST_OWN: usize = 1 << 20;
/// Maximum number of bytes by which a thread's own stack may have grown since the last check.
const MOST_GROWN: usize = 8 << 20;

/// End of this thread's own stack; 0 if it isn't known, for example on the stack of a coroutine or
/// signal handler. No part of a thread's own stack is unmapped while the thread runs.
#[inline(always)]
pub fn own_top(thread: &Thread) -> usize {
    let high = thread.stack_high.get();
    if high == arch::thread_pointer() || high == state::STACK_TOP.load(Relaxed) { high } else { 0 }
}

/// Extends the bounds to another stack (a coroutine's or a signal handler's), or to one that has
/// grown. It asks the kernel about each page and stores the result, so that each page is checked
/// only once.
#[cold]
#[inline(never)]
fn extend(thread: &Thread, low: usize, high: usize) -> bool {
    if thread.is_quiet() || high < low || high - low > 1 << 20 || low < 4096 {
        return false;
    }
    let first = low & !4095;
    let (known_low, known_high) = (thread.stack_low.get(), thread.stack_high.get());
    let is_own = own_top(thread) != 0;
    // A stack grows downwards without gaps, so all memory in between belongs to the stack.
    let has_grown = first < known_low && high <= known_high && known_low - first <= MOST_GROWN;
    if is_own && has_grown && are_readable(first, known_low) {
        thread.stack_low.set(first);
        return true;
    }
    for top in [arch::thread_pointer(), state::STACK_TOP.load(Relaxed)] {
        let is_below = high <= top && top - first <= MOST_OWN;
        if !is_own && is_below && are_readable(first, top) {
            thread.stack_low.set(first);
            thread.stack_high.set(top);
            return true;
        }
    }
    let last = (high - 1) & !4095;
    if !are_readable(first, high) {
        return false;
    }
    if first != known_high || is_own {
        thread.stack_low.set(first);
    }
    thread.stack_high.set(last + 4096);
    true
}

/// Whether all pages from that of `first` to below `end` are readable now.
fn are_readable(first: usize, end: usize) -> bool {
    (first..end).step_by(4096).all(sys::is_readable)
}
