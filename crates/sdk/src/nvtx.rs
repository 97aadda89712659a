//! Passes spans to another tool's NVTX library if tprof is absent: the library that
//! `NVTX_INJECTION64_PATH` names, as under `nsys profile`. Spans and marks become ranges and marks
//! of the library's default domain, steps become ranges `step N`. NVTX has no equivalent of
//! arguments, counters, work and pools, so these are dropped.
//!
//! NVTX consists of headers. Each copy of the headers loads the tool's library and calls its
//! `InitializeInjectionNvtx2` with a function that returns tables. A table has numbered slots for
//! function pointers, which the library fills. This file is such a copy with the few functions that
//! tprof needs, after `nvtxImpl.h` and `nvtxTypes.h` of NVTX 3.

#![allow(unsafe_code)]

use crate::abi::{RawHeap, RawValue, Table};
use crate::name::Name;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::mem::{size_of, transmute};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn getenv(name: *const c_char) -> *const c_char;
    fn getauxval(kind: c_ulong) -> c_ulong;
}

const RTLD_LAZY: c_int = 1;
/// Key of `getauxval` for the address of the loader, which is 0 in a statically linked program.
const AT_BASE: c_ulong = 7;

/// Numbers of functions in NVTX's module `CORE`.
const MARK: usize = 2;
const START: usize = 5;
const END: usize = 7;
const PUSH: usize = 9;
const POP: usize = 11;
/// Number of slots in the table of that module. Slot 0 has no function.
const CORE_SIZE: usize = 16;
const MODULE_CORE: c_int = 1;

/// Function pointers from the library.
static FUNCTIONS: [AtomicUsize; CORE_SIZE] = {
    #[allow(clippy::declare_interior_mutable_const)] // each element is a copy
    const NONE: AtomicUsize = AtomicUsize::new(0);
    [NONE; CORE_SIZE]
};

/// Slots for function pointers, by number. Slot 0 and the slot after the last are null.
#[repr(transparent)]
struct FunctionSlots([*const AtomicUsize; CORE_SIZE + 1]);

// SAFETY: the slots are never changed, and point to static atomics, which threads may share.
unsafe impl Sync for FunctionSlots {}

static PLACES: FunctionSlots = {
    let mut places = [null(); CORE_SIZE + 1];
    let mut at = 1;
    while at < CORE_SIZE {
        places[at] = &FUNCTIONS[at] as *const AtomicUsize;
        at += 1;
    }
    FunctionSlots(places)
};

#[repr(C)]
struct Callbacks {
    bytes: usize,
    functions: extern "C" fn(c_int, *mut *const *const AtomicUsize, *mut c_uint) -> c_int,
}

