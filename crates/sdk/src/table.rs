//! The function table that tprof's library exports in a process into which it was loaded.
//!
//! The table is looked up once, by `dlsym`. A shorter table from an older tprof counts as missing,
//! and nothing is recorded.

#![allow(unsafe_code)]

use crate::abi::Table;

/// Returns the table of tprof's library. Without it, returns a table that passes spans and marks to
/// another tool's NVTX library, if there is one.
#[inline(always)]
pub fn table() -> Option<&'static Table> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(feature = "off"), not(miri)))]
    {
        live::table()
    }
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64", not(feature = "off"), not(miri))))]
    {
        None
    }
}

/// Returns the table of tprof's library. The lookup makes no allocation by Rust's allocator.
#[inline(always)]
pub fn own_table() -> Option<&'static Table> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(feature = "off"), not(miri)))]
    {
        live::own_table()
    }
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64", not(feature = "off"), not(miri))))]
    {
        None
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(feature = "off"), not(miri)))]
mod live {
    use crate::abi::Table;
    use std::ffi::{c_char, c_void};
    use std::mem::size_of;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

    extern "C" {
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    /// Address that stands for "not looked up yet".
    static UNKNOWN: u8 = 0;

    /// Address of the table that [`table`] returns; null if there is none.
    static FOUND: AtomicPtr<Table> = AtomicPtr::new((&UNKNOWN as *const u8) as *mut Table);
    static OWN: AtomicPtr<Table> = AtomicPtr::new((&UNKNOWN as *const u8) as *mut Table);

    #[inline(always)]
    fn unknown() -> *mut Table {
        (&UNKNOWN as *const u8) as *mut Table
    }

    #[inline(always)]
    pub fn table() -> Option<&'static Table> {
        let found = FOUND.load(Relaxed);
        if found.is_null() {
            return None;
        }
        if found == unknown() {
            return find();
        }
        // SAFETY: `find` stored the address of a static of a library that is never unloaded, or of
        // a static of this crate.
        Some(unsafe { &*found })
    }

    #[cold]
    #[inline(never)]
    fn find() -> Option<&'static Table> {
        let found = own_table().or_else(crate::nvtx::table);
        FOUND.store(found.map_or(null_mut(), |table| (table as *const Table).cast_mut()), Relaxed);
        found
    }

    #[inline(always)]
    pub fn own_table() -> Option<&'static Table> {
        let found = OWN.load(Relaxed);
        if found.is_null() {
            return None;
        }
        if found == unknown() {
            return find_own();
        }
        // SAFETY: `find_own` stored the address of a static of a library that is never unloaded.
        Some(unsafe { &*found })
    }

    #[cold]
    #[inline(never)]
    fn find_own() -> Option<&'static Table> {
        // SAFETY: the name ends in NUL; a null handle is RTLD_DEFAULT on Linux.
        let symbol = unsafe { dlsym(null_mut(), b"tprof_abi\0".as_ptr().cast()) };
        let table = symbol.cast::<Table>();
        // SAFETY: the symbol is not null, so it is the table of tprof's library, which begins with
        // its own size (`tprof.h`).
        let bytes = if table.is_null() { 0 } else { unsafe { table.cast::<usize>().read() } };
        let table = if bytes >= size_of::<Table>() { table } else { null_mut() };
        OWN.store(table, Relaxed);
        // SAFETY: the pointer is null, or the library says that the table has at least the size of
        // `Table`. The library is never unloaded.
        unsafe { table.as_ref() }
    }
}
