//! Implements the driver's functions for arrays and for stream-ordered pools.

use crate::memory;
use crate::virtual_memory::call;
use std::ffi::{c_int, c_uint, c_void};
use tprof_fake_cuda::memory::ARRAY;

const SUCCESS: u32 = 0;
const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;

/// CUDA's `CUDA_ARRAY_DESCRIPTOR` structure.
#[repr(C)]
pub struct Flat {
    width: usize,
    height: usize,
    format: c_int,
    channels: c_uint,
}

/// CUDA's `CUDA_ARRAY3D_DESCRIPTOR` structure.
#[repr(C)]
pub struct Deep {
    width: usize,
    height: usize,
    depth: usize,
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

/// Returns the bytes of a channel of an array's element, which is a byte, a half or a float.
fn channel(format: c_int) -> usize {
    match format {
        0x10 => 2,
        0x20 => 4,
        _ => 1,
    }
}

fn give(to: *mut u64, block: *mut c_void) -> u32 {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *to = block as u64 };
    if block.is_null() { OUT_OF_MEMORY } else { SUCCESS }
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuArrayCreate_v2(to: *mut u64, of: *const Flat) -> u32 {
    call(272, c"cuArrayCreate_v2", |id| {
        // SAFETY: the caller passes a valid pointer to the structure.
        let of = unsafe { &*of };
        let bytes = of.width * of.height.max(1) * channel(of.format) * of.channels as usize;
        give(to, memory::allocate(ARRAY, bytes, id))
    })
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuArray3DCreate_v2(to: *mut u64, of: *const Deep) -> u32 {
    call(274, c"cuArray3DCreate_v2", |id| {
        // SAFETY: the caller passes a valid pointer to the structure.
        let of = unsafe { &*of };
        let elements = of.width * of.height.max(1) * of.depth.max(1);
        let bytes = elements * channel(of.format) * of.channels as usize;
        give(to, memory::allocate(ARRAY, bytes, id))
    })
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuArrayDestroy(at: u64) -> u32 {
    let is_known = |id| memory::release(at as *mut c_void, id);
    call(89, c"cuArrayDestroy", |id| if is_known(id) { SUCCESS } else { INVALID_VALUE })
}

/// Like the driver's function, except that the allocation doesn't wait for the stream's work.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocAsync(to: *mut u64, bytes: usize, stream: *mut c_void) -> u32 {
    call(598, c"cuMemAllocAsync", |id| give(to, memory::allocate_async(bytes, stream, id)))
}

/// Like the driver's function, except that the free doesn't wait for the stream's work.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(at: u64, stream: *mut c_void) -> u32 {
    let is_known = |id| memory::release_async(at as *mut c_void, stream, id);
    call(600, c"cuMemFreeAsync", |id| if is_known(id) { SUCCESS } else { INVALID_VALUE })
}
