//! The table by which a program names its own spans, steps and values: see `include/tprof.h`.

use super::python::{Method, Python, python};
use tprof_inject::spans::{self, SpanName};

/// `struct tprof_abi`. Functions are added at its end, and never taken away.
#[repr(C)]
pub struct Abi {
    /// Bytes of the table.
    bytes: usize,
    is_recording: extern "C" fn() -> i32,
    record: extern "C" fn(i32) -> i32,
    mark: unsafe extern "C" fn(*const SpanName),
    step: extern "C" fn(u64),
    push: unsafe extern "C" fn(*const SpanName),
    pop: extern "C" fn(),
    start: unsafe extern "C" fn(*const SpanName) -> u64,
    end: extern "C" fn(u64),
    counter: unsafe extern "C" fn(*const SpanName, f64),
    flops: extern "C" fn(u64),
    python: unsafe extern "C" fn(*const Python) -> *const Method,
}

/// The table.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // as programs look it up
pub static tprof_abi: Abi = Abi {
    bytes: size_of::<Abi>(),
    is_recording,
    record,
    mark,
    step,
    push,
    pop,
    start,
    end,
    counter,
    flops,
    python,
};

extern "C" fn is_recording() -> i32 {
    i32::from(spans::is_recording())
}

extern "C" fn record(on: i32) -> i32 {
    i32::from(spans::record(on != 0))
}

unsafe extern "C" fn mark(name: *const SpanName) {
    // SAFETY: the header's contract.
    unsafe { spans::mark(name) };
}

extern "C" fn step(number: u64) {
    spans::step(number);
}

unsafe extern "C" fn push(name: *const SpanName) {
    // SAFETY: the header's contract.
    unsafe { spans::push(name) };
}

extern "C" fn pop() {
    spans::pop();
}

unsafe extern "C" fn start(name: *const SpanName) -> u64 {
    // SAFETY: the header's contract.
    unsafe { spans::start(name) }
}

extern "C" fn end(number: u64) {
    spans::end(number);
}

unsafe extern "C" fn counter(name: *const SpanName, value: f64) {
    // SAFETY: the header's contract.
    unsafe { spans::counter(name, value) };
}

extern "C" fn flops(count: u64) {
    spans::flops(count);
}
