//! How CUPTI numbers a stream, for the hooks: they record the calls that start work, and its records
//! of the work have this number in the place of the handle.

use super::started;
use crate::loaded;
use core::ffi::{c_int, c_void};
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
    let (mut of_context, mut of_stream) = (0, 0);
    // Default streams are null, and whose that is states the flag.
    let (stream, by_thread) = match handle {
        LEGACY_STREAM => (0, 0),
        THREADS_STREAM => (0, 1),
        handle => (handle, 0),
    };
    // SAFETY: CUPTI's functions of these types, a context and a stream that the driver has just
    // used, and places for the answers. A null context is the usual way, by the header.
    let results = unsafe {
        [
            context_id(context, &raw mut of_context),
            stream_id(core::ptr::null_mut(), stream as CUstream, by_thread, &raw mut of_stream),
        ]
    };
    (results == [CUPTI_SUCCESS; 2]).then(|| u64::from(of_context) << 32 | u64::from(of_stream))
}

fn current_context() -> Option<CUcontext> {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    if FOUND.load(Relaxed) == 0 {
        // The driver is never unloaded.
        FOUND.store(loaded::named(b"libcuda.so")?.function(c"cuCtxGetCurrent")?, Relaxed);
    }
    let mut context: *mut c_void = core::ptr::null_mut();
    // SAFETY: the driver's function of this name and type, with a place for its answer.
    let result = unsafe {
        let get: unsafe extern "C" fn(*mut *mut c_void) -> c_int =
            core::mem::transmute(FOUND.load(Relaxed));
        get(&raw mut context)
    };
    (result == 0 && !context.is_null()).then_some(context.cast())
}
