//! Tracks which part of a thread's stack is known to be readable.

use crate::block::Thread;
use crate::seccomp::{CallClass, is_forbidden};
use crate::{arch, state, sys};
use tprof_wire::sync::Ordering::Relaxed;

/// Whether `[low, high)` is in the readable part of the stack.
#[inline(always)]
pub fn within(thread: &Thread, low: usize, high: usize) -> bool {
    (low >= thread.stack_low.get() && high <= thread.stack_high.get() && low <= high)
        || extend(thread, low, high)
}

/// The address of a word that lies in the readable stack. Only `readable` makes one. The address
/// is that of a running function's frame, so the word stays readable until that function returns.
#[derive(Clone, Copy)]
pub struct ReadableSp(usize);

impl ReadableSp {
    /// The address as a number.
    #[inline(always)]
    pub fn address(self) -> usize {
        self.0
    }

    /// Reads the word at the address.
    #[inline(always)]
    pub fn word(self) -> u64 {
        // SAFETY: `readable` has found the word within the stack; the read needs no alignment.
        unsafe { (self.0 as *const u64).read_unaligned() }
    }
}

/// Returns the address if the word there lies in the readable stack.
#[inline(always)]
pub fn readable(thread: &Thread, at: usize) -> Option<ReadableSp> {
    within(thread, at, at.wrapping_add(8)).then_some(ReadableSp(at))
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

/// Number of bytes below a coroutine's frame that must be readable. Its own stack may end earlier,
/// and other memory follow: few stacks without an unmapped page below are so small.
const LEAST_OF_COROUTINE: usize = 32 << 10;

/// Whether the stack on which the thread runs has so many bytes left. A stack of another kind than
/// the thread's own may be small: a coroutine's may have 4 KiB, and a signal handler's hardly more
/// than the kernel writes there.
#[cold]
#[inline(never)]
pub fn has_room(thread: &Thread, bytes: usize) -> bool {
    let here = (&raw const thread) as usize;
    let low = here.saturating_sub(bytes);
    if within(thread, here, here + 8) && own_top(thread) != 0 {
        // The kernel makes the first thread's stack grow. Below another one lies an unmapped page.
        let grows = thread.stack_high.get() == state::STACK_TOP.load(Relaxed);
        return grows || within(thread, low, here);
    }
    if thread.is_quiet() || is_forbidden(CallClass::Reading) {
        return false;
    }
    match sys::alternate_stack() {
        Some(first) => first <= low,
        None => are_readable(here.saturating_sub(LEAST_OF_COROUTINE) & !4095, here),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::{Attached, MadeStack};

    fn with(test: impl FnOnce(&Thread, &MadeStack)) {
        let process = Attached::new();
        let thread = process.thread();
        let stack = MadeStack::new(&[1, 2, 3]);
        stack.of(thread);
        test(thread, &stack);
        thread.stack_high.set(0);
    }

    #[test]
    fn a_word_is_readable_only_if_all_of_it_lies_in_the_stack() {
        with(|thread, stack| {
            assert_eq!(readable(thread, stack.at(2)).unwrap().word(), 3);
            assert!(readable(thread, stack.at(2) + 1).is_none());
            assert!(readable(thread, stack.at(3)).is_none());
        });
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_not_readable() {
        with(|thread, stack| {
            assert!(within(thread, stack.at(0), stack.at(2)));
            assert!(!within(thread, stack.at(2), stack.at(0)));
            assert!(!within(thread, stack.at(2), 8));
        });
    }

    #[test]
    fn another_stack_is_known_once_the_kernel_has_found_it_readable() {
        with(|thread, stack| {
            let other = MadeStack::new(&[7]);
            assert!(within(thread, other.at(0), other.at(1)));
            let bounds = (thread.stack_low.get(), thread.stack_high.get());
            assert_eq!(bounds, (other.at(1) - 4096, other.at(1)));
            assert!(within(thread, stack.at(0), stack.at(1)), "and back");
        });
    }

    #[test]
    fn a_quiet_thread_knows_no_other_stack() {
        with(|thread, stack| {
            let other = MadeStack::new(&[7]);
            thread.strict.set(true);
            let is_within = within(thread, other.at(0), other.at(1));
            thread.strict.set(false);
            assert!(!is_within);
            assert!(within(thread, stack.at(0), stack.at(1)));
        });
    }

    #[test]
    fn the_bounds_of_the_running_thread_grow_downwards_page_by_page() {
        let process = Attached::new();
        let thread = process.thread();
        let here = 0u64;
        let at = (&raw const here).addr();
        let top = arch::thread_pointer();
        thread.stack_high.set(top);
        thread.stack_low.set(top & !4095);
        assert!(within(thread, at, at + 8));
        assert_eq!((thread.stack_low.get(), thread.stack_high.get()), (at & !4095, top));
        assert_eq!(own_top(thread), top);
    }
}
