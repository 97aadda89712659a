//! Hooks of the functions with which a program maps and unmaps memory.

use crate::real;
use core::ffi::c_int;
use tprof_inject::{io, lifecycle, stack_hook};
use tprof_wire::io::Operation;

/// The value that `mmap` returns on failure (`MAP_FAILED`).
const FAILED: *mut u8 = usize::MAX as *mut u8;
/// `MAP_ANONYMOUS`: the descriptor means nothing.
const ANONYMOUS: c_int = 0x20;

six_hook!(mmap(_: *mut u8, _: usize, _: c_int, _: c_int, _: c_int, _: i64) -> *mut u8, mmap_impl);
six_hook!(mmap64(_: *mut u8, _: usize, _: c_int, _: c_int, _: c_int, _: i64) -> *mut u8, mmap64_impl);

#[allow(clippy::too_many_arguments)] // mmap has six; the hook adds two
extern "C" fn mmap_impl(
    at: *mut u8,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    let begun = if fd >= 0 && flags & ANONYMOUS == 0 { io::begin() } else { None };
    let got = real!(MMAP(at, bytes, protection, flags, fd, offset) as fn(*mut u8, usize, c_int, c_int, c_int, i64) -> *mut u8, else FAILED);
    note(got, bytes, protection, flags, fd, sp, fp);
    if let Some(begun) = begun.filter(|_| got != FAILED) {
        begun.ended(Operation::Map, fd, bytes as i64, offset as u64, sp, fp);
    }
    got
}

#[allow(clippy::too_many_arguments)]
extern "C" fn mmap64_impl(
    at: *mut u8,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    let begun = if fd >= 0 && flags & ANONYMOUS == 0 { io::begin() } else { None };
    let got = real!(MMAP64(at, bytes, protection, flags, fd, offset) as fn(*mut u8, usize, c_int, c_int, c_int, i64) -> *mut u8, else FAILED);
    note(got, bytes, protection, flags, fd, sp, fp);
    if let Some(begun) = begun.filter(|_| got != FAILED) {
        begun.ended(Operation::Map, fd, bytes as i64, offset as u64, sp, fp);
    }
    got
}

fn note(
    got: *mut u8,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    sp: usize,
    fp: usize,
) {
    if got != FAILED {
        let packed = u64::from(protection as u32) | u64::from(flags as u32) << 32;
        lifecycle::mapped(got as usize, bytes, packed, fd, sp, fp);
    }
}

/// Interposes libc's `munmap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut u8, bytes: usize) -> c_int {
    let clock = lifecycle::clock_before();
    let result = real!(MUNMAP(at, bytes) as fn(*mut u8, usize) -> c_int, else -1);
    if result == 0 {
        lifecycle::unmapped(at as usize, bytes, clock);
    }
    result
}

/// Interposes libc's `mremap`. Like libc, it has a fifth argument that counts only if `flags` has
/// `MREMAP_FIXED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut u8,
    old_bytes: usize,
    bytes: usize,
    flags: c_int,
    to: *mut u8,
) -> *mut u8 {
    let got = real!(MREMAP(old, old_bytes, bytes, flags, to) as fn(*mut u8, usize, usize, c_int, *mut u8) -> *mut u8, else FAILED);
    if got != FAILED {
        lifecycle::remapped(old as usize, old_bytes, got as usize, bytes);
    }
    got
}

stack_hook!(#[doc = "Interposes libc's `shmat`."] shmat(id: c_int, at: *mut u8, flags: c_int) -> *mut u8, shmat_impl, "rcx", "r8");
unsafe extern "C" fn shmat_impl(
    id: c_int,
    at: *mut u8,
    flags: c_int,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    let got = real!(SHMAT(id, at, flags) as fn(c_int, *mut u8, c_int) -> *mut u8, else FAILED);
    if got != FAILED {
        lifecycle::attached(got as usize, id, sp, fp);
    }
    got
}

/// Interposes libc's `shmdt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmdt(at: *mut u8) -> c_int {
    let clock = lifecycle::clock_before();
    let result = real!(SHMDT(at) as fn(*mut u8) -> c_int, else -1);
    if result == 0 {
        lifecycle::detached(at as usize, clock);
    }
    result
}
