//! Hooks of CUPTI's functions that act on the whole process. While the CUPTI agent uses that CUPTI,
//! the agent serves the calls, so that the job's own profiler and tprof both get their records.
//!
//! A hook jumps to the function to which the call belongs, with the arguments untouched; that
//! function returns to the caller.

use crate::table;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use tprof_inject::gpu::client::functions::{self, Number};
use tprof_inject::gpu::places;
use tprof_inject::{callee, loaded};
use tprof_wire::env;

/// First number of these hooks, which is above those of all other hooks.
const FIRST: u32 = 8192;
const PREFIX: &[u8] = b"libcupti.so";
/// Result of a call if no library has the function: `CUPTI_ERROR_NOT_INITIALIZED`.
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

/// The address of the function to which a call that returns to `caller` belongs.
extern "C" fn target(number: u32, caller: usize) -> usize {
    let Some(name) = NAMES.get(number as usize) else { return absent as *const () as usize };
    let own = (&raw const NAMES) as usize;
    match callee::find(name, FIRST + number, caller, PREFIX, own) {
        0 => absent as *const () as usize,
        real => {
            if functions::begins(number) {
                load_agent();
            }
            instead(number, real)
        }
    }
}

/// Loads the agent if the driver will load it but has not done so yet: the agent must know what a
/// client asks of CUPTI before that.
fn load_agent() {
    type Open = unsafe extern "C" fn(*const c_char, i32) -> *mut c_void;
    const NOW: i32 = 2;
    static TRIED: AtomicBool = AtomicBool::new(false);
    if TRIED.swap(true, Relaxed) {
        return;
    }
    if let (Some(open), Some(path)) = (loaded::libc_function(c"dlopen"), places::of_agent()) {
        // SAFETY: the C library's `dlopen` has this type, and the path is NUL terminated.
        unsafe { core::mem::transmute::<usize, Open>(open)(path.as_c().as_ptr(), NOW) };
    }
}

/// A function of the agent's; `None` if the agent isn't loaded yet.
fn of_agent(name: &CStr) -> Option<usize> {
    loaded::named(env::AGENT_LIBRARY.as_bytes()).and_then(|agent| agent.function(name))
}

/// The agent's substitute for a function of CUPTI's; that function itself if there is no agent.
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
    // SAFETY: `tprof_cupti_instead` has this type in the agent, which is of this version.
    unsafe { core::mem::transmute::<usize, Instead>(agent)(number, real) }
}

/// Called when a context is about to be destroyed: the agent flushes what CUPTI has recorded of it.
#[cold]
pub fn flush() {
    if let Some(flush) = of_agent(c"tprof_cupti_flush") {
        // SAFETY: `tprof_cupti_flush` has this type in the agent, which is of this version.
        unsafe { core::mem::transmute::<usize, extern "C" fn()>(flush)() }
    }
}

/// The address that `dlsym` returns for a name that begins with `cupti`. It is the agent's function
/// while the agent serves the found one, or the hook if the hook would call the found one;
/// otherwise it is the found one.
pub unsafe extern "C" fn found_by_name(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let address = table::address(&table::DLSYM);
    if address == 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: this is the address of the real `dlsym`, called with its caller's arguments.
    let real = unsafe { core::mem::transmute::<usize, Dlsym>(address)(handle, name) };
    if real.is_null() {
        return real;
    }
    // SAFETY: the caller of `dlsym` passed a NUL-terminated name, which the real function has read.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    let Some(number) = NAMES.iter().position(|known| *known == name) else { return real };
    let instead = instead(number as u32, real as usize);
    if instead != real as usize {
        return instead as *mut c_void;
    }
    // The agent is loaded with the driver, perhaps later than now, so the program gets the hook.
    let own = (&raw const NAMES) as usize;
    let hook = HOOKS.get(number).filter(|_| {
        NAMES.get(number).is_some_and(|name| {
            callee::find(name, FIRST + number as u32, own, PREFIX, own) == real as usize
        })
    });
    hook.map_or(real, |hook| *hook as *mut c_void)
}
