//! Records what a program reports through ITT, Intel's interface for tools: tasks, frames, regions,
//! events and markers. oneDNN and PyTorch's `emit_itt` use it. The records are the same as those of
//! NVTX's ranges.
//!
//! Each library that uses ITT contains a static part of ITT. At its first use, the static part
//! loads the library that `INTEL_LIBITTNOTIFY64` names, and calls its `__itt_api_init` with a
//! structure that lists function pointers by name ([`install`]). Functions that tprof doesn't
//! record get the implementation that they have without a tool, so they don't call tprof.
//!
//! tprof records tasks, overlapped tasks, regions by id, frames that begin and end, events,
//! markers, and names of threads. This was tested with Intel's own static part (Python's `ittapi`
//! 1.2.2).

mod calls;
mod handles;

use crate::gpu::agent;
use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use tprof_inject::gate;
use tprof_inject::registered_names;
use tprof_inject::state::{self, phase};
use tprof_wire::sync::Ordering::Relaxed;

/// `___itt_api_info`, with the layout that static parts have since 2011.
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

/// Makes the function pointers of one static part point at functions that record. If this process
/// can't record, they get the values that they have without a tool.
///
/// # Safety
/// `global` is null, or the structure that a static part of ITT passes while it holds its own lock.
pub unsafe fn install(global: *mut Global, groups: c_int) {
    // SAFETY: the caller guarantees null or a static part's structure, and that the static part's
    // lock is locked.
    let Some(global) = (unsafe { global.as_ref() }) else { return };
    let is_known = global.magic == MAGIC && global.major == MAJOR && global.build >= FIRST_BUILD;
    if !is_known || global.functions.is_null() {
        return;
    }
    agent::prepare();
    // This attaches the process if possible. The functions themselves check whether the process
    // records, so they also work in a process that attaches later.
    let _ = gate::recording();
    let records = state::PHASE.load(Relaxed) != phase::OFF && registered_names::prepare();
    let mut at = global.functions;
    loop {
        // SAFETY: the static part's list ends with an entry whose name is null, at which this loop
        // stops.
        let function = unsafe { &*at };
        if function.name.is_null() {
            break;
        }
        // SAFETY: the static part's names are string literals.
        let name = unsafe { CStr::from_ptr(function.name) };
        let ours = calls::function(name).filter(|_| records && function.group & groups != 0);
        if !function.place.is_null() {
            // SAFETY: `place` is the static part's pointer to a function of this name, and the new
            // address is that of a function of the same type.
            unsafe { function.place.write(ours.unwrap_or(function.without)) };
        }
        at = at.wrapping_add(1);
    }
    if records {
        // SAFETY: this is the static part's list of domains. The static part holds its lock during
        // this call, which protects the list.
        unsafe { handles::enable(global.domains) };
    }
}