#[repr(C)]
struct VersionInfo {
    bytes: usize,
    version: u32,
    reserved: u32,
    set_version: extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { bytes: size_of::<Callbacks>(), functions };
static VERSION: VersionInfo =
    VersionInfo { bytes: size_of::<VersionInfo>(), version: 3, reserved: 0, set_version };

extern "C" fn functions(
    module: c_int,
    places: *mut *const *const AtomicUsize,
    count: *mut c_uint,
) -> c_int {
    if module != MODULE_CORE || places.is_null() || count.is_null() {
        return 0;
    }
    // SAFETY: `places` is not null, and by the contract of NVTX the library passes a pointer to
    // which the address of the slots is written.
    unsafe { *places = PLACES.0.as_ptr() };
    // SAFETY: `count` is not null, and by the same contract points to the number of slots.
    unsafe { *count = CORE_SIZE as c_uint };
    1
}

extern "C" fn set_version(_: u32) {}

extern "C" fn export_table(table: u32) -> *const c_void {
    match table {
        1 => (&CALLBACKS as *const Callbacks).cast(),
        3 => (&VERSION as *const VersionInfo).cast(),
        _ => null(),
    }
}

/// Returns a table whose functions call the library. Returns `None` if there is no library or it
/// refuses to work. Also returns `None` in a statically linked program, into which a library would
/// bring a second libc.
pub fn table() -> Option<&'static Table> {
    // SAFETY: `getauxval` takes any number.
    if unsafe { getauxval(AT_BASE) } == 0 {
        return None;
    }
    // SAFETY: the name ends in NUL.
    let path = unsafe { getenv(b"NVTX_INJECTION64_PATH\0".as_ptr().cast()) };
    // SAFETY: the pointer is not null here, so `getenv` returned a string that ends in NUL.
    if path.is_null() || unsafe { *path } == 0 {
        return None;
    }
    // SAFETY: the path ends in NUL. Loading a library runs its constructors, as the headers of NVTX
    // do with the same variable. It is never unloaded.
    let library = unsafe { dlopen(path, RTLD_LAZY) };
    if library.is_null() {
        return None;
    }
    // SAFETY: `library` is a handle from `dlopen`, and the name ends in NUL.
    let symbol = unsafe { dlsym(library, b"InitializeInjectionNvtx2\0".as_ptr().cast()) };
    if symbol.is_null() {
        return None;
    }
    type Initialize = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: the function of this name has this type in every version of NVTX 2 and 3.
    let initialize = unsafe { transmute::<*mut c_void, Initialize>(symbol) };
    // SAFETY: `export_table` returns static tables with the layouts of `nvtxTypes.h`, which the
    // library may keep.
    (unsafe { initialize(export_table) } != 0).then_some(&TABLE)
}

/// Calls a function of the library with the type that belongs to its number.
macro_rules! call {
    ($number:expr, fn($($type:ty),*) -> $result:ty, ($($argument:expr),*)) => {{
        let function = FUNCTIONS[$number].load(Acquire);
        (function != 0).then(|| {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            // SAFETY: by the contract of NVTX the library stored a function of this type in the
            // slot of this number.
            let function = unsafe { transmute::<usize, Function>(function) };
            // SAFETY: the only pointers among the arguments are those of a [`Text`], which ends in
            // NUL and outlives the call.
            unsafe { function($($argument),*) }
        })
    }};
}

/// Longest text in bytes to pass on.
const TEXT_MOST: usize = 1023;

/// A name without its category as a C string, cut if it is long.
struct Text([u8; TEXT_MOST + 1]);

impl Text {
    fn of(name: *const Name) -> Text {
        // SAFETY: callers of the table pass null or a name that outlives the call (`tprof.h`).
        let text = unsafe { name.as_ref() }.map_or(&b""[..], Name::text);
        let end = text.iter().position(|byte| [0, 31].contains(byte)).unwrap_or(text.len());
        Text::cut(&text[..end])
    }

    fn cut(text: &[u8]) -> Text {
        let mut all = [0; TEXT_MOST + 1];
        let count = text.len().min(TEXT_MOST);
        all[..count].copy_from_slice(&text[..count]);
        Text(all)
    }

