//! NVTX: ranges, marks and names that a program gives itself.
//!
//! NVTX consists of headers: each library that uses it carries its own copy. At its
//! first use a copy loads what `NVTX_INJECTION64_PATH` names and calls
//! `InitializeInjectionNvtx2` with a function that hands out its tables: places of
//! function pointers, by number. Ours are put there ([`install`]); what is left
//! by itself does nothing. No GPU and no CUDA are needed.
//!
//! Handles that a program gets (domains, registered strings) are addresses of
//! names, which outlive a fork. What a call returns is what it returns without a tool, but
//! for handles and numbers of ranges, which must differ for the calls that take them.
//!
//! Not recorded: payload schemas and counters, resources, names of CUDA streams, events, contexts
//! and devices, synchronisation objects. Marks keep time and text. Ranges that a process leaves
//! open end with it, and are counted as such. A push and its pop carry their depth in the default
//! domain and a program's first 15 domains, where a lost event costs only its own range; in
//! further domains a lost pop shifts the ends of the ranges around it. Tested with NVTX 3 (CUDA
//! 13.5, Python's `nvtx` 0.2.17).

mod calls;
pub(crate) mod event;
pub(crate) mod names;
pub(crate) mod ranges;

use crate::gate;
use crate::gpu::agent;
use calls::{CORE, DOMAINS};
use core::ffi::{c_int, c_uint, c_void};

/// The function that a copy of NVTX passes to the library that it loads.
pub type GetExportTable = unsafe extern "C" fn(table: u32) -> *const c_void;

/// Numbers of tables that it hands out.
mod table {
    pub const CALLBACKS: u32 = 1;
    pub const VERSION: u32 = 3;
}

/// NVTX's modules of functions that are of interest.
mod module {
    use core::ffi::c_int;
    pub const CORE: c_int = 1;
    pub const CORE2: c_int = 5;
}

/// The version of NVTX that this was written for.
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

/// Begins to record the calls of one copy of NVTX; false if that cannot be, and the
/// copy then goes on as without a tool.
///
/// # Safety
/// `get` is what a copy of NVTX 3 (or 2) passed.
pub unsafe fn install(get: GetExportTable) -> bool {
    agent::prepare();
    if gate::recording().is_none() || !names::prepare() {
        return false;
    }
    // SAFETY: the caller's premise; a table begins with its size, and is for good.
    let callbacks = unsafe { get(table::CALLBACKS).cast::<Callbacks>().as_ref() };
    let Some(callbacks) = callbacks.filter(|table| table.bytes >= size_of::<Callbacks>()) else {
        return false;
    };
    let Some(functions) = callbacks.functions else { return false };
    // SAFETY: the caller's premise; a table begins with its size, and is for good.
    let version = unsafe { get(table::VERSION).cast::<VersionInfo>().as_ref() };
    if let Some(version) = version.filter(|table| table.bytes >= size_of::<VersionInfo>())
        && let Some(set) = version.set_version
    {
        // SAFETY: NVTX's function; every tool is to call it.
        unsafe { set(VERSION) };
    }
    let mut installed = false;
    for (module, ours) in [(module::CORE, CORE), (module::CORE2, DOMAINS)] {
        let (mut places, mut count) = (core::ptr::null_mut(), 0);
        // SAFETY: NVTX's function, with places for its answers.
        let known = unsafe { functions(module, &raw mut places, &raw mut count) };
        if known == 0 || places.is_null() {
            continue;
        }
        for (number, function) in ours {
            if *number > count {
                continue;
            }
            // SAFETY: a table of NVTX's has entries 0 to `count`; each is null or the
            // place of a pointer to a function of the type that this number has.
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
