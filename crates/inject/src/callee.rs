//! Finds the library whose function an intercepted call was meant for.
//!
//! Two major versions of CUDA may be loaded in one process. Each has the name that its callers were
//! linked with, and a library that was loaded with `RTLD_LOCAL` is in no global scope. So the
//! caller's own object decides: one of its `DT_NEEDED` entries names the library. If none does, the
//! next definition after this library is called, which the call would reach without the hook. If
//! there is no such definition either, that of any loaded library with a matching name is called.
//!
//! Answers are cached by call site. When code is unloaded, [`forget`] drops them all.

use crate::real::{self, ObjectInfo, base_name};
use core::ffi::{c_int, c_void};
use tprof_wire::sync::{AtomicUsize, Ordering::*};

/// ELF tag `DT_NEEDED`.
const NEEDED: u64 = 1;
/// ELF tag `DT_SONAME`.
const SONAME: u64 = 14;

/// Number of call sites in the cache.
const PLACES: usize = 1024;

/// A cached call site and the function that its calls mean. `check` is the XOR of the site's key
/// and the address, so that an entry of which only one word was written yet is not used.
struct CallSite {
    check: AtomicUsize,
    address: AtomicUsize,
}

static KNOWN: [CallSite; PLACES] =
    [const { CallSite { check: AtomicUsize::new(0), address: AtomicUsize::new(0) } }; PLACES];

/// The address of the function `name` (NUL terminated) that the call which returns to `caller`
/// means; 0 if no library has it. `prefix` is how the file names of libraries with this function
/// begin. `own` is an address in this library.
#[inline]
pub fn find(name: &'static [u8], number: u32, caller: usize, prefix: &[u8], own: usize) -> usize {
    find_as(caller, name, number, caller, prefix, own)
}

/// Like [`find`], for a function that other libraries wrap under its own name (MPI). Returns the
/// next definition after this library, even if the caller's object names another library, since the
/// next one may be a wrapper.
#[inline]
pub fn find_next(
    name: &'static [u8],
    number: u32,
    caller: usize,
    prefix: &[u8],
    own: usize,
) -> usize {
    remembered(caller, number, || search(name, 0, prefix, own))
}

/// Like [`find`], for a function that objects call once from each of very many places. The cache is
/// by page instead of by call site, since all code in a page belongs to one object.
pub fn find_by_page(
    name: &'static [u8],
    number: u32,
    caller: usize,
    prefix: &[u8],
    own: usize,
) -> usize {
    find_as(caller >> 12, name, number, caller, prefix, own)
}

#[inline(always)]
fn find_as(
    site: usize,
    name: &'static [u8],
    number: u32,
    caller: usize,
    prefix: &[u8],
    own: usize,
) -> usize {
    remembered(site, number, || search(name, caller, prefix, own))
}

/// The function that an earlier search found for this call site; 0 if none is known.
#[inline(always)]
pub fn known(site: usize, number: u32) -> usize {
    let place = place_of(site, number);
    let address = place.address.load(Relaxed);
    let is_of_site = place.check.load(Relaxed) ^ address == key_of(site, number);
    if is_of_site { address } else { 0 }
}

/// The same return address may belong to calls of several functions, if the call is through a
/// pointer.
#[inline(always)]
fn key_of(site: usize, number: u32) -> usize {
    site ^ (number as usize) << 48
}

#[inline(always)]
fn place_of(site: usize, number: u32) -> &'static CallSite {
    &KNOWN[(site ^ site >> 10 ^ number as usize) % PLACES]
}

#[inline(always)]
fn remembered(site: usize, number: u32, search: impl FnOnce() -> usize) -> usize {
    let address = known(site, number);
    if address != 0 {
        return address;
    }
    let address = search();
    if address != 0 {
        let place = place_of(site, number);
        place.check.store(key_of(site, number) ^ address, Relaxed);
        place.address.store(address, Relaxed);
    }
    address
}

/// Drops all answers. Called when code was unloaded, since a cached call site or function may be
/// gone.
pub fn forget() {
    for place in &KNOWN {
        place.address.store(0, Relaxed);
    }
}

