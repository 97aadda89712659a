//! Implements the part of the driver's interface that `tprof doctor --run-kernel` calls through
//! cudarc.
//!
//! Calls return before their work is done, except copies to the host: a device's memory is host
//! memory, and the program may read the copied bytes at once.

use crate::{begin, callbacks, devices, driver_end, memory, streams, time, virtual_memory};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use tprof_fake_cuda::{Launch, Work, memory::DEVICE, number};

const SUCCESS: u32 = 0;
const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const INVALID_DEVICE: u32 = 101;
const NOT_FOUND: u32 = 500;

/// CUPTI's number of `cuLaunchKernel`.
const LAUNCH: u32 = 307;
/// Values of `cudaMemcpyKind`.
const INTO: u32 = 1;
const OUT_OF: u32 = 2;

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> u32 {
    virtual_memory::call(4, c"cuDeviceGetCount", |_| {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *count = devices() as c_int };
        SUCCESS
    })
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> u32 {
    if !(0..devices() as c_int).contains(&ordinal) {
        return INVALID_DEVICE;
    }
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *device = ordinal };
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, room: c_int, _device: c_int) -> u32 {
    const NAME: &CStr = c"Simulated GPU";
    asked(5, c"cuDeviceGetName", || {
        if (room as usize) < NAME.count_bytes() + 1 {
            return INVALID_VALUE;
        }
        // SAFETY: the check above leaves room for the name and its terminating zero.
        unsafe { name.copy_from_nonoverlapping(NAME.as_ptr(), NAME.count_bytes() + 1) };
        SUCCESS
    })
}

/// Runs a query to the driver as a call with a number and times, so that CUPTI can record it.
fn asked(number: u32, name: &'static CStr, body: impl FnOnce() -> u32) -> u32 {
    let (correlation, start) = (begin(), time::now());
    let result = body();
    driver_end(number, name.as_ptr(), correlation, start, result);
    result
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> u32 {
    asked(647, c"cuDeviceGetUuid_v2", || {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *uuid = tprof_fake_cuda::uuid(device as u32) };
        SUCCESS
    })
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) -> u32 {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *bytes = tprof_fake_cuda::device_bytes() as usize };
    SUCCESS
}

/// Like the driver's function, for the most used of the attributes that CUPTI's stand-in has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, which: u32, _of: c_int) -> u32 {
    let known = match which {
        16 => 132,
        75 => 9,
        _ => 0,
    };
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *value = known };
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> u32 {
    // SAFETY: the caller passes valid pointers to write the answers to.
    unsafe {
        *flags = 0;
        *active = c_int::from(streams::is_entered(device as u32));
    }
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> u32 {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *context = streams::context_of(device as u32) as usize as *mut c_void };
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> u32 {
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> u32 {
    asked(17, c"cuCtxSynchronize", || {
        streams::drain_all(begin());
        SUCCESS
    })
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> u32 {
    streams::drain(stream, begin());
    SUCCESS
}

/// Like the driver's function: the handle of a module is a copy of its text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_char) -> u32 {
    // SAFETY: the caller passes a text that ends with a zero, and a valid pointer to write the
    // answer to.
    unsafe {
        *module = CStr::from_ptr(image).to_owned().into_raw().cast();
    }
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: *mut c_void) -> u32 {
    // SAFETY: `cuModuleLoadData` made the handle, and the caller unloads it once.
    drop(unsafe { CString::from_raw(module.cast()) });
    SUCCESS
}

/// Like the driver's function: the handle of a function is its name, which is never freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> u32 {
    // SAFETY: `cuModuleLoadData` made the module, which is still loaded; the caller passes a name
    // that ends with a zero.
    let (text, name) = unsafe { (CStr::from_ptr(module.cast()), CStr::from_ptr(name)) };
    let entry = format!(".entry {}(", name.to_string_lossy());
    if !text.to_string_lossy().contains(&entry) {
        return NOT_FOUND;
    }
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *function = name.to_owned().into_raw().cast() };
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(at: *mut u64, bytes: usize) -> u32 {
    virtual_memory::call(243, c"cuMemAlloc_v2", |correlation| {
        let block = memory::allocate(DEVICE, bytes, correlation);
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *at = block as u64 };
        if block.is_null() { OUT_OF_MEMORY } else { SUCCESS }
    })
}

