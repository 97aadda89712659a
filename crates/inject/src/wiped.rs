//! Tables that are mapped once, by whichever thread comes first, and most of which the kernel
//! empties in a forked child: its records begin anew in a region of its own.

use crate::sys::{self, flags};
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// Maps `bytes` of it, zeroed, if they are not mapped yet. Stays null where there is no memory,
/// and before Linux 4.14: a child would refer to what its parent has defined.
pub fn map<T>(table: &AtomicPtr<T>, bytes: usize) {
    // SAFETY: the mapping is new; to be empty in a forked child is what its users expect.
    map_as(table, bytes, |at| unsafe { sys::advise(at, bytes, flags::MADV_WIPEONFORK) } >= 0);
}

/// The same of memory that a forked child has as its parent left it.
pub fn map_inherited<T>(table: &AtomicPtr<T>, bytes: usize) {
    map_as(table, bytes, |_| true);
}

fn map_as<T>(table: &AtomicPtr<T>, bytes: usize, prepare: impl FnOnce(*mut u8) -> bool) {
    if !table.load(Relaxed).is_null() {
        return;
    }
    let Some(at) = sys::map_anonymous(bytes) else { return };
    if !prepare(at)
        || table.compare_exchange(core::ptr::null_mut(), at.cast(), AcqRel, Relaxed).is_err()
    {
        // SAFETY: just mapped, not published.
        unsafe { sys::unmap(at, bytes) };
    }
}
