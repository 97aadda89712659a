//! Lets the collector join the hooks' records of calls that start work with CUPTI's records of the
//! work. CUPTI's records contain CUPTI's number of a stream instead of its handle, so this finds
//! that number. It also makes marking calls, which separate the hooked calls before them from those
//! after them.

use super::started;
use core::ffi::{CStr, c_int, c_void};
use tprof_cupti_sys::*;
use tprof_inject::loaded;
use tprof_wire::calls::{LEGACY_STREAM, THREADS_STREAM};
use tprof_wire::sync::{AtomicUsize, Ordering::Relaxed};

/// Used for a number that isn't known.
const UNKNOWN: u64 = u64::MAX;

/// CUPTI's number of the calling thread's context in the high half, and of the stream with this
/// handle in the low half; all ones if CUPTI doesn't know them.
pub extern "C" fn number(handle: u64) -> u64 {
    find(handle).unwrap_or(UNKNOWN)
}

fn find(handle: u64) -> Option<u64> {
    let cupti = started::cupti()?;
    let (context_id, stream_id) = (cupti.context_id?, cupti.stream_id?);
    let context = current_context()?;
    let (mut of_context, mut number) = (0, 0);
    // The default streams have a null handle. The flag says whether the thread's own one or the
    // legacy one is meant.
    let (stream, by_thread) = match handle {
        LEGACY_STREAM => (0, 0),
        THREADS_STREAM => (0, 1),
        handle => (handle, 0),
    };
    // SAFETY: CUPTI's functions have these types and write to locals. The hook calls this after the
    // driver has used the context and the stream, so they are valid.
    let of_stream = |context: CUcontext, number: &mut u32| unsafe {
        stream_id(context, stream as CUstream, by_thread, number)
    };
    // Without a context, CUPTI doesn't return the number of a default stream, although its header
    // calls that the usual way (CUPTI 13.0 on an H200). A stream that the program made may belong
    // to another context, so the second attempt has no context.
    let is_numbered = of_stream(context, &mut number) == CUPTI_SUCCESS
        || of_stream(core::ptr::null_mut(), &mut number) == CUPTI_SUCCESS;
    // SAFETY: CUPTI's function has this type and writes to a local; the context is the thread's
    // current one.
    let result = unsafe { context_id(context, &raw mut of_context) };
    (is_numbered && result == CUPTI_SUCCESS)
        .then(|| u64::from(of_context) << 32 | u64::from(number))
}

fn current_context() -> Option<CUcontext> {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let mut context: *mut c_void = core::ptr::null_mut();
    // SAFETY: `cuCtxGetCurrent` has this type, and writes to a local.
    let result = unsafe {
        let get: unsafe extern "C" fn(*mut *mut c_void) -> c_int =
            core::mem::transmute(of_driver(&FOUND, c"cuCtxGetCurrent")?);
        get(&raw mut context)
    };
    (result == 0 && !context.is_null()).then_some(context.cast())
}

/// Makes a call on the agent's thread that CUPTI records and that changes nothing.
pub fn mark() {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let Some(address) = of_driver(&FOUND, c"cuDeviceGetCount") else { return };
    let mut count: c_int = 0;
    // SAFETY: `cuDeviceGetCount` has this type, and writes to a local.
    unsafe {
        let get: unsafe extern "C" fn(*mut c_int) -> c_int = core::mem::transmute(address);
        get(&raw mut count);
    }
}

fn of_driver(place: &AtomicUsize, name: &CStr) -> Option<usize> {
    if place.load(Relaxed) == 0 {
        // The driver is never unloaded.
        place.store(loaded::named(b"libcuda.so")?.function(name)?, Relaxed);
    }
    Some(place.load(Relaxed))
}
