//! Exports the table `tprof_abi`, through which a program declares its own spans, steps and values.
//! `include/tprof.h` describes the functions.

use super::cupti;
use super::python::{Method, Python, python};
use tprof_inject::foreign_allocator::{self, HeapTotals};
use tprof_inject::spans::{self, SpanName, SpanValue};
use tprof_inject::stack_hook;

/// `struct tprof_abi`. New functions are only added at its end, and none is ever removed, since
/// programs rely on the offsets.
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
    open: unsafe extern "C" fn(*const SpanName) -> u64,
    close: extern "C" fn(u64),
    describe: unsafe extern "C" fn(u64, *const SpanName, *const SpanValue, usize),
    complete: unsafe extern "C" fn(*const SpanName, u64, u64),
    add: unsafe extern "C" fn(*const SpanName, f64),
    work: extern "C" fn(u64, u32),
    took: unsafe extern "C" fn(*const SpanName, u64, u64),
    gave: unsafe extern "C" fn(*const SpanName, u64),
    allocating: extern "C" fn() -> u64,
    allocated: unsafe extern "C" fn(u64, *mut u8, usize),
    freeing: extern "C" fn(*mut u8, usize) -> u64,
    freed: extern "C" fn(u64),
    reallocating: extern "C" fn(*mut u8, usize) -> u64,
    reallocated: unsafe extern "C" fn(u64, *mut u8, *mut u8, *const [usize; 2]),
    heap: unsafe extern "C" fn(*mut HeapTotals) -> i32,
    flush: extern "C" fn(),
}

/// The table that programs look up by its symbol.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // `tprof_abi` is the name that programs look up
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
    open,
    close,
    describe,
    complete,
    add,
    work,
    took,
    gave,
    allocating,
    allocated,
    freeing,
    freed,
    reallocating,
    reallocated,
    heap: heap_totals,
    flush,
};

extern "C" fn flush() {
    cupti::flush();
}

extern "C" fn is_recording() -> i32 {
    i32::from(spans::is_recording())
}

extern "C" fn record(on: i32) -> i32 {
    i32::from(spans::record(on != 0))
}

unsafe extern "C" fn mark(name: *const SpanName) {
    // SAFETY: `tprof.h` demands a `struct tprof_name` whose text stays valid while it is used.
    unsafe { spans::mark(name) };
}

extern "C" fn step(number: u64) {
    spans::step(number);
}

unsafe extern "C" fn push(name: *const SpanName) {
    // SAFETY: `tprof.h` demands a `struct tprof_name` whose text stays valid while it is used.
    unsafe { spans::push(name) };
}

extern "C" fn pop() {
    spans::pop();
}

unsafe extern "C" fn start(name: *const SpanName) -> u64 {
    // SAFETY: `tprof.h` demands a `struct tprof_name` whose text stays valid while it is used.
    unsafe { spans::start(name) }
}

extern "C" fn end(number: u64) {
    spans::end(number);
}

unsafe extern "C" fn counter(name: *const SpanName, value: f64) {
    // SAFETY: `tprof.h` demands a `struct tprof_name` whose text stays valid while it is used.
    unsafe { spans::counter(name, value) };
}

extern "C" fn flops(count: u64) {
    spans::work(count, 0);
}

unsafe extern "C" fn open(name: *const SpanName) -> u64 {
    // SAFETY: `tprof.h` demands a `struct tprof_name` whose text stays valid while it is used.
    unsafe { spans::open(name) }
}

extern "C" fn close(span: u64) {
    spans::close(span);
}

unsafe extern "C" fn describe(
    span: u64,
    keys: *const SpanName,
    values: *const SpanValue,
    count: usize,
) {
    // SAFETY: `tprof.h` demands a `struct tprof_name` with a valid text, and `count` values.
    unsafe { spans::describe(span, keys, values, count) };
}

unsafe extern "C" fn complete(name: *const SpanName, began_ago_ns: u64, ended_ago_ns: u64) {
    // SAFETY: `tprof.h` demands a `struct tprof_name` whose text stays valid while it is used.
    unsafe { spans::complete(name, began_ago_ns, ended_ago_ns) };
}

unsafe extern "C" fn add(name: *const SpanName, value: f64) {
    // SAFETY: `tprof.h` demands a `struct tprof_name` whose text stays valid while it is used.
    unsafe { spans::add(name, value) };
}

extern "C" fn work(count: u64, dtype: u32) {
    spans::work(count, dtype);
}

unsafe extern "C" fn took(pool: *const SpanName, block: u64, bytes: u64) {
    // SAFETY: `tprof.h` demands a `struct tprof_name` whose text stays valid while it is used.
    unsafe { spans::took(pool, block, bytes) };
}

unsafe extern "C" fn gave(pool: *const SpanName, block: u64) {
    // SAFETY: `tprof.h` demands a `struct tprof_name` whose text stays valid while it is used.
    unsafe { spans::gave(pool, block) };
}

extern "C" fn allocating() -> u64 {
    foreign_allocator::allocating()
}

stack_hook!(private #[doc = "A function of the table."] allocated(hidden: u64, block: *mut u8, bytes: usize) -> (), allocated_impl, "rcx", "r8");
unsafe extern "C" fn allocated_impl(
    hidden: u64,
    block: *mut u8,
    bytes: usize,
    sp: usize,
    fp: usize,
) {
    foreign_allocator::allocated(hidden, block, bytes, sp, fp);
}

extern "C" fn freeing(block: *mut u8, bytes: usize) -> u64 {
    foreign_allocator::freeing(block, bytes)
}

extern "C" fn freed(hidden: u64) {
    foreign_allocator::freed(hidden);
}

extern "C" fn reallocating(block: *mut u8, bytes: usize) -> u64 {
    foreign_allocator::reallocating(block, bytes)
}

stack_hook!(private #[doc = "A function of the table."] reallocated(hidden: u64, from: *mut u8, to: *mut u8, bytes: *const [usize; 2]) -> (), reallocated_impl, "r8", "r9");
unsafe extern "C" fn reallocated_impl(
    hidden: u64,
    from: *mut u8,
    to: *mut u8,
    bytes: *const [usize; 2],
    sp: usize,
    fp: usize,
) {
    // SAFETY: `tprof.h` demands an array of two sizes.
    let [before, after] = unsafe { *bytes };
    foreign_allocator::reallocated(hidden, (from, before), (to, after), sp, fp);
}

unsafe extern "C" fn heap_totals(into: *mut HeapTotals) -> i32 {
    let Some(totals) = foreign_allocator::totals() else { return 0 };
    // SAFETY: `tprof.h` demands null or a `struct tprof_heap` that can be written to.
    match unsafe { into.as_mut() } {
        Some(into) => *into = totals,
        None => return 0,
    }
    1
}
