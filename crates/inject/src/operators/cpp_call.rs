//! Calls a C++ function that may throw, and catches the exception.
//!
//! The frame of [`call`] has a personality routine that catches any exception. It needs functions
//! of libgcc and libstdc++. Both are loaded in every process with C++ code, so they are looked up
//! by name.

use crate::loaded::{self, Loaded};
use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use tprof_wire::sync::{AtomicUsize, Ordering::Relaxed};

/// A function of the unwinder or of the C++ runtime.
struct RuntimeFunction {
    library: &'static [u8],
    name: &'static CStr,
    address: AtomicUsize,
}

const fn wanted(library: &'static [u8], name: &'static CStr) -> RuntimeFunction {
    RuntimeFunction { library, name, address: AtomicUsize::new(0) }
}

static SET_IP: RuntimeFunction = wanted(b"libgcc_s.so", c"_Unwind_SetIP");
static SET_REGISTER: RuntimeFunction = wanted(b"libgcc_s.so", c"_Unwind_SetGR");
static LANDING: RuntimeFunction = wanted(b"libgcc_s.so", c"_Unwind_GetLanguageSpecificData");
static BEGIN_CATCH: RuntimeFunction = wanted(b"libstdc++.so", c"__cxa_begin_catch");
static END_CATCH: RuntimeFunction = wanted(b"libstdc++.so", c"__cxa_end_catch");

/// Looks up the functions. Returns false if some are missing.
pub fn prepare() -> bool {
    [&SET_IP, &SET_REGISTER, &LANDING, &BEGIN_CATCH, &END_CATCH].iter().all(|wanted| {
        let found = loaded::find(|loaded: &Loaded| {
            loaded.base().starts_with(wanted.library).then(|| loaded.function(wanted.name))?
        });
        wanted.address.store(found.unwrap_or(0), Relaxed);
        found.is_some()
    })
}

/// The outcome of a call.
#[repr(C)]
struct CallOutcome {
    /// The value that the function returned, or the exception.
    value: u64,
    /// 1 if the function returned, 0 if it threw.
    returned: u64,
}

/// Calls `function` with three arguments. Returns its result; `None` if it threw.
///
/// # Safety
/// `function` can be called with these three arguments, and [`prepare`] has returned true.
pub unsafe fn call(function: usize, arguments: [u64; 3]) -> Option<u64> {
    let [first, second, third] = arguments;
    // SAFETY: the caller guarantees that the function can be called with these arguments, and that
    // `prepare` has found the functions that `personality` calls.
    let outcome = unsafe { enter(function, first, second, third) };
    if outcome.returned != 0 {
        return Some(outcome.value);
    }
    // SAFETY: `prepare` found these functions of the C++ ABI by name. The exception is the one that
    // the personality routine got.
    unsafe {
        let begin: unsafe extern "C" fn(u64) -> u64 =
            core::mem::transmute(BEGIN_CATCH.address.load(Relaxed));
        let end: unsafe extern "C" fn() = core::mem::transmute(END_CATCH.address.load(Relaxed));
        begin(outcome.value);
        end();
    }
    None
}

/// Calls the function. The language-specific data of this frame, which the personality routine
/// reads, is the address where execution continues after an exception.
#[allow(
    named_asm_labels,
    reason = "a naked function is assembled once, which Rust 1.89 doesn't consider"
)]
#[unsafe(naked)]
unsafe extern "C" fn enter(function: usize, first: u64, second: u64, third: u64) -> CallOutcome {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}",
        ".cfi_lsda 0x1b, .Ltprof_caught",
        "endbr64",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "call rax",
        "mov edx, 1",
        "pop rbp",
        ".cfi_remember_state",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_restore_state",
        ".Ltprof_caught:",
        "endbr64",
        "mov rsp, rbp",
        "xor edx, edx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        personality = sym personality,
    )
}

/// The personality routine of [`enter`]'s frame. The unwinder calls it when it reaches that frame.
unsafe extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    exception: u64,
    context: *mut c_void,
) -> c_int {
    const SEARCH: c_int = 1;
    const HANDLER: c_int = 4;
    const FOUND: c_int = 6;
    const INSTALL: c_int = 7;
    const CONTINUE: c_int = 8;
    if actions & SEARCH != 0 {
        return FOUND;
    }
    if actions & HANDLER == 0 {
        // A thread that is being cancelled must unwind further.
        return CONTINUE;
    }
    // SAFETY: `prepare` found these functions of the unwinder by name; register 0 is rax.
    unsafe {
        let landing: unsafe extern "C" fn(*mut c_void) -> u64 =
            core::mem::transmute(LANDING.address.load(Relaxed));
        let set_register: unsafe extern "C" fn(*mut c_void, c_int, u64) =
            core::mem::transmute(SET_REGISTER.address.load(Relaxed));
        let set_ip: unsafe extern "C" fn(*mut c_void, u64) =
            core::mem::transmute(SET_IP.address.load(Relaxed));
        set_register(context, 0, exception);
        set_ip(context, landing(context));
    }
    INSTALL
}
