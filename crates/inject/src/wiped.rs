//! Memory that the kernel empties in a forked child; its records begin anew in a region
//! of its own.

use crate::sys::{self, flags};
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// Maps `bytes` of it, zeroed, if they are not mapped yet. Stays null where there is no memory,
/// and before Linux 4.14: a child would refer to what its parent has defined.
pub fn map<T>(table: &AtomicPtr<T>, bytes: usize) {
    if !table.load(Relaxed).is_null() {
        return;
    }
    let Some(at) = sys::map_anonymous(bytes) else { return };
    // SAFETY: just mapped; to be empty in a forked child is what its users expect.
    let wiped = unsafe { sys::advise(at, bytes, flags::MADV_WIPEONFORK) } >= 0;
    if !wiped || table.compare_exchange(core::ptr::null_mut(), at.cast(), AcqRel, Relaxed).is_err()
    {
        // SAFETY: just mapped, not published.
        unsafe { sys::unmap(at, bytes) };
    }
}