    fn pointer(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

/// Bit that marks the id of a span on the thread's stack.
const ON_STACK: u64 = 1 << 63;
/// Largest number of spans on a thread's stack.
const DEPTHS: u32 = 64;

thread_local! {
    /// Number of open spans, and a bit for each that has ended while inner spans are open.
    static OPEN: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
}
/// Whether [`stop_recording`](crate::stop_recording) was called.
static IS_OFF: AtomicBool = AtomicBool::new(false);
/// Range of the current step, and the number of the next.
static STEP: AtomicU64 = AtomicU64::new(0);
static NEXT_STEP: AtomicU64 = AtomicU64::new(0);

static TABLE: Table = Table {
    bytes: size_of::<Table>(),
    is_recording,
    record,
    mark,
    step,
    push,
    pop,
    start,
    end,
    counter: value,
    flops,
    python: null(),
    open,
    close,
    describe,
    complete,
    add: value,
    work,
    took,
    gave,
    // The functions for allocators do nothing in this table, because `Alloc` uses only tprof's own
    // table.
    allocating,
    allocated,
    freeing,
    freed,
    reallocating,
    reallocated,
    heap,
    flush,
};

fn is_on() -> bool {
    !IS_OFF.load(Relaxed)
}

extern "C" fn is_recording() -> i32 {
    i32::from(is_on())
}

extern "C" fn record(on: i32) -> i32 {
    IS_OFF.store(on == 0, Relaxed);
    i32::from(on != 0)
}

extern "C" fn mark(name: *const Name) {
    if is_on() {
        call!(MARK, fn(*const c_char) -> (), (Text::of(name).pointer()));
    }
}

extern "C" fn step(number: u64) {
    let next = NEXT_STEP.fetch_add(1, Relaxed);
    let number = if number == u64::MAX { next } else { number };
    let range = if is_on() { begin(&Text::cut(format!("step {number}").as_bytes())) } else { 0 };
    end(STEP.swap(range, AcqRel));
}

extern "C" fn push(name: *const Name) {
    open(name);
}

extern "C" fn pop() {
    if let Some(innermost) = OPEN.with(Cell::get).0.checked_sub(1) {
        close(ON_STACK | u64::from(innermost));
    }
}

fn begin(text: &Text) -> u64 {
    call!(START, fn(*const c_char) -> u64, (text.pointer())).unwrap_or(0) & !ON_STACK
}

extern "C" fn start(name: *const Name) -> u64 {
    if is_on() {
        begin(&Text::of(name))
    } else {
        0
    }
}

extern "C" fn end(span: u64) {
    if span != 0 {
        call!(END, fn(u64) -> (), (span));
    }
}

extern "C" fn open(name: *const Name) -> u64 {
    let (depth, over) = OPEN.with(Cell::get);
    if !is_on() {
        return 0;
    }
    if depth >= DEPTHS {
        return start(name);
    }
    OPEN.with(|open| open.set((depth + 1, over)));
    call!(PUSH, fn(*const c_char) -> c_int, (Text::of(name).pointer()));
    ON_STACK | u64::from(depth)
}

/// Closes a span. If inner ranges are still open, the range ends together with the last of them,
/// because NVTX has one stack per thread.
extern "C" fn close(span: u64) {
    if span & ON_STACK == 0 {
        return end(span);
    }
    let (mut depth, mut over) = OPEN.with(Cell::get);
    let at = span & !ON_STACK;
    if at >= u64::from(depth) {
        return;
    }
    over |= 1 << at;
    while depth > 0 && over & (1 << (depth - 1)) != 0 {
        depth -= 1;
        over &= !(1 << depth);
        call!(POP, fn() -> c_int, ());
    }
    OPEN.with(|open| open.set((depth, over)));
}

extern "C" fn describe(_: u64, _: *const Name, _: *const RawValue, _: usize) {}
extern "C" fn complete(_: *const Name, _: u64, _: u64) {}
extern "C" fn value(_: *const Name, _: f64) {}
extern "C" fn flops(_: u64) {}
extern "C" fn work(_: u64, _: u32) {}
extern "C" fn took(_: *const Name, _: u64, _: u64) {}
extern "C" fn gave(_: *const Name, _: u64) {}
extern "C" fn allocating() -> u64 {
    0
}
extern "C" fn allocated(_: u64, _: *mut u8, _: usize) {}
extern "C" fn freeing(_: *mut u8, _: usize) -> u64 {
    0
}
extern "C" fn freed(_: u64) {}
extern "C" fn reallocating(_: *mut u8, _: usize) -> u64 {
    0
}
extern "C" fn reallocated(_: u64, _: *mut u8, _: *mut u8, _: *const [usize; 2]) {}
extern "C" fn flush() {}

extern "C" fn heap(_: *mut RawHeap) -> i32 {
    0
}
