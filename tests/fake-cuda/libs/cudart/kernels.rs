//! The runtime's functions that register kernels for nvcc's code, and that launch kernels.

use crate::streams::per_thread;
use crate::{INVALID_VALUE, SUCCESS, call};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use tprof_cupti_sys::bindings as cbid;
use tprof_fake_cuda::{Launch, Work, number};

/// CUDA's `dim3`: a grid's or block's extents.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

/// The first fields of CUDA's `cudaLaunchConfig_t`.
#[repr(C)]
pub struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    dynamic_shared: usize,
    stream: *mut c_void,
}

/// A kernel that waits before it runs. The stand-in for NCCL launches it.
#[repr(C)]
pub struct Gated {
    gate: extern "C" fn(*mut c_void),
    data: *mut c_void,
    ns: u64,
}

/// Maps the address of a kernel's stub to its name.
static NAMES: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);
/// Maps the address of a kernel's stub to its handle, which points at that address.
static HANDLES: Mutex<Option<HashMap<usize, &'static usize>>> = Mutex::new(None);
thread_local!(static PUSHED: RefCell<Vec<(Dim3, Dim3, usize, usize)>> = const { RefCell::new(Vec::new()) });

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinary(_binary: *mut c_void) -> *mut *mut c_void {
    static mut HANDLE: *mut c_void = std::ptr::null_mut();
    &raw mut HANDLE
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaUnregisterFatBinary(_handle: *mut *mut c_void) {}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFunction(
    _handle: *mut *mut c_void,
    stub: *const c_char,
    _function: *mut c_char,
    name: *const c_char,
    _limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_dim: *mut c_void,
    _grid_dim: *mut c_void,
    _warp: *mut c_int,
) {
    let mut names = NAMES.lock().unwrap();
    names.get_or_insert_default().insert(stub as usize, name as usize);
}

/// Like the runtime's function: `<<<…>>>` calls it before it calls a stub.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: *mut c_void,
) -> u32 {
    PUSHED.with_borrow_mut(|pushed| pushed.push((grid, block, shared, stream as usize)));
    0
}

/// Like the runtime's function: a stub calls it to get the configuration that was pushed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared: *mut usize,
    stream: *mut *mut c_void,
) -> u32 {
    let Some(top) = PUSHED.with_borrow_mut(Vec::pop) else { return INVALID_VALUE };
    // SAFETY: the stub passes pointers to its own variables.
    unsafe {
        *grid = top.0;
        *block = top.1;
        *shared = top.2;
        *stream = top.3 as *mut c_void;
    }
    SUCCESS
}

/// CUPTI's number of `cuLaunchKernel`.
const DRIVER_LAUNCH: u32 = 307;

fn launch_of(stub: *const c_void, grid: Dim3, block: Dim3, shared: usize) -> Option<Launch> {
    let name = *NAMES.lock().unwrap().as_ref()?.get(&(stub as usize))?;
    let blocks = u64::from(grid.x) * u64::from(grid.y) * u64::from(grid.z);
    Some(Launch {
        name: name as *const c_char,
        grid: [grid.x, grid.y, grid.z],
        block: [block.x, block.y, block.z],
        dynamic_shared: shared as u32,
        static_shared: 1024,
        registers: 32 + name as u32 % 7 * 8,
        ns: blocks * number("FAKE_CUDA_BLOCK_NS", 1000) as u64,
        gate: None,
        gate_data: std::ptr::null_mut(),
    })
}

