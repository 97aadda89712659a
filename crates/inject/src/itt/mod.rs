//! ITT: tasks, frames, regions, events and markers that a program reports to Intel's tools, as
//! oneDNN and PyTorch's `emit_itt` do. They are written as NVTX's ranges are.
//!
//! Each library that uses ITT carries a static part. At its first use that loads what
//! `INTEL_LIBITTNOTIFY64` names, and calls its `__itt_api_init` with a structure that lists places
//! of function pointers by name ([`install`]). What this does not record gets the function that it
//! has without a tool, and is not called.
//!
//! Recorded are tasks, overlapped tasks and regions by id, frames that begin and end, events,
//! markers, and names of threads. Tested with Intel's own static part (Python's `ittapi` 1.2.2).

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
    /// Loads the tool, then calls what is in its place.
    init: usize,
    /// What stands there without a tool; 0 for most.
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
/// From this build on a static part's list is of [`Listed`]s.
const FIRST_BUILD: c_ulong = 20_111_111;

/// Puts functions that record into the places of one static part. Where nothing can be recorded,
/// those that it has without a tool.
///
/// # Safety
/// `global` is null or what a static part of ITT passes, which holds its lock meanwhile.
pub unsafe fn install(global: *mut Global, groups: c_int) {
    // SAFETY: the caller's premise.
    let Some(global) = (unsafe { global.as_ref() }) else { return };
    let is_known = global.magic == MAGIC && global.major == MAJOR && global.build >= FIRST_BUILD;
    if !is_known || global.functions.is_null() {
        return;
    }
    agent::prepare();
    // Attaches the process where it may. Functions ask for themselves whether it records: one that
    // attaches later does then.
    let _ = gate::recording();
    let records = state::PHASE.load(Relaxed) != phase::OFF && names::prepare();
    let mut at = global.functions;
    loop {
        // SAFETY: the list ends with a name that is null.
        let function = unsafe { &*at };
        if function.name.is_null() {
            break;
        }
        // SAFETY: a static text.
        let name = unsafe { CStr::from_ptr(function.name) };
        let ours = calls::function(name).filter(|_| records && function.group & groups != 0);
        if !function.place.is_null() {
            // SAFETY: the place of a pointer to a function of the type that this name has.
            unsafe { function.place.write(ours.unwrap_or(function.without)) };
        }
        at = at.wrapping_add(1);
    }
    if records {
        // SAFETY: the static part's list, under its lock.
        unsafe { handles::enable(global.domains) };
    }
}
