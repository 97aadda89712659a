//! Hooks of the loader's functions `dlclose` and `dlsym`.
//!
//! When code is unloaded, everything that was learnt about its addresses must be dropped. `dlsym`
//! is hooked for two reasons. Profilers use it to find CUPTI's functions by name. And Python uses
//! it to look up the entry point of a module, at which time all libraries of the module are loaded.
//!
//! `dlopen` isn't hooked. The loader goes by the return address, so it would use this library's
//! RUNPATH instead of the caller's. New code is noticed when its unknown addresses occur.

use super::cupti;
use crate::{real, table};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicUsize;
use tprof_inject::{kernels, lifecycle, operators, python, unloading, unwind};

/// Interposes libc's `dlclose`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    lifecycle::code_goes();
    let unloading = unloading::begin();
    unwind::let_readers_leave();
    let error = real!(DLCLOSE(handle) as fn(*mut c_void) -> c_int, else -1);
    python::unloaded();
    // This happens before other threads may read again, since other code may be at the same
    // addresses next.
    if error == 0 {
        unwind::code_changed();
        kernels::forget();
        operators::unloaded();
    }
    unloading.end();
    error
}

/// Interposes libc's `dlsym`. The real function handles all names that don't begin with `cupti` or
/// `PyIn`, and handles that mean the caller's own scope. The hook jumps to the real function, so
/// that it sees the original caller.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym() {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        // These two are left to the real function: RTLD_DEFAULT is 0, and RTLD_NEXT is -1.
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "jbe 2f",
        "test rsi, rsi",
        "jz 2f",
        "cmp byte ptr [rsi], 'P'",
        "je 4f",
        "cmp byte ptr [rsi], 'c'",
        "jne 2f",
        "cmp byte ptr [rsi + 1], 'u'",
        "jne 2f",
        "cmp byte ptr [rsi + 2], 'p'",
        "jne 2f",
        "cmp byte ptr [rsi + 3], 't'",
        "jne 2f",
        "cmp byte ptr [rsi + 4], 'i'",
        "jne 2f",
        "jmp {cupti}",
        "2:",
        "mov rax, [rip + {real}]",
        "test rax, rax",
        "jz 3f",
        "jmp rax",
        "3:",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {late}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        // The name begins with P, and may be PyInit_…: the entry point of a module that Python has
        // loaded.
        "4:",
        "cmp byte ptr [rsi + 1], 'y'",
        "jne 2b",
        "cmp byte ptr [rsi + 2], 'I'",
        "jne 2b",
        "cmp byte ptr [rsi + 3], 'n'",
        "jne 2b",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {module}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp 2b",
        ".cfi_endproc",
        module = sym module_loaded,
        cupti = sym cupti::found_by_name,
        real = sym table::DLSYM,
        late = sym late,
    )
}

/// Called when Python has loaded a module, including the libraries that it is linked with.
extern "C" fn module_loaded() {
    operators::register_callbacks();
}

/// Returns the real `dlsym`, for a call that comes before the real functions were looked up.
extern "C" fn late() -> usize {
    let of: &AtomicUsize = &table::DLSYM;
    match table::address(of) {
        0 => nothing as *const () as usize,
        address => address,
    }
}

/// Used instead of `dlsym` if no library has it. Finds no symbol.
extern "C" fn nothing() -> usize {
    0
}
