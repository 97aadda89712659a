//! Maps memory for tables that the first thread which needs them creates. The kernel zeroes most of
//! these tables in a forked child. The child's records go to a region of its own, so entries about
//! its parent's records would be wrong there.

use crate::sys::{self, flags};
use tprof_wire::sync::{AtomicPtr, Ordering::*};

/// Maps `bytes` of zeroed memory for `table`, if it isn't mapped yet. The table stays null if there
/// is no memory. It also stays null before Linux 4.14, which can't zero it in a forked child: there
/// the child would refer to names that only its parent has defined.
pub fn map<T>(table: &AtomicPtr<T>, bytes: usize) {
    // SAFETY: the mapping is new, and its users expect it to be zero in a forked child.
    map_as(table, bytes, |at| unsafe { sys::advise(at, bytes, flags::MADV_WIPEONFORK) } >= 0);
}

/// Like [`map`], for several tables. Maps all missing ones in one mapping, one after the other.
/// This takes two system calls in all instead of two for each table. Sizes are multiples of a page.
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
    // Another thread may have mapped some of the tables first. The memory for these is then never
    // touched.
    for (table, bytes) in missing() {
        let _ = table.compare_exchange(core::ptr::null_mut(), at, AcqRel, Relaxed);
        at = at.wrapping_add(*bytes);
    }
}

/// Maps memory whose contents a forked child inherits.
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
    fn tables_are_mapped_contiguously_or_not_at_all() {
        let tables: [AtomicPtr<u8>; 3] = from_fn(|_| AtomicPtr::new(core::ptr::null_mut()));
        let map = |bytes: [usize; 3]| map_together::<3>(from_fn(|n| (&tables[n], bytes[n])));
        let at = || tables.each_ref().map(|table| table.load(Relaxed) as usize);
        // This is more memory than the address space has.
        map([4096, 1 << 60, 4096]);
        assert_eq!(at(), [0; 3]);
        let own = Box::into_raw(Box::new(0u8));
        tables[1].store(own, Relaxed);
        map([4096, 8192, 4096]);
        let [first, second, third] = at();
        assert!(first != 0 && second == own as usize && third == first + 4096);
        for table in [first, third] {
            // SAFETY: `map` above mapped this many zeroed bytes there.
            assert_eq!(unsafe { *((table + 4095) as *const u8) }, 0);
        }
        map([4096, 8192, 4096]);
        assert_eq!(at(), [first, second, third], "a second call maps nothing new");
        // SAFETY: `Box::into_raw` returned `own` above, and nothing else frees it.
        drop(unsafe { Box::from_raw(own) });
    }

    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }

    #[test]
    fn a_forked_child_finds_its_tables_empty_and_what_it_inherits_as_it_was() {
        let [wiped, inherited] = [const { AtomicPtr::<u64>::new(core::ptr::null_mut()) }; 2];
        map(&wiped, 4096);
        map_inherited(&inherited, 4096);
        let [wiped, inherited] = [wiped, inherited].map(|table| table.load(SeqCst));
        // SAFETY: the memory is mapped, and the child only reads it and ends.
        let status = unsafe {
            wiped.write_volatile(7);
            inherited.write_volatile(8);
            let child = fork();
            if child == 0 {
                let found = (wiped.read_volatile(), inherited.read_volatile());
                _exit(if found == (0, 8) { 0 } else { 1 });
            }
            let mut status = -1;
            assert_eq!(waitpid(child, &mut status, 0), child);
            assert_eq!((wiped.read_volatile(), inherited.read_volatile()), (7, 8));
            status
        };
        assert_eq!(status, 0);
    }

    #[test]
    fn a_table_that_is_mapped_stays_where_it_is() {
        let table = AtomicPtr::<u8>::new(core::ptr::null_mut());
        map(&table, 4096);
        let first = table.load(SeqCst);
        assert!(!first.is_null());
        map(&table, 8192);
        map_inherited(&table, 4096);
        assert_eq!(table.load(SeqCst), first);
    }

    #[test]
    fn a_table_for_which_there_is_no_memory_stays_null() {
        let table = AtomicPtr::<u8>::new(core::ptr::null_mut());
        map(&table, 1 << 60);
        map_inherited(&table, 1 << 60);
        assert!(table.load(SeqCst).is_null());
    }
}
