//! Implements contexts that a program makes in addition to the devices' primary contexts. CUPTI's
//! records name the device's primary context even for these.

use crate::memory;
use crate::virtual_memory::call;
use crate::{choose, chosen, streams};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;

const SUCCESS: u32 = 0;
const INVALID_VALUE: u32 = 1;
const INVALID_CONTEXT: u32 = 201;
/// The first handle, above the handles of primary contexts.
const FIRST: usize = 0x1000;

/// Devices by context handle. The handle of a destroyed context is used again.
static MADE: Mutex<BTreeMap<usize, u32>> = Mutex::new(BTreeMap::new());
thread_local!(static CURRENT: Cell<usize> = const { Cell::new(0) });

/// Returns the thread's context if this module made it; else 0.
pub fn current() -> usize {
    CURRENT.get()
}

/// Like the driver's function up to CUDA 12: the new context becomes the thread's current one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v2(
    context: *mut *mut c_void,
    _flags: c_uint,
    device: c_int,
) -> u32 {
    call(235, c"cuCtxCreate_v2", |_| {
        if !choose(device as u32) {
            return INVALID_VALUE;
        }
        let mut made = MADE.lock().unwrap();
        let handle = (FIRST..).step_by(0x100).find(|at| !made.contains_key(at)).unwrap_or(FIRST);
        made.insert(handle, device as u32);
        CURRENT.set(handle);
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *context = handle as *mut c_void };
        SUCCESS
    })
}

/// Like the driver's function, except that a context is always current.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> u32 {
    let current = match CURRENT.get() {
        0 => streams::context_of(chosen()) as usize,
        made => made,
    };
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *context = current as *mut c_void };
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> u32 {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *device = chosen() as c_int };
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> u32 {
    let handle = context as usize;
    let made = MADE.lock().unwrap().get(&handle).copied();
    let device = made.or_else(|| (handle as u32).checked_sub(1));
    match device {
        Some(device) if choose(device) => {
            CURRENT.set(if made.is_some() { handle } else { 0 });
            SUCCESS
        }
        _ => INVALID_VALUE,
    }
}

/// Like the driver's function: it frees the context's memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDestroy_v2(context: *mut c_void) -> u32 {
    call(322, c"cuCtxDestroy_v2", |id| {
        streams::drain_all(id);
        let handle = context as usize;
        if MADE.lock().unwrap().remove(&handle).is_none() {
            return INVALID_CONTEXT;
        }
        memory::release_context(handle, id);
        if CURRENT.get() == handle {
            CURRENT.set(0);
        }
        SUCCESS
    })
}
