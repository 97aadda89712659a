//! The functions that a program calls if it was compiled with a default stream for each thread.
//! Their names end in `_ptsz` or `_ptds`, and a null stream means the calling thread's own stream.

use crate::memory::copy_kind;
use crate::streams::per_thread;
use crate::{INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, call};
use std::ffi::{c_char, c_int, c_uint, c_void};
use tprof_fake_cuda::Work;

/// CUPTI's callback ids of the functions that `tprof-cupti-sys` does not list.
mod number {
    pub const MEMCPY: u32 = 215;
    pub const MEMCPY_ASYNC: u32 = 225;
    pub const MEMSET: u32 = 233;
    pub const EVENT_RECORD: u32 = 242;
    pub const BEGIN_CAPTURE: u32 = 316;
    pub const END_CAPTURE: u32 = 320;
    pub const MALLOC_ASYNC: u32 = 374;
    pub const FREE_ASYNC: u32 = 376;
}

/// Returns the calling thread's own stream.
fn own() -> *mut c_void {
    per_thread(std::ptr::null_mut())
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpy_ptds(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    direction: c_int,
) -> u32 {
    call(number::MEMCPY, c"cudaMemcpy_ptds", |engine, id| {
        (engine.put)(own(), Work::Copy(to, from, bytes, copy_kind(direction)), id);
        (engine.drain)(own(), id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpyAsync_ptsz(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    direction: c_int,
    stream: *mut c_void,
) -> u32 {
    call(number::MEMCPY_ASYNC, c"cudaMemcpyAsync_ptsz", |engine, id| {
        (engine.put)(per_thread(stream), Work::Copy(to, from, bytes, copy_kind(direction)), id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemset_ptds(at: *mut c_void, value: c_int, bytes: usize) -> u32 {
    call(number::MEMSET, c"cudaMemset_ptds", |engine, id| {
        (engine.put)(own(), Work::Fill(at, value as u8, bytes), id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaEventRecord_ptsz(event: *mut c_void, stream: *mut c_void) -> u32 {
    call(number::EVENT_RECORD, c"cudaEventRecord_ptsz", |engine, id| {
        (engine.put)(per_thread(stream), Work::Record(event), id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamBeginCapture_ptsz(stream: *mut c_void, _mode: c_int) -> u32 {
    call(number::BEGIN_CAPTURE, c"cudaStreamBeginCapture_ptsz", |engine, _| {
        (engine.capture)(per_thread(stream));
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamEndCapture_ptsz(
    stream: *mut c_void,
    graph: *mut *mut c_void,
) -> u32 {
    call(number::END_CAPTURE, c"cudaStreamEndCapture_ptsz", |engine, _| {
        let captured = (engine.captured)(per_thread(stream));
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *graph = captured };
        if captured.is_null() { INVALID_VALUE } else { SUCCESS }
    })
}

/// Behaves like the runtime's function, but does not wait for the stream's earlier work.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMallocAsync_ptsz(
    at: *mut *mut c_void,
    bytes: usize,
    stream: *mut c_void,
) -> u32 {
    call(number::MALLOC_ASYNC, c"cudaMallocAsync_ptsz", |engine, id| {
        let block = (engine.allocate_async)(bytes, per_thread(stream), id);
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *at = block };
        if block.is_null() { OUT_OF_MEMORY } else { SUCCESS }
    })
}

/// Behaves like the runtime's function, but does not wait for the stream's earlier work.
#[unsafe(no_mangle)]
pub extern "C" fn cudaFreeAsync_ptsz(at: *mut c_void, stream: *mut c_void) -> u32 {
    call(number::FREE_ASYNC, c"cudaFreeAsync_ptsz", |engine, id| {
        if (engine.release_async)(at, per_thread(stream), id) { SUCCESS } else { INVALID_VALUE }
    })
}

/// The runtime's function returns the driver's functions for per-thread default streams. The
/// stand-in's driver has no such variants, so this returns the ordinary functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDriverEntryPointByVersion_ptsz(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_uint,
    flags: u64,
    status: *mut c_int,
) -> u32 {
    // SAFETY: this function's caller passes a name that ends with a zero, and valid pointers to
    // write to.
    unsafe {
        crate::other_memory::cudaGetDriverEntryPointByVersion(
            name, function, version, flags, status,
        )
    }
}
