//! Records the ranges, marks and names that a program reports through NVTX.
//!
//! NVTX consists of headers, so each library that uses it contains a copy of its own. At its first
//! use, a copy loads the library that `NVTX_INJECTION64_PATH` names, and calls its
//! `InitializeInjectionNvtx2` with a function that returns the copy's tables. A table says, by
//! number, where the copy's function pointers are. [`install`] stores tprof's functions there.
//! Functions with other numbers continue to do nothing. This needs neither a GPU nor CUDA.
//!
//! The handles that a program gets for domains and registered strings are addresses of names, which
//! a forked child inherits. Calls return the same values as without a tool, except handles and
//! numbers of ranges, since later calls use these to refer to different things.
//!
//! tprof does not record payload schemas and counters, resources, names of CUDA streams, events,
//! contexts and devices, and synchronisation objects. Of marks, it records time and text. Ranges
//! that a process leaves open end with the process, and are counted.
//!
//! The records of a push and its pop contain their depth, in the default domain and in a program's
//! first 15 domains. So a lost event there affects only its own range. In further domains, a lost
//! pop shifts the ends of the ranges around it. This was tested with NVTX 3 (CUDA 13.5, Python's
//! `nvtx` 0.2.17).

mod calls;
pub(crate) mod event;
pub(crate) mod ranges;

use crate::gpu::agent;
use calls::{CORE, DOMAINS};
use core::ffi::{c_int, c_uint, c_void};
use tprof_inject::gate;
use tprof_inject::registered_names;

/// The function that a copy of NVTX passes to the library that it loads.
pub type GetExportTable = unsafe extern "C" fn(table: u32) -> *const c_void;

/// Numbers of the tables that a [`GetExportTable`] returns.
mod table {
    pub const CALLBACKS: u32 = 1;
    pub const VERSION: u32 = 3;
}

/// Numbers of the modules of NVTX whose functions tprof replaces.
mod module {
    use core::ffi::c_int;
    pub const CORE: c_int = 1;
    pub const CORE2: c_int = 5;
}

/// The version of NVTX that this code was written for.
const VERSION: u32 = 3;

#[repr(C)]
struct Callbacks {
    bytes: usize,
    functions: Option<unsafe extern "C" fn(c_int, *mut *mut *mut usize, *mut c_uint) -> c_int>,
}

#[repr(C)]
struct VersionInfo {
    bytes: usize,
    version: u32,
    reserved: u32,
    set_version: Option<unsafe extern "C" fn(u32)>,
}

/// Makes one copy of NVTX call tprof's functions. Returns false if that is impossible; then the
/// copy works as without a tool.
///
/// # Safety
/// `get` is the function that a copy of NVTX 3 (or 2) passed.
pub unsafe fn install(get: GetExportTable) -> bool {
    agent::prepare();
    if gate::recording().is_none() || !registered_names::prepare() {
        return false;
    }
    // SAFETY: `get` comes from a copy of NVTX. It returns null, or a table that begins with its
    // size and lives as long as the process.
    let callbacks = unsafe { get(table::CALLBACKS).cast::<Callbacks>().as_ref() };
    let Some(callbacks) = callbacks.filter(|table| table.bytes >= size_of::<Callbacks>()) else {
        return false;
    };
    let Some(functions) = callbacks.functions else { return false };
    // SAFETY: `get` comes from a copy of NVTX. It returns null, or a table that begins with its
    // size and lives as long as the process.
    let version = unsafe { get(table::VERSION).cast::<VersionInfo>().as_ref() };
    if let Some(version) = version.filter(|table| table.bytes >= size_of::<VersionInfo>())
        && let Some(set) = version.set_version
    {
        // SAFETY: this function is in NVTX's own table, and NVTX demands that every tool calls it.
        unsafe { set(VERSION) };
    }
    let mut installed = false;
    for (module, ours) in [(module::CORE, CORE), (module::CORE2, DOMAINS)] {
        let (mut places, mut count) = (core::ptr::null_mut(), 0);
        // SAFETY: this function is in NVTX's own table, and writes to two locals.
        let known = unsafe { functions(module, &raw mut places, &raw mut count) };
        if known == 0 || places.is_null() {
            continue;
        }
        for (number, function) in ours {
            if *number > count {
                continue;
            }
            // SAFETY: NVTX's table has entries 0 to `count`. Each entry is null or the address of a
            // pointer to a function, whose type depends on the entry's number.
            unsafe {
                let place = *places.add(*number as usize);
                if !place.is_null() {
                    place.write(function.address());
                    installed = true;
                }
            }
        }
    }
    installed
}