struct DefinitionSearch<'a> {
    name: &'a [u8],
    caller: usize,
    prefix: &'a [u8],
    own: usize,
    /// File name of the library that the caller's object needs.
    wanted: Option<&'static [u8]>,
    /// Set once the search has passed this library in the load order.
    after: bool,
    named: usize,
    next: usize,
    any: usize,
}

#[cold]
fn search(name: &[u8], caller: usize, prefix: &[u8], own: usize) -> usize {
    let mut search = DefinitionSearch {
        name,
        caller,
        prefix,
        own,
        wanted: None,
        after: false,
        named: 0,
        next: 0,
        any: 0,
    };
    let data: *mut c_void = (&raw mut search).cast();
    // SAFETY: the callbacks run only during these calls, and use `data` as the
    // `&mut DefinitionSearch` that it is.
    unsafe {
        if caller != 0 {
            real::dl_iterate_phdr(find_caller, data);
        }
        real::dl_iterate_phdr(find_callee, data);
    }
    [search.named, search.next, search.any].into_iter().find(|at| *at != 0).unwrap_or(0)
}

unsafe extern "C" fn find_caller(info: *mut ObjectInfo, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: `data` is the `DefinitionSearch` that `search` passed; the loader's `info` is valid
    // during the callback.
    let (search, info) = unsafe { (&mut *data.cast::<DefinitionSearch>(), &*info) };
    if !info.holds(search.caller.wrapping_sub(1)) {
        return 0;
    }
    if let Some(object) = info.symbols() {
        object.each_name(NEEDED, |needed| {
            if search.wanted.is_none() && base_name(needed).starts_with(search.prefix) {
                search.wanted = Some(base_name(needed));
            }
        });
    }
    1
}

unsafe extern "C" fn find_callee(info: *mut ObjectInfo, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: `data` is the `DefinitionSearch` that `search` passed; the loader's `info` is valid
    // during the callback.
    let (search, info) = unsafe { (&mut *data.cast::<DefinitionSearch>(), &*info) };
    if info.holds(search.own) {
        search.after = true;
        return 0;
    }
    let Some(object) = info.symbols() else { return 0 };
    let base = base_name(info.path());
    let mut is_wanted = search.wanted.is_some_and(|wanted| wanted == base);
    object.each_name(SONAME, |own| is_wanted |= search.wanted.is_some_and(|wanted| wanted == own));
    let is_of_that_name = base.starts_with(search.prefix);
    let known = if is_wanted {
        search.named
    } else if search.after {
        search.next
    } else {
        search.any
    };
    if known != 0 || !(is_wanted || is_of_that_name || search.after) {
        return 0;
    }
    if let Some(address) = object.find(search.name) {
        if is_wanted {
            search.named = address;
            return 1;
        }
        if is_of_that_name && search.any == 0 {
            search.any = address;
        }
        if search.after && search.next == 0 {
            search.next = address;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_reaches_the_function_of_the_library_that_its_object_needs() {
        unsafe extern "C" {
            fn qsort();
        }
        // This test program needs libc, and calls from it mean libc's function.
        let here =
            a_call_reaches_the_function_of_the_library_that_its_object_needs as fn() as usize + 1;
        let got = find(b"qsort\0", 3, here, b"libc.so", 0);
        assert_eq!(got, qsort as *const () as usize);
        // The answer is cached with the function's number, so another number gets another answer.
        assert_eq!(find(b"qsort\0", 3, here, b"libc.so", 0), got);
        assert_eq!(find(b"no_such_function\0", 4, here, b"libc.so", 0), 0);
        forget();
        assert_eq!(find(b"qsort\0", 3, here, b"libc.so", 0), got);
    }

    #[test]
    fn a_cache_entry_of_which_one_word_was_written_is_not_used() {
        let place = &KNOWN[(7 ^ 9) % PLACES];
        place.check.store(5, Relaxed);
        place.address.store(6, Relaxed);
        assert_eq!(find(b"no_such_function\0", 9, 7, b"libc.so", 0), 0);
    }
}
