//! Hooks of the functions with which a program maps and unmaps memory.

use crate::real;
use core::arch::naked_asm;
use core::ffi::c_int;
use tprof_inject::{lifecycle, stack_hook};

/// The value that `mmap` returns on failure (`MAP_FAILED`).
const FAILED: *mut u8 = usize::MAX as *mut u8;

/// Defines a hook of `mmap`. The six arguments of `mmap` fill the registers, so the hook passes the
/// stack and frame pointers on the stack.
macro_rules! map_hook {
    ($name:ident, $target:path) => {
        /// Interposes the function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_: *mut u8, _: usize, _: c_int, _: c_int, _: c_int, _: i64) -> *mut u8 {
            naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "mov rax, rsp",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "push rbp",
                ".cfi_adjust_cfa_offset 8",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                "call {target}",
                "add rsp, 24",
                ".cfi_adjust_cfa_offset -24",
                "ret",
                ".cfi_endproc",
                target = sym $target,
            )
        }
    };
}

map_hook!(mmap, mmap_impl);
map_hook!(mmap64, mmap64_impl);

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
    let got = real!(MMAP(at, bytes, protection, flags, fd, offset) as fn(*mut u8, usize, c_int, c_int, c_int, i64) -> *mut u8, else FAILED);
    note(got, bytes, protection, flags, fd, sp, fp);
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
    let got = real!(MMAP64(at, bytes, protection, flags, fd, offset) as fn(*mut u8, usize, c_int, c_int, c_int, i64) -> *mut u8, else FAILED);
    note(got, bytes, protection, flags, fd, sp, fp);
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
