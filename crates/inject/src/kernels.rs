//! Names of kernels: what programs register with CUDA's runtime, and handles that they get for it.
//!
//! A large library registers tens of thousands of kernels while it is loaded and launches few of
//! them. So the hooks only keep the addresses of stub and name, and the first launch of a kernel
//! finds its name and records it.

use crate::block::Thread;
use crate::call_args::{Frame, word};
use crate::sys::{self, flags};
use crate::{loaded, ring};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use tprof_wire::gpu::{TEXT_WORDS, pack_text};
use tprof_wire::hash::spread;
use tprof_wire::record::ExtKind;

/// Kernels and handles that are kept: 8 MiB of address space, touched as needed. Kernels beyond
/// have no name.
const MOST: usize = 1 << 19;
/// Kernels with a recorded name, at most, and places that are tried for one.
const SENT_MOST: usize = 1 << 14;
const PROBES: usize = 16;

/// A stub or a handle, and where its kernel's name is.
#[repr(C)]
struct RegisteredKernel {
    kernel: AtomicU64,
    name: AtomicU64,
}

static ALL: AtomicPtr<RegisteredKernel> = AtomicPtr::new(core::ptr::null_mut());
static LEN: AtomicUsize = AtomicUsize::new(0);
/// Kernels with a recorded name; a forked child records its own.
static SENT: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// Maps a table once.
fn mapped<T>(table: &AtomicPtr<T>, bytes: usize, is_wiped: bool) -> *mut T {
    let known = table.load(Acquire);
    if !known.is_null() {
        return known;
    }
    let Some(at) = sys::map_anonymous(bytes) else { return known };
    if is_wiped {
        // SAFETY: just mapped; to be empty in a forked child is what its users expect.
        unsafe { sys::advise(at, bytes, flags::MADV_WIPEONFORK) };
    }
    match table.compare_exchange(known, at.cast(), AcqRel, Acquire) {
        Ok(_) => at.cast(),
        Err(other) => {
            // SAFETY: just mapped, not published.
            unsafe { sys::unmap(at, bytes) };
            other
        }
    }
}

fn keep(kernel: u64, name: u64) {
    let all = mapped(&ALL, MOST * size_of::<RegisteredKernel>(), false);
    if all.is_null() || kernel == 0 || name == 0 {
        return;
    }
    let at = LEN.fetch_add(1, Relaxed);
    if at >= MOST {
        LEN.store(MOST, Relaxed);
        return;
    }
    // SAFETY: below MOST, in the table.
    let place = unsafe { &*all.add(at) };
    place.name.store(name, Relaxed);
    place.kernel.store(kernel, Release);
}

/// Where the name of a kernel is that is registered: the last that came with its stub or handle,
/// since code that was unloaded may have had the same address.
fn name_of(kernel: u64) -> Option<u64> {
    let all = ALL.load(Acquire);
    if all.is_null() || kernel == 0 {
        return None;
    }
    let len = LEN.load(Relaxed).min(MOST);
    // SAFETY: so many places are in the table.
    let all = unsafe { core::slice::from_raw_parts(all, len) };
    let found = all.iter().rev().find(|named| named.kernel.load(Acquire) == kernel)?;
    Some(found.name.load(Relaxed))
}

/// A program registers a kernel, by the address of its stub in argument 1, of the name that
/// argument 3 points at.
pub fn registered(frame: &Frame) {
    keep(frame.register(1), frame.register(3));
}

/// A program got a handle, in what argument 0 points at, of the kernel with its stub in argument 1.
pub fn handle_made(frame: &Frame) {
    if let Some(name) = name_of(frame.register(1)) {
        // SAFETY: the function has succeeded, and stored the handle there.
        keep(unsafe { word(frame.register(0), 0) }, name);
    }
}

/// Records the name of a kernel that was launched, once.
#[inline]
pub fn launched(thread: &Thread, kernel: u64, clock: u64) {
    if !is_sent(kernel) {
        send(thread, kernel, clock);
    }
}

