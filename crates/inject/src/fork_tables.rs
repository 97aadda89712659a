//! Tables that are mapped once, by the first thread that needs them. The kernel empties most of
//! them in a forked child, since the child's records go to a region of its own.

use crate::sys::{self, flags};
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// Maps `bytes` of zeroed memory for `table`, if it is not mapped yet. The table stays null if
/// there is no memory, and before Linux 4.14, where a child would refer to names that only its
/// parent has defined.
pub fn map<T>(table: &AtomicPtr<T>, bytes: usize) {
    // SAFETY: the mapping is new, and its users expect it to be empty in a forked child.
    map_as(table, bytes, |at| unsafe { sys::advise(at, bytes, flags::MADV_WIPEONFORK) } >= 0);
}

/// Like [`map`], for several tables: maps all that are missing in one mapping, one behind the
/// other. This takes two system calls, instead of two for each. Sizes are multiples of a page.
pub fn map_together<const N: usize>(tables: [(&AtomicPtr<u8>, usize); N]) {
    let missing = || tables.iter().filter(|(table, _)| table.load(Relaxed).is_null());
    let whole = AtomicPtr::new(core::ptr::null_mut());
    let bytes: usize = missing().map(|(_, bytes)| bytes).sum();
    if bytes > 0 {
        map::<u8>(&whole, bytes);
    }
    let mut at = whole.load(Relaxed);
    if at.is_null() {
        return;
    }
    // Another thread may have mapped some of them first; the memory for those is never touched.
    for (table, bytes) in missing() {
        let _ = table.compare_exchange(core::ptr::null_mut(), at, AcqRel, Relaxed);
        at = at.wrapping_add(*bytes);
    }
}

/// Maps memory that a forked child inherits with its contents.
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
        // SAFETY: the memory was just mapped, and its address was not published.
        unsafe { sys::unmap(at, bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::array::from_fn;

    #[test]
    fn tables_lie_one_behind_the_other_or_nowhere() {
        let tables: [AtomicPtr<u8>; 3] = from_fn(|_| AtomicPtr::new(core::ptr::null_mut()));
        let map = |bytes: [usize; 3]| map_together::<3>(from_fn(|n| (&tables[n], bytes[n])));
        let at = || tables.each_ref().map(|table| table.load(Relaxed) as usize);
        // More memory than the address space has.
        map([4096, 1 << 60, 4096]);
        assert_eq!(at(), [0; 3]);
        let own = Box::into_raw(Box::new(0u8));
        tables[1].store(own, Relaxed);
        map([4096, 8192, 4096]);
        let [first, second, third] = at();
        assert!(first != 0 && second == own as usize && third == first + 4096);
        for table in [first, third] {
            // SAFETY: `map` above mapped so many bytes there, zeroed.
            assert_eq!(unsafe { *((table + 4095) as *const u8) }, 0);
        }
        map([4096, 8192, 4096]);
        assert_eq!(at(), [first, second, third], "once");
        // SAFETY: `own` was made by `Box::into_raw` above.
        drop(unsafe { Box::from_raw(own) });
    }
}
