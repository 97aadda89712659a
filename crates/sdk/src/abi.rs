//! The layout of tprof's table of functions: `struct tprof_abi` of `preload-shim/include/tprof.h`.

#![allow(unsafe_code)]

use crate::name::Name;
use std::ffi::c_void;

/// Layout of `struct tprof_value`: an argument of a span.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawValue {
    pub kind: u64,
    pub bits: u64,
    pub bytes: u64,
}

/// Layout of `struct tprof_heap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawHeap {
    pub live_bytes: u64,
    pub peak_bytes: u64,
}

/// Layout of `struct tprof_abi`. Functions are only added at its end, and never removed.
#[repr(C)]
pub struct Table {
    pub bytes: usize,
    pub is_recording: unsafe extern "C" fn() -> i32,
    pub record: unsafe extern "C" fn(i32) -> i32,
    pub mark: unsafe extern "C" fn(*const Name),
    pub step: unsafe extern "C" fn(u64),
    pub push: unsafe extern "C" fn(*const Name),
    pub pop: unsafe extern "C" fn(),
    pub start: unsafe extern "C" fn(*const Name) -> u64,
    pub end: unsafe extern "C" fn(u64),
    pub counter: unsafe extern "C" fn(*const Name, f64),
    pub flops: unsafe extern "C" fn(u64),
    pub python: *const c_void,
    pub open: unsafe extern "C" fn(*const Name) -> u64,
    pub close: unsafe extern "C" fn(u64),
    pub describe: unsafe extern "C" fn(u64, *const Name, *const RawValue, usize),
    pub complete: unsafe extern "C" fn(*const Name, u64, u64),
    pub add: unsafe extern "C" fn(*const Name, f64),
    pub work: unsafe extern "C" fn(u64, u32),
    pub took: unsafe extern "C" fn(*const Name, u64, u64),
    pub gave: unsafe extern "C" fn(*const Name, u64),
    pub allocating: unsafe extern "C" fn() -> u64,
    pub allocated: unsafe extern "C" fn(u64, *mut u8, usize),
    pub freeing: unsafe extern "C" fn(*mut u8, usize) -> u64,
    pub freed: unsafe extern "C" fn(u64),
    pub reallocating: unsafe extern "C" fn(*mut u8, usize) -> u64,
    pub reallocated: unsafe extern "C" fn(u64, *mut u8, *mut u8, *const [usize; 2]),
    pub heap: unsafe extern "C" fn(*mut RawHeap) -> i32,
    pub flush: unsafe extern "C" fn(),
}

// SAFETY: `tprof.h` says that every thread may call the functions. The pointer `python` is never
// dereferenced.
unsafe impl Sync for Table {}
