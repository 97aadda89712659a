//! How records number contexts and streams.

use crate::enter;
use tprof_cupti_sys::bindings::*;
use tprof_fake_cuda::engine;

/// Handles of contexts that a program makes; below are those of devices, which are their numbers.
const MADE: usize = 0x1000;

/// `cuptiGetContextId` of CUPTI.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetContextId(context: CUcontext, id: *mut u32) -> CUptiResult {
    let number = match context as usize {
        0 => return CUPTI_ERROR_INVALID_PARAMETER,
        handle if handle < MADE => handle as u32,
        _ => (engine().chosen)() + 1,
    };
    // SAFETY: the caller's place for the answer.
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
    // As CUPTI 13.0 on an H200: without a context a default stream has no number.
    if context.is_null() && (stream as usize) <= 2 {
        enter("cuptiGetStreamIdEx");
        return CUPTI_ERROR_INVALID_STREAM;
    }
    // SAFETY: the caller's place for the answer.
    unsafe { *id = (engine().stream_id)(stream.cast()) };
    enter("cuptiGetStreamIdEx")
}
