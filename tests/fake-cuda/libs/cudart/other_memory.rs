//! The runtime's functions for arrays, for memory of other processes and registered memory, and for
//! the lookup of the driver's functions.

use crate::{INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, call};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use tprof_fake_cuda::memory;

/// CUDA's `cudaChannelFormatDesc` structure.
#[repr(C)]
pub struct Channels {
    bits: [c_int; 4],
    kind: c_int,
}

/// CUDA's `cudaExtent` structure.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extent {
    width: usize,
    height: usize,
    depth: usize,
}

/// CUDA's `cudaIpcMemHandle_t`. Here it holds the size, and the address in the other process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle {
    bytes: usize,
    rest: [u64; 7],
}

unsafe fn array(
    (number, name): (u32, &'static CStr),
    to: *mut *mut c_void,
    channels: *const Channels,
    extent: Extent,
) -> u32 {
    call(number, name, |engine, id| {
        // SAFETY: the caller passes a valid pointer to the structure.
        let bits: c_int = unsafe { (*channels).bits }.iter().sum();
        let elements = extent.width * extent.height.max(1) * extent.depth.max(1);
        let block = (engine.allocate)(memory::ARRAY, elements * bits as usize / 8, id);
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *to = block };
        if block.is_null() { OUT_OF_MEMORY } else { SUCCESS }
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocArray(
    to: *mut *mut c_void,
    channels: *const Channels,
    width: usize,
    height: usize,
    _flags: c_uint,
) -> u32 {
    // SAFETY: this function's caller passes `to` and `channels`, which CUDA requires to be valid.
    unsafe { array((23, c"cudaMallocArray"), to, channels, Extent { width, height, depth: 0 }) }
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMalloc3DArray(
    to: *mut *mut c_void,
    channels: *const Channels,
    extent: Extent,
    _flags: c_uint,
) -> u32 {
    // SAFETY: this function's caller passes `to` and `channels`, which CUDA requires to be valid.
    unsafe { array((141, c"cudaMalloc3DArray"), to, channels, extent) }
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocMipmappedArray(
    to: *mut *mut c_void,
    channels: *const Channels,
    extent: Extent,
    levels: c_uint,
    _flags: c_uint,
) -> u32 {
    call(192, c"cudaMallocMipmappedArray", |engine, id| {
        // SAFETY: the caller passes a valid pointer to the structure.
        let bits: c_int = unsafe { (*channels).bits }.iter().sum();
        let Extent { width, height, depth } = extent;
        let of_level = |level: c_uint| -> usize {
            let sizes: [usize; 3] = [width, height, depth];
            sizes.into_iter().map(|size| (size >> level).max(1)).product()
        };
        let elements: usize = (0..levels).map(of_level).sum();
        let block = (engine.allocate)(memory::ARRAY, elements * bits as usize / 8, id);
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *to = block };
        if block.is_null() { OUT_OF_MEMORY } else { SUCCESS }
    })
}

fn release(number: u32, name: &'static CStr, at: *mut c_void) -> u32 {
    call(number, name, |engine, id| {
        if at.is_null() || (engine.release)(at, id) { SUCCESS } else { INVALID_VALUE }
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaFreeArray(at: *mut c_void) -> u32 {
    release(24, c"cudaFreeArray", at)
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaFreeMipmappedArray(at: *mut c_void) -> u32 {
    release(194, c"cudaFreeMipmappedArray", at)
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaHostRegister(at: *mut c_void, bytes: usize, _flags: c_uint) -> u32 {
    call(152, c"cudaHostRegister", |engine, id| {
        (engine.adopt)(at, memory::REGISTERED, bytes, id);
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaHostUnregister(at: *mut c_void) -> u32 {
    release(153, c"cudaHostUnregister", at)
}

/// Like the runtime's function, for a block of one mebibyte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaIpcGetMemHandle(to: *mut IpcHandle, at: *mut c_void) -> u32 {
    call(178, c"cudaIpcGetMemHandle", |_, _| {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *to = IpcHandle { bytes: 1 << 20, rest: [at as u64; 7] } };
        SUCCESS
    })
}

/// Like the runtime's function, except that the two processes share no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaIpcOpenMemHandle(
    to: *mut *mut c_void,
    handle: IpcHandle,
    _flags: c_uint,
) -> u32 {
    call(179, c"cudaIpcOpenMemHandle", |engine, id| {
        if handle.rest.iter().any(|word| *word != handle.rest[0]) {
            return INVALID_VALUE;
        }
        let block = (engine.allocate)(memory::IMPORTED, handle.bytes, id);
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *to = block };
        if block.is_null() { OUT_OF_MEMORY } else { SUCCESS }
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaIpcCloseMemHandle(at: *mut c_void) -> u32 {
    release(180, c"cudaIpcCloseMemHandle", at)
}

/// Like the runtime's function from 12.5 on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_uint,
    flags: u64,
    status: *mut c_int,
) -> u32 {
    // SAFETY: this function's caller passes a name that ends with a zero, and valid pointers to
    // write to.
    unsafe {
        found((468, c"cudaGetDriverEntryPointByVersion"), name, function, version, flags, status)
    }
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    function: *mut *mut c_void,
    flags: u64,
    status: *mut c_int,
) -> u32 {
    // SAFETY: this function's caller passes a name that ends with a zero, and valid pointers to
    // write to.
    unsafe { found((406, c"cudaGetDriverEntryPoint"), name, function, 12000, flags, status) }
}

unsafe fn found(
    (number, of): (u32, &'static CStr),
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_uint,
    flags: u64,
    status: *mut c_int,
) -> u32 {
    type Find =
        unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32;
    call(number, of, |_, _| {
        // SAFETY: the driver's library is loaded, and its function has this type. It is looked up
        // with `dlsym` in that library, so no hook can replace it, as in the real runtime.
        unsafe {
            let handle = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
            let find = libc::dlsym(handle, c"cuGetProcAddress_v2".as_ptr());
            let find: Find = std::mem::transmute(find);
            find(name, function, version as c_int, flags, status);
        }
        SUCCESS
    })
}
