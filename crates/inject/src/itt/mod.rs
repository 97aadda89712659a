//! ITT: tasks, frames, regions, events and markers that a program reports to Intel's tools, as
//! oneDNN and PyTorch's `emit_itt` do. They are recorded like NVTX's ranges.
//!
//! Each library that uses ITT contains a static part. At its first use, the static part loads the
//! library that `INTEL_LIBITTNOTIFY64` names, and calls its `__itt_api_init` with a structure that
//! lists function pointers by name ([`install`]). Functions that tprof doesn't record get the
//! implementation that they have without a tool, so tprof is not called.
//!
//! Recorded are tasks, overlapped tasks, regions by id, frames that begin and end, events, markers,
//! and names of threads. Tested with Intel's own static part (Python's `ittapi` 1.2.2).

mod calls;
mod handles;

use crate::gate;
use crate::gpu::agent;
use crate::nvtx::names;
use crate::state::{self, phase};
use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use core::sync::atomic::Ordering::Relaxed;

/// `___itt_api_info`, as static parts since 2011 have it.
#[repr(C)]
struct Listed {
    name: *const c_char,
    place: *mut usize,
    /// The pointer's first value: a function that loads the tool, and then calls the function that
    /// replaced it.
    init: usize,
    /// The pointer's value without a tool; 0 for most functions.
    without: usize,
    group: c_int,
}

/// Bytes of a `pthread_mutex_t`.
const MUTEX_BYTES: usize = 40;

/// The beginning of `___itt_global`, the same since 2011.
#[repr(C)]
pub struct Global {
    magic: [u8; 8],
    major: c_ulong,
    minor: c_ulong,
    build: c_ulong,
    is_initialized: c_long,
    has_mutex: c_long,
    counter: c_long,
    mutex: [u8; MUTEX_BYTES],
    library: *mut c_void,
    error_handler: *mut c_void,
    path: *mut *const c_char,
    functions: *mut Listed,
    next: *mut Global,
    threads: *mut c_void,
    domains: *mut handles::DomainHandle,
}
const _: () = assert!(core::mem::offset_of!(Global, functions) == 120);

const MAGIC: [u8; 8] = [0xED, 0xAB, 0xAB, 0xEC, 0x0D, 0xEE, 0xDA, 0x30];
const MAJOR: c_ulong = 3;
/// First build whose static part lists its functions as [`Listed`]s.
const FIRST_BUILD: c_ulong = 20_111_111;

/// Makes the function pointers of one static part lead to functions that record. If nothing can be
/// recorded, they get the values that they have without a tool.
///
/// # Safety
/// `global` is null, or the structure that a static part of ITT passes while it holds its own lock.
pub unsafe fn install(global: *mut Global, groups: c_int) {
    // SAFETY: the caller guarantees null or a static part's structure, under the static part's
    // lock.
    let Some(global) = (unsafe { global.as_ref() }) else { return };
    let is_known = global.magic == MAGIC && global.major == MAJOR && global.build >= FIRST_BUILD;
    if !is_known || global.functions.is_null() {
        return;
    }
    agent::prepare();
    // Attaches the process if possible. The functions check for themselves whether the process
    // records, so they also work in one that attaches later.
    let _ = gate::recording();
    let records = state::PHASE.load(Relaxed) != phase::OFF && names::prepare();
    let mut at = global.functions;
    loop {
        // SAFETY: the static part's list ends with an entry whose name is null, where this loop
        // ends.
        let function = unsafe { &*at };
        if function.name.is_null() {
            break;
        }
        // SAFETY: the static part's names are string literals.
        let name = unsafe { CStr::from_ptr(function.name) };
        let ours = calls::function(name).filter(|_| records && function.group & groups != 0);
        if !function.place.is_null() {
            // SAFETY: `place` is the static part's pointer to a function of this name, and the
            // address is that of a function of its type.
            unsafe { function.place.write(ours.unwrap_or(function.without)) };
        }
        at = at.wrapping_add(1);
    }
    if records {
        // SAFETY: this is the static part's list of domains, which its lock protects during this
        // call.
        unsafe { handles::enable(global.domains) };
    }
}
