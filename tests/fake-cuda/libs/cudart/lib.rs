//! Stands in for the CUDA runtime, 12 and 13. It has only the functions that the tests' programs
//! call. A program that calls another function doesn't link, so a missing function never gives a
//! wrong result.
#![allow(
    unsafe_code,
    non_snake_case,
    clippy::missing_safety_doc,
    clippy::missing_const_for_thread_local
)]

mod graphs;
mod kernels;
mod memory;
mod other_memory;
mod per_thread;
mod streams;

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use tprof_cupti_sys::bindings as cbid;
use tprof_fake_cuda::{Engine, engine, number as setting};

/// Value of `cudaSuccess`.
pub const SUCCESS: u32 = 0;
/// Value of `cudaErrorInvalidValue`.
pub const INVALID_VALUE: u32 = 1;
/// Value of `cudaErrorMemoryAllocation`.
pub const OUT_OF_MEMORY: u32 = 2;
/// Value of `cudaErrorInvalidDevice`.
pub const INVALID_DEVICE: u32 = 101;
/// Value of `cudaErrorNotReady`.
pub const NOT_READY: u32 = 600;
/// `cudaErrorLaunchFailure`: the context is lost, and every later call returns it.
pub const LAUNCH_FAILURE: u32 = 719;

/// Whether the device is lost, which happens after `FAKE_CUDA_LOST_AFTER` calls (0: never).
fn is_lost() -> bool {
    static CALLS: AtomicI64 = AtomicI64::new(0);
    let after = setting("FAKE_CUDA_LOST_AFTER", 0);
    after > 0 && CALLS.fetch_add(1, Relaxed) >= after
}

thread_local!(static LAST: Cell<u32> = const { Cell::new(0) });

unsafe extern "C" {
    /// The major version of this runtime: 12 or 13. Defined where the library is linked.
    static fake_major: c_int;
}

/// Runs a call of the runtime, with a number and times, and reports it.
pub fn call(number: u32, name: &'static CStr, body: impl FnOnce(&Engine, u32) -> u32) -> u32 {
    let engine = engine();
    (engine.init)();
    let correlation = (engine.begin)();
    (engine.called)(false, number, name.as_ptr(), correlation, std::ptr::null());
    let start = (engine.now)();
    let result = if is_lost() { LAUNCH_FAILURE } else { body(engine, correlation) };
    if result != SUCCESS && result != NOT_READY {
        LAST.set(result);
    }
    (engine.end)(number, name.as_ptr(), correlation, start, result);
    result
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaRuntimeGetVersion(version: *mut c_int) -> u32 {
    // SAFETY: the caller passes a valid pointer to write the answer to, and `fake_major` is a
    // constant that the link defines.
    unsafe { *version = if fake_major == 12 { 12090 } else { 13050 } };
    SUCCESS
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceCount(count: *mut c_int) -> u32 {
    call(
        cbid::CUPTI_RUNTIME_TRACE_CBID_cudaGetDeviceCount_v3020,
        c"cudaGetDeviceCount",
        |engine, _| {
            // SAFETY: the caller passes a valid pointer to write the answer to.
            unsafe { *count = (engine.devices)() as c_int };
            SUCCESS
        },
    )
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaSetDevice(device: c_int) -> u32 {
    call(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaSetDevice_v3020, c"cudaSetDevice", |engine, _| {
        if (engine.choose)(device as u32) { SUCCESS } else { INVALID_DEVICE }
    })
}

/// Like the runtime's function, but without an effect: there are no limits here.
#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceSetLimit(_limit: c_int, _value: usize) -> u32 {
    call(167, c"cudaDeviceSetLimit", |_, _| SUCCESS)
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDevice(device: *mut c_int) -> u32 {
    call(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020, c"cudaGetDevice", |engine, _| {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *device = (engine.chosen)() as c_int };
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> u32 {
    call(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020, c"cudaGetLastError", |_, _| {
        LAST.replace(SUCCESS)
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> u32 {
    call(
        cbid::CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020,
        c"cudaPeekAtLastError",
        |_, _| LAST.get(),
    )
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(error: u32) -> *const c_char {
    match error {
        SUCCESS => c"no error",
        INVALID_VALUE => c"invalid argument",
        OUT_OF_MEMORY => c"out of memory",
        INVALID_DEVICE => c"invalid device ordinal",
        NOT_READY => c"device not ready",
        _ => c"unknown error",
    }
    .as_ptr()
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaProfilerStart() -> u32 {
    call(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStart_v4000, c"cudaProfilerStart", |_, _| {
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaProfilerStop() -> u32 {
    call(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStop_v4000, c"cudaProfilerStop", |_, _| SUCCESS)
}
