//! The runtime's functions for streams, events and waits.

use crate::{INVALID_VALUE, NOT_READY, SUCCESS, call};
use std::ffi::{CStr, c_int, c_void};
use tprof_cupti_sys::bindings as cbid;
use tprof_fake_cuda::Work;

/// Returns the stream that a handle means in a program with per-thread default streams, in which
/// null means the thread's own stream. The engine has one default stream for all threads.
pub fn per_thread(stream: *mut c_void) -> *mut c_void {
    const PER_THREAD: usize = 2;
    if stream.is_null() { std::ptr::without_provenance_mut(PER_THREAD) } else { stream }
}

fn create(number: u32, name: &'static CStr, stream: *mut *mut c_void, priority: c_int) -> u32 {
    call(number, name, |engine, _| {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *stream = (engine.stream)(priority as u32) };
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamCreate(stream: *mut *mut c_void) -> u32 {
    create(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaStreamCreate_v3020, c"cudaStreamCreate", stream, 0)
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamCreateWithFlags(stream: *mut *mut c_void, _flags: u32) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaStreamCreateWithFlags_v5000;
    create(number, c"cudaStreamCreateWithFlags", stream, 0)
}

/// Like the runtime's function, but the stream's thread stays.
#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamDestroy(_stream: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaStreamDestroy_v5050;
    call(number, c"cudaStreamDestroy", |_, _| SUCCESS)
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamSynchronize(stream: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020;
    call(number, c"cudaStreamSynchronize", |engine, id| {
        (engine.drain)(stream, id);
        SUCCESS
    })
}

/// Like the runtime's function in a program with per-thread default streams.
#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamSynchronize_ptsz(stream: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_ptsz_v7000;
    call(number, c"cudaStreamSynchronize_ptsz", |engine, id| {
        (engine.drain)(per_thread(stream), id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceSynchronize() -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020;
    call(number, c"cudaDeviceSynchronize", |engine, id| {
        (engine.drain_all)(id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _: u32) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaStreamWaitEvent_v3020;
    call(number, c"cudaStreamWaitEvent", |engine, id| {
        (engine.put)(stream, Work::Wait(event, 0), id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaEventCreateWithFlags(event: *mut *mut c_void, _flags: u32) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaEventCreateWithFlags_v3020;
    call(number, c"cudaEventCreateWithFlags", |engine, _| {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *event = (engine.event)() };
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaEventDestroy(_event: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaEventDestroy_v3020;
    call(number, c"cudaEventDestroy", |_, _| SUCCESS)
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaEventRecord(event: *mut c_void, stream: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaEventRecord_v3020;
    call(number, c"cudaEventRecord", |engine, id| {
        (engine.put)(stream, Work::Record(event), id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaEventSynchronize(event: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaEventSynchronize_v3020;
    call(number, c"cudaEventSynchronize", |engine, id| {
        (engine.event_wait)(event, id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaEventQuery(event: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020;
    call(number, c"cudaEventQuery", |engine, _| {
        if (engine.event_time)(event) == 0 { NOT_READY } else { SUCCESS }
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaEventElapsedTime(
    ms: *mut f32,
    begin: *mut c_void,
    end: *mut c_void,
) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaEventElapsedTime_v3020;
    call(number, c"cudaEventElapsedTime", |engine, _| {
        let (begin, end) = ((engine.event_time)(begin), (engine.event_time)(end));
        if begin == 0 || end == 0 {
            return INVALID_VALUE;
        }
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *ms = (end as f64 - begin as f64) as f32 / 1e6 };
        SUCCESS
    })
}
