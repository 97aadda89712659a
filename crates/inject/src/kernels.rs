//! Finds and records the names of kernels, which programs register with CUDA's runtime, and tracks
//! the handles that programs get for kernels.
//!
//! A large library registers tens of thousands of kernels while it is loaded, and launches few of
//! them. So the hooks only store the addresses of a kernel's stub and name. The kernel's first
//! launch looks up the name and records it.

use crate::block::Thread;
use crate::call_args::{Frame, word};
use crate::sys::{self, flags};
use crate::{loaded, ring};
use core::ffi::{CStr, c_char};
use tprof_wire::gpu::{TEXT_WORDS, pack_text};
use tprof_wire::hash::spread;
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

/// Maximum number of kernels and handles that are stored. They take 8 MiB of address space, of
/// which only touched pages use memory. Further kernels have no name in the run.
const MOST: usize = 1 << 19;
/// Maximum number of kernels whose names are recorded.
const SENT_MOST: usize = 1 << 14;
const PROBES: usize = 16;

/// A kernel's stub or handle, with the address of its name.
#[repr(C)]
struct RegisteredKernel {
    kernel: AtomicU64,
    name: AtomicU64,
}

static ALL: AtomicPtr<RegisteredKernel> = AtomicPtr::new(core::ptr::null_mut());
static LEN: AtomicUsize = AtomicUsize::new(0);
/// The kernels whose names were recorded. A forked child records the names again.
static SENT: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// Maps a table at its first use. Returns null if there is no memory.
fn mapped<T>(table: &AtomicPtr<T>, bytes: usize, is_wiped: bool) -> *mut T {
    let known = table.load(Acquire);
    if !known.is_null() {
        return known;
    }
    let Some(at) = sys::map_anonymous(bytes) else { return known };
    if is_wiped {
        // SAFETY: the memory was just mapped, and its users expect it to be zero in a forked child.
        unsafe { sys::advise(at, bytes, flags::MADV_WIPEONFORK) };
    }
    match table.compare_exchange(known, at.cast(), AcqRel, Acquire) {
        Ok(_) => at.cast(),
        Err(other) => {
            // SAFETY: the memory was just mapped, and its address was not published.
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
    // SAFETY: `at` is below `MOST`, the number of entries in the table.
    let place = unsafe { &*all.add(at) };
    place.name.store(name, Relaxed);
    place.kernel.store(kernel, Release);
}

/// Address of the name of a registered kernel. If the address was registered several times, the
/// last name counts, since earlier ones may belong to code that was unloaded.
fn name_of(kernel: u64) -> Option<u64> {
    let all = ALL.load(Acquire);
    if all.is_null() || kernel == 0 {
        return None;
    }
    let len = LEN.load(Relaxed).min(MOST);
    // SAFETY: `len` is at most `MOST`, the number of entries in the table.
    let all = unsafe { core::slice::from_raw_parts(all, len) };
    let found = all.iter().rev().find(|named| named.kernel.load(Acquire) == kernel)?;
    Some(found.name.load(Relaxed))
}

/// Called when a program registers a kernel. Argument 1 is the address of its stub, argument 3 that
/// of its name.
pub fn registered(frame: &Frame) {
    keep(frame.register(1), frame.register(3));
}

/// Called when a program got a handle for a kernel. Argument 0 points at the handle; argument 1 is
/// the kernel's stub.
pub fn handle_made(frame: &Frame) {
    if let Some(name) = name_of(frame.register(1)) {
        // SAFETY: the function succeeded, so it has stored the handle there.
        keep(unsafe { word(frame.register(0), 0) }, name);
    }
}

/// Records the name of a kernel that was launched, unless it was recorded before.
#[inline]
pub fn launched(thread: &Thread, kernel: u64, clock: u64) {
    if !is_sent(kernel) {
        send(thread, kernel, clock);
    }
}

fn sent() -> Option<&'static [AtomicU64]> {
    let table = SENT.load(Acquire);
    // SAFETY: the table has `SENT_MOST` entries, and is never unmapped once it is published.
    (!table.is_null()).then(|| unsafe { core::slice::from_raw_parts(table, SENT_MOST) })
}

/// The entries that a kernel may occupy.
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
    // The table is full. The name is then not recorded, which is cheaper than a search at each
    // launch.
    true
}

#[cold]
#[inline(never)]
fn send(thread: &Thread, kernel: u64, clock: u64) {
    if mapped(&SENT, SENT_MOST * size_of::<AtomicU64>(), true).is_null() {
        return;
    }
    // The name's address may have been in code that was unloaded. Then it must not be read, or may
    // belong to another kernel by now.
    if let Some(name) = name_of(kernel).filter(|name| loaded::is_loaded(*name as usize)) {
        // SAFETY: a program registered this address as that of a NUL-terminated name, and
        // `is_loaded` has found it in a loaded object.
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

/// Forgets which names were recorded. Called when code was unloaded, since other kernels may get
/// the same addresses next.
pub fn forget() {
    for place in sent().into_iter().flatten() {
        place.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Attached;

    // This is a single test, since the process has only one set of tables.
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
        // The handle of a stub that was not registered has no name.
        let other = 0x400u64;
        handle_made(&Frame::of_registers([(&raw const other) as u64, 0x999, 0, 0, 0, 0]));
        assert_eq!(name_of(0x400), None);
        // The library was unloaded, and another one was loaded at the same address.
        registered(&Frame::of_registers([0, 0x100, 0, at(2), 0, 0]));
        assert_eq!(name_of(0x100), Some(at(2)));
        launches_name_it_once(at(1));
        // When the table is full, further kernels have no names, and the others are unaffected.
        LEN.store(MOST, Relaxed);
        registered(&Frame::of_registers([0, 0x500, 0, at(2), 0, 0]));
        assert_eq!((name_of(0x500), name_of(0x200)), (None, Some(at(1))));
    }

    /// A launch of the kernel 0x200, which has this name, records it.
    fn launches_name_it_once(name: u64) {
        let process = Attached::new();
        let thread = process.thread();
        let sent = || process.of_kind(thread, ExtKind::KernelName);
        launched(thread, 0x200, 5);
        launched(thread, 0x200, 6);
        let first = &sent()[0];
        assert_eq!((sent().len(), first.words[1], first.payload()[0]), (1, 5, 0x200));
        // SAFETY: the name is one of the test's texts.
        let text = unsafe { CStr::from_ptr(name as *const c_char) }.to_bytes();
        let bytes: Vec<u8> = first.payload()[2..].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(&bytes[..text.len()], text);
        forget();
        launched(thread, 0x200, 7);
        assert_eq!(sent().len(), 2, "another kernel may have its address");
        launched(thread, 0x999, 8);
        // A name in code that was unloaded isn't read.
        registered(&Frame::of_registers([0, 0x800, 0, 8, 0, 0]));
        launched(thread, 0x800, 9);
        assert_eq!(sent().len(), 2);
    }
}
