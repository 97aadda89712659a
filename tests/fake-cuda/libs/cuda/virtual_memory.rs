//! Implements the driver's virtual memory management. Physical memory is a memfd, which is mapped
//! where the program reserved addresses.

use crate::{begin, choose, chosen, driver_end, memory, time};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use tprof_fake_cuda::memory::VIRTUAL;

const SUCCESS: u32 = 0;
const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NOT_FOUND: u32 = 500;

const GRANULARITY: usize = 2 << 20;
/// Value of `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_int = 1;

/// The first fields of `CUmemAllocationProp`.
#[repr(C)]
pub struct Properties {
    kind: c_int,
    handle_types: c_int,
    place: c_int,
    number: c_int,
}

struct Physical {
    file: c_int,
    bytes: usize,
    device: u32,
    references: u32,
}

struct State {
    next: u64,
    physical: BTreeMap<u64, Physical>,
    /// Maps the address of each mapping to its bytes and its handle.
    mapped: BTreeMap<usize, (usize, u64)>,
}

static STATE: Mutex<State> =
    Mutex::new(State { next: 0, physical: BTreeMap::new(), mapped: BTreeMap::new() });

/// Runs a call of the driver, with a number and times, and reports it.
pub fn call(number: u32, name: &'static CStr, body: impl FnOnce(u32) -> u32) -> u32 {
    crate::inject();
    let (correlation, start) = (begin(), time::now());
    let result = body(correlation);
    driver_end(number, name.as_ptr(), correlation, start, result);
    result
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(
    bytes: *mut usize,
    _properties: *const Properties,
    _which: c_int,
) -> u32 {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *bytes = GRANULARITY };
    SUCCESS
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(
    at: *mut u64,
    bytes: usize,
    _alignment: usize,
    _wish: u64,
    _flags: u64,
) -> u32 {
    call(547, c"cuMemAddressReserve", |_| {
        let reserved = map(std::ptr::null_mut(), bytes, libc::PROT_NONE, -1);
        let Some(reserved) = reserved else { return OUT_OF_MEMORY };
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *at = reserved as u64 };
        SUCCESS
    })
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(at: u64, bytes: usize) -> u32 {
    call(548, c"cuMemAddressFree", |_| {
        // SAFETY: the caller reserved this range, and has unmapped everything that it had mapped
        // there.
        unsafe { libc::munmap(at as *mut c_void, bytes) };
        SUCCESS
    })
}

/// Like the driver's function, but only for memory of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    bytes: usize,
    properties: *const Properties,
    _flags: u64,
) -> u32 {
    call(549, c"cuMemCreate", |correlation| {
        // SAFETY: the caller passes a valid pointer to the structure.
        let properties = unsafe { &*properties };
        if !bytes.is_multiple_of(GRANULARITY) || properties.place != ON_DEVICE {
            return INVALID_VALUE;
        }
        // SAFETY: memfd_create reads a name that ends with a zero, and takes no other pointers.
        let file = unsafe { libc::memfd_create(c"physical".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: ftruncate takes no pointers, and this call opened the file.
        if file < 0 || unsafe { libc::ftruncate(file, bytes as i64) } != 0 {
            return OUT_OF_MEMORY;
        }
        let device = properties.number as u32;
        let mut state = STATE.lock().unwrap();
        state.next += 1;
        let number = state.next;
        state.physical.insert(number, Physical { file, bytes, device, references: 1 });
        drop(state);
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *handle = number };
        memory::report_on(device, true, VIRTUAL, number, bytes, correlation);
        SUCCESS
    })
}

/// Like the driver's function. Mapped memory stays until it is unmapped.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> u32 {
    call(550, c"cuMemRelease", |correlation| {
        let mut state = STATE.lock().unwrap();
        match state.physical.get_mut(&handle).filter(|one| one.references > 0) {
            Some(one) => one.references -= 1,
            None => return INVALID_VALUE,
        }
        end(&mut state, handle, correlation);
        SUCCESS
    })
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRetainAllocationHandle(handle: *mut u64, at: *mut c_void) -> u32 {
    call(565, c"cuMemRetainAllocationHandle", |_| {
        let mut state = STATE.lock().unwrap();
        let found = state.mapped.range(..=at as usize).next_back();
        let Some((_, (_, of))) = found.filter(|(from, (bytes, _))| (at as usize) < *from + bytes)
        else {
            return INVALID_VALUE;
        };
        let of = *of;
        if let Some(one) = state.physical.get_mut(&of) {
            one.references += 1;
        }
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *handle = of };
        SUCCESS
    })
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, _flags: u64) -> u32 {
    call(551, c"cuMemMap", |_| {
        let mut state = STATE.lock().unwrap();
        let Some(one) = state.physical.get(&handle) else { return INVALID_VALUE };
        if offset != 0 || bytes > one.bytes || one.references == 0 {
            return INVALID_VALUE;
        }
        if map(at as *mut c_void, bytes, libc::PROT_NONE, one.file).is_none() {
            return OUT_OF_MEMORY;
        }
        state.mapped.insert(at as usize, (bytes, handle));
        SUCCESS
    })
}

