//! CUPTI's functions that return the numbers of contexts and streams in records.

use crate::enter;
use tprof_cupti_sys::bindings::*;
use tprof_fake_cuda::engine;

/// Handles from here on are contexts that a program makes. Smaller handles are the numbers of
/// devices' contexts.
const MADE: usize = 0x1000;

/// `cuptiGetContextId` of CUPTI.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetContextId(context: CUcontext, id: *mut u32) -> CUptiResult {
    let number = match context as usize {
        0 => return CUPTI_ERROR_INVALID_PARAMETER,
        handle if handle < MADE => handle as u32,
        _ => (engine().chosen)() + 1,
    };
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *id = number };
    enter("cuptiGetContextId")
}

/// `cuptiGetStreamIdEx` of CUPTI.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetStreamIdEx(
    context: CUcontext,
    stream: CUstream,
    _by_thread: u8,
    id: *mut u32,
) -> CUptiResult {
    // CUPTI 13.0 on an H200 does the same: without a context, a default stream has no number.
    if context.is_null() && (stream as usize) <= 2 {
        enter("cuptiGetStreamIdEx");
        return CUPTI_ERROR_INVALID_STREAM;
    }
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *id = (engine().stream_id)(stream.cast()) };
    enter("cuptiGetStreamIdEx")
}
