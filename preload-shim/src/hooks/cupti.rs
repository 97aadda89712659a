//! Hooks of those functions of CUPTI that act on the whole process. While the CUPTI agent uses the
//! same CUPTI library, the agent serves these calls, so that both the job's own profiler and tprof
//! get their records.
//!
//! A hook doesn't change the arguments, and jumps to the function that must serve the call: CUPTI's
//! or the agent's. That function returns to the caller.

use crate::table;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use tprof_inject::cupti_functions::{self, Number};
use tprof_inject::{agent_link, callee, loaded};
use tprof_wire::env;

/// Number of the first of these hooks in [`callee`]'s cache. It is above the numbers of all other
/// hooks.
const FIRST: u32 = 8192;
const PREFIX: &[u8] = b"libcupti.so";
/// What a call returns if no library has the function: `CUPTI_ERROR_NOT_INITIALIZED`.
const NO_CUPTI: u32 = 15;

macro_rules! hooks {
    ($($name:ident $instead:ident,)*) => {
        static NAMES: &[&[u8]] = &[$(concat!(stringify!($name), "\0").as_bytes()),*];
        static HOOKS: &[unsafe extern "C" fn()] = &[$($name),*];
        $(
            /// Interposes the function of this name.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                    ".cfi_startproc",
                    "endbr64",
                    "push rbp",
                    ".cfi_adjust_cfa_offset 8",
                    ".cfi_rel_offset rbp, 0",
                    "mov rbp, rsp",
                    ".cfi_def_cfa_register rbp",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "mov edi, {number}",
                    "mov rsi, [rbp + 8]",
                    "call {target}",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "pop rbp",
                    ".cfi_def_cfa rsp, 8",
                    "jmp rax",
                    ".cfi_endproc",
                    number = const Number::$name as u32,
                    target = sym target,
                )
            }
        )*
    };
}
tprof_inject::cupti_functions!(hooks);

extern "C" fn absent() -> u32 {
    NO_CUPTI
}

/// Returns the address of the function that must serve a call which returns to `caller`.
extern "C" fn target(number: u32, caller: usize) -> usize {
    let Some(name) = NAMES.get(number as usize) else { return absent as *const () as usize };
    let own = (&raw const NAMES) as usize;
    match callee::find(name, FIRST + number, caller, PREFIX, own) {
        0 => absent as *const () as usize,
        real => {
            if cupti_functions::begins(number) {
                load_agent();
            }
            instead(number, real)
        }
    }
}

/// Loads the agent if the driver will load it but has not done so yet, since the agent must know
/// what a client requests from CUPTI before that.
fn load_agent() {
    type Open = unsafe extern "C" fn(*const c_char, i32) -> *mut c_void;
    const NOW: i32 = 2;
    static TRIED: AtomicBool = AtomicBool::new(false);
    if TRIED.swap(true, Relaxed) {
        return;
    }
    if let (Some(open), Some(path)) = (loaded::libc_function(c"dlopen"), agent_link::agents_path())
    {
        // SAFETY: the C library's `dlopen` has this type, and the path is NUL terminated.
        unsafe { core::mem::transmute::<usize, Open>(open)(path.as_c().as_ptr(), NOW) };
    }
}

/// Address of a function of the agent; `None` if the agent isn't loaded yet.
fn of_agent(name: &CStr) -> Option<usize> {
    loaded::named(env::AGENT_LIBRARY.as_bytes()).and_then(|agent| agent.function(name))
}

/// The agent's substitute for a function of CUPTI; the same function if the agent isn't loaded.
fn instead(number: u32, real: usize) -> usize {
    type Instead = extern "C" fn(u32, usize) -> usize;
    static AGENT: AtomicUsize = AtomicUsize::new(0);
    let mut agent = AGENT.load(Relaxed);
    if agent == 0 {
        let Some(found) = of_agent(c"tprof_cupti_instead") else { return real };
        agent = found;
        // The driver never unloads the agent.
        AGENT.store(agent, Relaxed);
    }
    // SAFETY: in the agent `tprof_cupti_instead` has this type. Agent and this library are of one
    // version, since they are shipped together.
    unsafe { core::mem::transmute::<usize, Instead>(agent)(number, real) }
}

/// Makes the agent flush what CUPTI has recorded. Called when a context is about to be destroyed.
#[cold]
pub fn flush() {
    if let Some(flush) = of_agent(c"tprof_cupti_flush") {
        // SAFETY: in the agent `tprof_cupti_flush` has this type. Agent and this library are of one
        // version, since they are shipped together.
        unsafe { core::mem::transmute::<usize, extern "C" fn()>(flush)() }
    }
}

/// Implements `dlsym` for names that begin with `cupti`. It looks up the real function first. It
/// returns the agent's substitute while the agent serves that function, and the hook if the hook
/// would call that function. Otherwise it returns the real function.
pub unsafe extern "C" fn found_by_name(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let address = table::address(&table::DLSYM);
    if address == 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: this is the address of the real `dlsym`, and gets the arguments of this function's
    // caller.
    let real = unsafe { core::mem::transmute::<usize, Dlsym>(address)(handle, name) };
    if real.is_null() {
        return real;
    }
    // SAFETY: the caller of `dlsym` passed a NUL-terminated name, since the real function has read
    // it.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    let Some(number) = NAMES.iter().position(|known| *known == name) else { return real };
    let instead = instead(number as u32, real as usize);
    if instead != real as usize {
        return instead as *mut c_void;
    }
    // The driver may load the agent later than now. So the program gets the hook, which finds the
    // agent then.
    let own = (&raw const NAMES) as usize;
    let hook = HOOKS.get(number).filter(|_| {
        NAMES.get(number).is_some_and(|name| {
            callee::find(name, FIRST + number as u32, own, PREFIX, own) == real as usize
        })
    });
    hook.map_or(real, |hook| *hook as *mut c_void)
}