/// Like the driver's function, but access is for all devices.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemSetAccess(at: u64, bytes: usize, _access: *const c_void, _n: usize) -> u32 {
    call(553, c"cuMemSetAccess", |_| {
        let how = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the caller passes a range that it has mapped with `cuMemMap`.
        match unsafe { libc::mprotect(at as *mut c_void, bytes, how) } {
            0 => SUCCESS,
            _ => INVALID_VALUE,
        }
    })
}

/// Like the driver's function, but it only unmaps whole mappings.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(at: u64, bytes: usize) -> u32 {
    call(552, c"cuMemUnmap", |correlation| {
        let mut state = STATE.lock().unwrap();
        let range = at as usize..at as usize + bytes;
        let within: Vec<usize> = state.mapped.range(range).map(|(at, _)| *at).collect();
        if within.is_empty() || map(at as *mut c_void, bytes, libc::PROT_NONE, -1).is_none() {
            return INVALID_VALUE;
        }
        for at in within {
            if let Some((_, handle)) = state.mapped.remove(&at) {
                end(&mut state, handle, correlation);
            }
        }
        SUCCESS
    })
}

/// Frees physical memory that has no references and no mappings.
fn end(state: &mut State, handle: u64, correlation: u32) {
    let mapped = state.mapped.values().any(|(_, of)| *of == handle);
    if mapped || state.physical.get(&handle).is_none_or(|one| one.references > 0) {
        return;
    }
    if let Some(Physical { file, bytes, device, .. }) = state.physical.remove(&handle) {
        // SAFETY: `cuMemCreate` opened the file, and its entry was removed, so it is closed once.
        unsafe { libc::close(file) };
        memory::report_on(device, false, VIRTUAL, handle, bytes, correlation);
    }
}

/// Maps a file at an address, or where the kernel chooses if the address is null. Without a file (-1),
/// reserves the addresses.
fn map(at: *mut c_void, bytes: usize, how: c_int, file: c_int) -> Option<*mut c_void> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let kind = if file < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
    // SAFETY: the new mapping is at an address that the kernel chooses, or within a range that the
    // program reserved for it.
    let got = unsafe { libc::mmap(at, bytes, how, kind | fixed, file, 0) };
    (got != libc::MAP_FAILED).then_some(got)
}

/// Like the driver's function. It returns the newest function of each name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
    status: *mut c_int,
) -> u32 {
    call(677, c"cuGetProcAddress_v2", |_| {
        // SAFETY: the caller passes a name that ends with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let found = ["_v2", ""].into_iter().find_map(|version| {
            let name = format!("{name}{version}\0");
            // SAFETY: this library is loaded, and the names end with a zero.
            let at = unsafe {
                let own =
                    libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
                libc::dlsym(own, name.as_ptr().cast())
            };
            (!at.is_null()).then_some(at)
        });
        // SAFETY: the caller passes valid pointers to write the answers to.
        unsafe {
            *function = found.unwrap_or(std::ptr::null_mut());
            if !status.is_null() {
                *status = c_int::from(found.is_none());
            }
        }
        if found.is_some() { SUCCESS } else { NOT_FOUND }
    })
}

/// Like the driver's function of this name before CUDA 12.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> u32 {
    // SAFETY: this function's caller passes the same arguments, which CUDA requires to be valid.
    call(626, c"cuGetProcAddress", |_| unsafe {
        cuGetProcAddress_v2(name, function, version, flags, std::ptr::null_mut())
    })
}

/// Like the driver's function: it frees all memory of a device, except virtual memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> u32 {
    call(545, c"cuDevicePrimaryCtxReset_v2", |correlation| {
        let before = chosen();
        if !choose(device as u32) {
            return INVALID_VALUE;
        }
        memory::release_all(correlation);
        choose(before);
        SUCCESS
    })
}
