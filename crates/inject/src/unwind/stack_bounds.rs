//! Which memory is known to be readable stack.

use crate::block::Thread;
use crate::sys;

/// Whether `[low, high)` lies in the readable stack.
#[inline(always)]
pub fn within(thread: &Thread, low: usize, high: usize) -> bool {
    (low >= thread.stack_low.get() && high <= thread.stack_high.get() && low <= high)
        || extend(thread, low, high)
}

/// Whether a word lies in the readable stack.
#[inline(always)]
pub fn readable(thread: &Thread, at: usize) -> bool {
    within(thread, at, at.wrapping_add(8))
}

/// Another stack (a coroutine's, a signal's), or one that grew: asks the kernel
/// page by page, once, and remembers.
#[cold]
#[inline(never)]
fn extend(thread: &Thread, low: usize, high: usize) -> bool {
    if thread.is_quiet() || high < low || high - low > 1 << 20 || low < 4096 {
        return false;
    }
    let first = low & !4095;
    let last = (high - 1) & !4095;
    // A known stack grows downwards contiguously: what lies between is stack.
    if first < thread.stack_low.get()
        && high <= thread.stack_high.get()
        && thread.stack_low.get() - first <= 8 << 20
    {
        if !sys::is_readable(first) {
            return false;
        }
        thread.stack_low.set(first);
        return true;
    }
    let mut page = first;
    loop {
        if !sys::is_readable(page) {
            return false;
        }
        if page >= last {
            break;
        }
        page += 4096;
    }
    if first == thread.stack_high.get() {
        thread.stack_high.set(last + 4096);
    } else {
        thread.stack_low.set(first);
        thread.stack_high.set(last + 4096);
    }
    true
}