/// Like the driver's function: waits for the device first.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(at: u64) -> u32 {
    let correlation = begin();
    streams::drain_all(correlation);
    if memory::release(at as *mut c_void, correlation) { SUCCESS } else { INVALID_VALUE }
}

/// Like the driver's function: memory that is not pinned has been read when it returns.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: *mut c_void,
) -> u32 {
    copy(to as *mut c_void, from, bytes, INTO, stream)
}

/// Like the driver's function: memory that is not pinned has been written when it returns.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: *mut c_void,
) -> u32 {
    copy(to, from as *const c_void, bytes, OUT_OF, stream)
}

fn copy(to: *mut c_void, from: *const c_void, bytes: usize, kind: u32, at: *mut c_void) -> u32 {
    streams::put(at, Work::Copy(to, from, bytes, kind), begin());
    streams::finish(at);
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: *mut c_void,
    arguments: *mut *mut c_void,
    _more: *mut *mut c_void,
) -> u32 {
    let (correlation, start) = (begin(), time::now());
    let name = c"cuLaunchKernel".as_ptr();
    callbacks::call(true, LAUNCH, name, correlation, std::ptr::null());
    let mut launch = Launch {
        name: function.cast_const().cast(),
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        dynamic_shared: shared,
        static_shared: 0,
        registers: 16,
        ns: u64::from(grid_x * grid_y * grid_z) * number("FAKE_CUDA_BLOCK_NS", 1000) as u64,
        gate: None,
        gate_data: std::ptr::null_mut(),
    };
    // SAFETY: `cuModuleGetFunction` made the handle from a name that is never freed.
    let kernel = unsafe { CStr::from_ptr(launch.name) };
    if kernel == c"tprof_check" && number("FAKE_CUDA_WRONG", 0) == 0 {
        // SAFETY: the kernel `tprof_check` has two arguments of these types, and the caller passes
        // pointers to them.
        let numbers = unsafe {
            Numbers {
                at: *(*arguments).cast::<u64>() as *mut u32,
                count: *(*arguments.add(1)).cast::<u32>(),
            }
        };
        launch.gate = Some(change);
        launch.gate_data = Box::into_raw(Box::new(numbers)).cast();
    }
    streams::put(stream, Work::Kernel(launch), correlation);
    driver_end(LAUNCH, name, correlation, start, SUCCESS);
    callbacks::call(true, LAUNCH, name, correlation, std::ptr::from_ref(&SUCCESS));
    SUCCESS
}

/// The arguments of `tprof_check`.
struct Numbers {
    at: *mut u32,
    count: u32,
}

/// Does the work of `tprof_check`, on the stream's thread.
extern "C" fn change(numbers: *mut c_void) {
    // SAFETY: `cuLaunchKernel` made `numbers` for this call with `Box::into_raw`; the addresses in
    // it are host memory.
    let numbers = unsafe {
        let Numbers { at, count } = *Box::from_raw(numbers.cast::<Numbers>());
        std::slice::from_raw_parts_mut(at, count as usize)
    };
    for (number, at) in numbers.iter_mut().zip(0..) {
        *number = number.wrapping_mul(3).wrapping_add(at);
    }
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(_error: u32, text: *mut *const c_char) -> u32 {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *text = c"CUDA_ERROR_SIMULATED".as_ptr() };
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_error: u32, text: *mut *const c_char) -> u32 {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *text = c"an error of the simulation".as_ptr() };
    SUCCESS
}
