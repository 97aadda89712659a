//! What joins the hooks' records of calls that start work with CUPTI's of the work: how CUPTI numbers
//! a stream, which its records have in the place of the handle, and calls that part others.

use super::started;
use crate::loaded;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tprof_cupti_sys::*;
use tprof_wire::calls::{LEGACY_STREAM, THREADS_STREAM};

/// What is returned where it is not known.
const UNKNOWN: u64 = u64::MAX;

/// CUPTI's number of the calling thread's context in the high half, and of a stream of it; all ones
/// if CUPTI does not tell.
pub extern "C" fn number(handle: u64) -> u64 {
    find(handle).unwrap_or(UNKNOWN)
}

fn find(handle: u64) -> Option<u64> {
    let cupti = started::cupti()?;
    let (context_id, stream_id) = (cupti.context_id?, cupti.stream_id?);
    let context = current_context()?;
    let (mut of_context, mut number) = (0, 0);
    // Default streams are null, and whose that is states the flag.
    let (stream, by_thread) = match handle {
        LEGACY_STREAM => (0, 0),
        THREADS_STREAM => (0, 1),
        handle => (handle, 0),
    };
    // SAFETY: CUPTI's functions of these types, a context and a stream that the driver has just
    // used, and places for the answers.
    let of_stream = |context: CUcontext, number: &mut u32| unsafe {
        stream_id(context, stream as CUstream, by_thread, number)
    };
    // Without a context CUPTI has no number for a default stream, though its header has that as the usual
    // way (CUPTI 13.0 on an H200). A stream that was made may be of another context.
    let is_numbered = of_stream(context, &mut number) == CUPTI_SUCCESS
        || of_stream(core::ptr::null_mut(), &mut number) == CUPTI_SUCCESS;
    // SAFETY: as above.
    let result = unsafe { context_id(context, &raw mut of_context) };
    (is_numbered && result == CUPTI_SUCCESS)
        .then(|| u64::from(of_context) << 32 | u64::from(number))
}

fn current_context() -> Option<CUcontext> {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let mut context: *mut c_void = core::ptr::null_mut();
    // SAFETY: the driver's function of this name and type, with a place for its answer.
    let result = unsafe {
        let get: unsafe extern "C" fn(*mut *mut c_void) -> c_int =
            core::mem::transmute(of_driver(&FOUND, c"cuCtxGetCurrent")?);
        get(&raw mut context)
    };
    (result == 0 && !context.is_null()).then_some(context.cast())
}

/// Makes a call that changes nothing and that CUPTI records, of the agent's own thread.
pub fn mark() {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let Some(address) = of_driver(&FOUND, c"cuDeviceGetCount") else { return };
    let mut count: c_int = 0;
    // SAFETY: the driver's function of this name and type, with a place for its answer.
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
