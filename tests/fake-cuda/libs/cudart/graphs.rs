//! The runtime's functions for graphs.

use crate::{INVALID_VALUE, SUCCESS, call};
use std::ffi::{c_int, c_uint, c_void};
use tprof_cupti_sys::bindings as cbid;

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamBeginCapture(stream: *mut c_void, _mode: c_int) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaStreamBeginCapture_v10000;
    call(number, c"cudaStreamBeginCapture", |engine, _| {
        (engine.capture)(stream);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaStreamEndCapture_v10000;
    call(number, c"cudaStreamEndCapture", |engine, _| {
        let captured = (engine.captured)(stream);
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *graph = captured };
        if captured.is_null() { INVALID_VALUE } else { SUCCESS }
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamIsCapturing(stream: *mut c_void, state: *mut c_int) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000;
    call(number, c"cudaStreamIsCapturing", |engine, _| {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *state = c_int::from((engine.is_capturing)(stream)) };
        SUCCESS
    })
}

/// Like the runtime's function from CUDA 12 on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphInstantiate(
    executable: *mut *mut c_void,
    graph: *mut c_void,
    _flags: u64,
) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaGraphInstantiate_v12000;
    call(number, c"cudaGraphInstantiate", |engine, _| {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *executable = (engine.instantiate)(graph) };
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphInstantiateWithFlags(
    executable: *mut *mut c_void,
    graph: *mut c_void,
    _flags: u64,
) -> u32 {
    call(418, c"cudaGraphInstantiateWithFlags", |engine, _| {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *executable = (engine.instantiate)(graph) };
        SUCCESS
    })
}

/// Like the runtime's function from 12.3 on. The stand-in's graphs have no conditions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphConditionalHandleCreate(
    handle: *mut u64,
    _graph: *mut c_void,
    _default: c_uint,
    _flags: c_uint,
) -> u32 {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *handle = 1 };
    call(454, c"cudaGraphConditionalHandleCreate", |_, _| SUCCESS)
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGraphLaunch(executable: *mut c_void, stream: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000;
    call(number, c"cudaGraphLaunch", |engine, id| {
        (engine.replay)(executable, stream, id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGraphDestroy(_graph: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaGraphDestroy_v10000;
    call(number, c"cudaGraphDestroy", |_, _| SUCCESS)
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGraphExecDestroy(_executable: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaGraphExecDestroy_v10000;
    call(number, c"cudaGraphExecDestroy", |_, _| SUCCESS)
}