/// Puts a launch on a stream, in a call of the runtime with this number and name.
fn launched(
    (number_of_call, name): (u32, &'static CStr),
    launch: Option<Launch>,
    stream: *mut c_void,
) -> u32 {
    call(number_of_call, name, |engine, id| {
        let Some(launch) = launch else { return INVALID_VALUE };
        let (start, name) = ((engine.now)(), c"cuLaunchKernel".as_ptr());
        (engine.called)(true, DRIVER_LAUNCH, name, id, std::ptr::null());
        (engine.put)(stream, Work::Kernel(launch), id);
        if number("FAKE_CUDA_DRIVER_CALLS", 0) != 0 {
            (engine.driver_end)(DRIVER_LAUNCH, name, id, start, 0);
        }
        (engine.called)(true, DRIVER_LAUNCH, name, id, std::ptr::from_ref(&SUCCESS));
        SUCCESS
    })
}

/// Stands in for the runtime's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cudaLaunchKernel(
    stub: *const c_void,
    grid: Dim3,
    block: Dim3,
    _arguments: *mut *mut c_void,
    shared: usize,
    stream: *mut c_void,
) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000;
    launched((number, c"cudaLaunchKernel"), launch_of(stub, grid, block, shared), stream)
}

/// Like the runtime's function: it returns the handle by which [`__cudaLaunchKernel`] finds a
/// stub's kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaGetKernel(kernel: *mut *const c_void, stub: *const c_void) -> u32 {
    call(cbid::CUPTI_RUNTIME_TRACE_CBID___cudaGetKernel_v13000, c"__cudaGetKernel", |_, _| {
        let mut handles = HANDLES.lock().unwrap();
        let stub = stub as usize;
        let handle = handles
            .get_or_insert_default()
            .entry(stub)
            .or_insert_with(|| Box::leak(Box::new(stub)));
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *kernel = (&raw const **handle).cast() };
        SUCCESS
    })
}

/// Returns the stub of a handle's kernel.
fn stub_of(kernel: *const c_void) -> *const c_void {
    let handles = HANDLES.lock().unwrap();
    let known =
        handles.iter().flatten().find(|(_, handle)| kernel == (&raw const ***handle).cast());
    known.map_or(std::ptr::null(), |(stub, _)| *stub as *const c_void)
}

/// Like the runtime's function: nvcc compiles `<<<…>>>` to it since 12.9. CUPTI has a number for it
/// since 13.0. Which number older versions report is not documented, so this stand-in reports this
/// one.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaLaunchKernel(
    kernel: *const c_void,
    grid: Dim3,
    block: Dim3,
    _arguments: *mut *mut c_void,
    shared: usize,
    stream: *mut c_void,
) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000;
    let launch = launch_of(stub_of(kernel), grid, block, shared);
    launched((number, c"__cudaLaunchKernel"), launch, stream)
}

/// Like the runtime's function in a program with per-thread default streams.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaLaunchKernel_ptsz(
    kernel: *const c_void,
    grid: Dim3,
    block: Dim3,
    _arguments: *mut *mut c_void,
    shared: usize,
    stream: *mut c_void,
) -> u32 {
    let number = cbid::CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000;
    let launch = launch_of(stub_of(kernel), grid, block, shared);
    launched((number, c"__cudaLaunchKernel_ptsz"), launch, per_thread(stream))
}

/// Like the runtime's function. If the first argument is the stub's own address, the kernel waits
/// for others ([`Gated`]).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaLaunchKernelExC(
    config: *const LaunchConfig,
    stub: *const c_void,
    arguments: *mut *mut c_void,
) -> u32 {
    call(
        cbid::CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060,
        c"cudaLaunchKernelExC",
        |engine, id| {
            // SAFETY: the caller passes a valid pointer to a configuration.
            let config = unsafe { &*config };
            let Some(mut launch) =
                launch_of(stub, config.grid, config.block, config.dynamic_shared)
            else {
                return INVALID_VALUE;
            };
            // SAFETY: if the first argument is the stub, the stand-in for NCCL made the call, and
            // it passes two arguments.
            unsafe {
                if !arguments.is_null() && (*arguments).cast_const() == stub {
                    let gated = &*(*arguments.add(1)).cast::<Gated>();
                    launch.gate = Some(gated.gate);
                    launch.gate_data = gated.data;
                    launch.ns = gated.ns;
                }
            }
            (engine.put)(config.stream, Work::Kernel(launch), id);
            SUCCESS
        },
    )
}