fn sent() -> Option<&'static [AtomicU64]> {
    let table = SENT.load(Acquire);
    // SAFETY: a table has so many places, and stays for good.
    (!table.is_null()).then(|| unsafe { core::slice::from_raw_parts(table, SENT_MOST) })
}

/// The places where a kernel may be.
fn places(table: &[AtomicU64], kernel: u64) -> impl Iterator<Item = &AtomicU64> {
    let first = (spread(kernel) >> (u64::BITS - SENT_MOST.ilog2())) as usize;
    (0..PROBES).filter_map(move |probe| table.get(first.wrapping_add(probe) % SENT_MOST))
}

#[inline]
fn is_sent(kernel: u64) -> bool {
    let Some(table) = sent() else { return false };
    for place in places(table, kernel) {
        match place.load(Relaxed) {
            0 => return false,
            known if known == kernel => return true,
            _ => {}
        }
    }
    // A full table: no more names, rather than a search at each launch.
    true
}

#[cold]
#[inline(never)]
fn send(thread: &Thread, kernel: u64, clock: u64) {
    if mapped(&SENT, SENT_MOST * size_of::<AtomicU64>(), true).is_null() {
        return;
    }
    // An address of unloaded code may be another kernel's by now.
    if let Some(name) = name_of(kernel).filter(|name| loaded::is_loaded(*name as usize)) {
        // SAFETY: a program has registered this as a NUL-terminated name, and what is there is
        // a loaded object's.
        let name = unsafe { CStr::from_ptr(name as *const c_char) }.to_bytes();
        let mut words = [0; 1 + TEXT_WORDS];
        let Some((first, text)) = words.split_first_mut() else { return };
        *first = kernel;
        let used = 1 + pack_text(name, text);
        if !ring::ext(thread, ExtKind::KernelName, 0, clock, words.get(..used).unwrap_or(&words)) {
            return;
        }
    }
    for place in sent().into_iter().flat_map(|table| places(table, kernel)) {
        match place.compare_exchange(0, kernel, AcqRel, Acquire) {
            Err(other) if other != kernel => {}
            _ => return,
        }
    }
}

/// Code was unloaded: its kernels' addresses may be those of others next.
pub fn forget() {
    for place in sent().into_iter().flatten() {
        place.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: the tables are the process's.
    #[test]
    fn a_kernel_has_the_name_that_was_registered_last_for_its_stub() {
        let names = [c"first", c"second", c"third"];
        let at = |i: usize| names[i].as_ptr() as u64;
        assert_eq!(name_of(0x100), None);
        registered(&Frame::of_registers([0, 0x100, 0, at(0), 0, 0]));
        registered(&Frame::of_registers([0, 0x200, 0, at(1), 0, 0]));
        assert_eq!((name_of(0x100), name_of(0x200)), (Some(at(0)), Some(at(1))));
        let handle = 0x300u64;
        handle_made(&Frame::of_registers([(&raw const handle) as u64, 0x200, 0, 0, 0, 0]));
        assert_eq!(name_of(0x300), Some(at(1)));
        // The handle of a stub that nobody registered has no name.
        let other = 0x400u64;
        handle_made(&Frame::of_registers([(&raw const other) as u64, 0x999, 0, 0, 0, 0]));
        assert_eq!(name_of(0x400), None);
        // The library was unloaded, and another one has its place.
        registered(&Frame::of_registers([0, 0x100, 0, at(2), 0, 0]));
        assert_eq!(name_of(0x100), Some(at(2)));
        // Beyond the table kernels have no names, and harm none of the others.
        LEN.store(MOST, Relaxed);
        registered(&Frame::of_registers([0, 0x500, 0, at(2), 0, 0]));
        assert_eq!((name_of(0x500), name_of(0x200)), (None, Some(at(1))));
    }
}
