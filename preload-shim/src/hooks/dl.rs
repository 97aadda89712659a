//! Code that goes away: what was learnt of its addresses must be forgotten. And functions that are
//! found by name: of those that are hooked, CUPTI's are what profilers find so. The entry of a Python module is found so too, once
//! all of its libraries are loaded.
//!
//! `dlopen` is not hooked: the loader would look up the caller's RUNPATH by
//! this library's return address. New code shows by its unknown addresses.

use super::cupti;
use crate::{real, table};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicUsize;
use tprof_inject::{kernels, operators, python, unloading, unwind};

/// Interposes libc's `dlclose`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let unloading = unloading::begin();
    unwind::let_readers_leave();
    let error = real!(DLCLOSE(handle) as fn(*mut c_void) -> c_int, else -1);
    python::unloaded();
    unloading.end();
    if error == 0 {
        unwind::code_changed();
        kernels::forget();
        operators::unloaded();
    }
    error
}

/// Hook. A name that begins neither with `cupti` nor with `PyIn`, and the handles that mean the caller's own scope,
/// are the real function's affair: it is jumped to, so that it finds its caller.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym() {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        // RTLD_DEFAULT is 0, RTLD_NEXT -1.
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
        // PyInit_…: the entry of a module that Python has loaded.
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

/// Python has loaded a module, with what that is linked with.
extern "C" fn module_loaded() {
    operators::register_callbacks();
}

/// The real function, before the list was searched.
extern "C" fn late() -> usize {
    let of: &AtomicUsize = &table::DLSYM;
    match table::address(of) {
        0 => nothing as *const () as usize,
        address => address,
    }
}

/// No library has the function: nothing can be found.
extern "C" fn nothing() -> usize {
    0
}
