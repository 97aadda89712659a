//! The runtime's functions for memory, copies and fills.

use crate::streams::per_thread;
use crate::{INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, call};
use std::ffi::{CStr, c_int, c_void};
use tprof_cupti_sys::bindings as cbid;
use tprof_fake_cuda::{Work, memory};

fn allocate(
    number: u32,
    name: &'static CStr,
    kind: u32,
    at: *mut *mut c_void,
    bytes: usize,
) -> u32 {
    call(number, name, |engine, id| {
        let block = (engine.allocate)(kind, bytes, id);
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *at = block };
        if block.is_null() { OUT_OF_MEMORY } else { SUCCESS }
    })
}

fn release(number: u32, name: &'static CStr, at: *mut c_void) -> u32 {
    call(number, name, |engine, id| {
        wait_for_device();
        if at.is_null() || (engine.release)(at, id) { SUCCESS } else { INVALID_VALUE }
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMalloc(at: *mut *mut c_void, bytes: usize) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020;
    allocate(number, c"cudaMalloc", memory::DEVICE, at, bytes)
}

/// The real `cudaFree` waits until the device is idle. Here a release takes the milliseconds in the variable
/// `FAKE_CUDA_FREE_MS`, if it is set.
fn wait_for_device() {
    static WAIT: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let wait = || std::env::var("FAKE_CUDA_FREE_MS").ok()?.parse().ok();
    let ms = *WAIT.get_or_init(|| wait().unwrap_or(0));
    if ms > 0 {
        std::thread::sleep(std::time::Duration::from_millis(ms));
    }
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaFree(at: *mut c_void) -> u32 {
    release(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020, c"cudaFree", at)
}

/// Stands in for the runtime's function of this name. As many bytes are left as the variable
/// `FAKE_CUDA_LEFT_BYTES` says, without it none. CUPTI gets no record of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemGetInfo(free: *mut usize, all: *mut usize) -> u32 {
    let left = std::env::var("FAKE_CUDA_LEFT_BYTES").ok().and_then(|bytes| bytes.parse().ok());
    // SAFETY: the caller passes valid pointers to write the answers to.
    unsafe { (*free, *all) = (left.unwrap_or(0), tprof_fake_cuda::device_bytes() as usize) };
    SUCCESS
}

/// Like the runtime's function, except that streams and events stay.
#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceReset() -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaDeviceReset_v3020;
    call(number, c"cudaDeviceReset", |engine, id| {
        (engine.drain_all)(id);
        (engine.release_all)(id);
        SUCCESS
    })
}

/// Like the runtime's function, except that the allocation doesn't wait for the stream's work.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMallocAsync(at: *mut *mut c_void, bytes: usize, stream: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_v11020;
    call(number, c"cudaMallocAsync", |engine, id| {
        let block = (engine.allocate_async)(bytes, stream, id);
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *at = block };
        if block.is_null() { OUT_OF_MEMORY } else { SUCCESS }
    })
}

/// Like the runtime's function, but it always uses the default pool.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMallocFromPoolAsync(
    at: *mut *mut c_void,
    bytes: usize,
    _pool: *mut c_void,
    stream: *mut c_void,
) -> u32 {
    call(391, c"cudaMallocFromPoolAsync", |engine, id| {
        let block = (engine.allocate_async)(bytes, stream, id);
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *at = block };
        if block.is_null() { OUT_OF_MEMORY } else { SUCCESS }
    })
}

/// Like the runtime's function, except that the free doesn't wait for the stream's work.
#[unsafe(no_mangle)]
pub extern "C" fn cudaFreeAsync(at: *mut c_void, stream: *mut c_void) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaFreeAsync_v11020;
    call(number, c"cudaFreeAsync", |engine, id| {
        if (engine.release_async)(at, stream, id) { SUCCESS } else { INVALID_VALUE }
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMallocHost(at: *mut *mut c_void, bytes: usize) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaMallocHost_v3020;
    allocate(number, c"cudaMallocHost", memory::PINNED, at, bytes)
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaHostAlloc(at: *mut *mut c_void, bytes: usize, _flags: u32) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaHostAlloc_v3020;
    allocate(number, c"cudaHostAlloc", memory::PINNED, at, bytes)
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaFreeHost(at: *mut c_void) -> u32 {
    release(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaFreeHost_v3020, c"cudaFreeHost", at)
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMallocManaged(at: *mut *mut c_void, bytes: usize, _flags: u32) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaMallocManaged_v6000;
    allocate(number, c"cudaMallocManaged", memory::MANAGED, at, bytes)
}

/// Returns CUPTI's number for a copy in this direction (`cudaMemcpyKind`).
pub fn copy_kind(direction: c_int) -> u32 {
    match direction {
        0 => cbid::CUPTI_ACTIVITY_MEMCPY_KIND_HTOH,
        1 => cbid::CUPTI_ACTIVITY_MEMCPY_KIND_HTOD,
        2 => cbid::CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
        3 => cbid::CUPTI_ACTIVITY_MEMCPY_KIND_DTOD,
        _ => cbid::CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN,
    }
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    direction: c_int,
    stream: *mut c_void,
) -> u32 {
    call(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, c"cudaMemcpyAsync", |engine, id| {
        (engine.put)(stream, Work::Copy(to, from, bytes, copy_kind(direction)), id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    direction: c_int,
) -> u32 {
    call(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020, c"cudaMemcpy", |engine, id| {
        let null = std::ptr::null_mut();
        (engine.put)(null, Work::Copy(to, from, bytes, copy_kind(direction)), id);
        (engine.drain)(null, id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemsetAsync(
    at: *mut c_void,
    value: c_int,
    bytes: usize,
    stream: *mut c_void,
) -> u32 {
    call(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, c"cudaMemsetAsync", |engine, id| {
        (engine.put)(stream, Work::Fill(at, value as u8, bytes), id);
        SUCCESS
    })
}

/// Like the runtime's function in a program with per-thread default streams.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemsetAsync_ptsz(
    at: *mut c_void,
    value: c_int,
    bytes: usize,
    stream: *mut c_void,
) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_ptsz_v7000;
    call(number, c"cudaMemsetAsync_ptsz", |engine, id| {
        (engine.put)(per_thread(stream), Work::Fill(at, value as u8, bytes), id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemset(at: *mut c_void, value: c_int, bytes: usize) -> u32 {
    call(cbid::CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020, c"cudaMemset", |engine, id| {
        (engine.put)(std::ptr::null_mut(), Work::Fill(at, value as u8, bytes), id);
        SUCCESS
    })
}

/// CUPTI's number of `cudaMemcpyPeerAsync_v4000`, which `tprof-cupti-sys` does not list.
const PEER_ASYNC: u32 = 161;

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpyPeerAsync(
    to: *mut c_void,
    to_device: c_int,
    from: *const c_void,
    from_device: c_int,
    bytes: usize,
    stream: *mut c_void,
) -> u32 {
    call(PEER_ASYNC, c"cudaMemcpyPeerAsync", |engine, id| {
        let work = Work::PeerCopy(to, to_device as u32, from, from_device as u32, bytes);
        (engine.put)(stream, work, id);
        SUCCESS
    })
}
