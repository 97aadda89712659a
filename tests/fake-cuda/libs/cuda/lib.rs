//! Stands in for the driver: streams as threads, one clock, one log, and the part of the driver's
//! interface that `tprof doctor --run-kernel` needs.
#![allow(unsafe_code, clippy::missing_safety_doc)]

mod callbacks;
mod contexts;
mod driver;
mod events;
mod graphs;
mod log;
mod memory;
mod other_memory;
mod streams;
mod time;
mod virtual_memory;

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use tprof_fake_cuda::{Engine, Happened, Place, Sink, number};

static SINK: AtomicUsize = AtomicUsize::new(0);
static CORRELATION: AtomicU32 = AtomicU32::new(0);
thread_local!(static DEVICE: Cell<u32> = const { Cell::new(0) });

static ENGINE: Engine = Engine {
    init: inject,
    begin,
    end,
    driver_end,
    now: time::now,
    stamp: time::stamp,
    stream: streams::create,
    put: streams::put,
    drain: streams::drain,
    drain_all: streams::drain_all,
    event: events::create,
    event_wait: events::wait,
    event_time: events::time_of,
    choose,
    chosen,
    devices,
    allocate: memory::allocate,
    adopt: memory::adopt,
    allocate_async: memory::allocate_async,
    release: memory::release,
    release_async: memory::release_async,
    release_all: memory::release_all,
    capture: graphs::capture,
    captured: graphs::captured,
    is_capturing: graphs::is_capturing,
    instantiate: graphs::instantiate,
    replay: graphs::replay,
    attach_sink,
    attach_callbacks: callbacks::attach,
    called: callbacks::call,
    is_starting,
    stream_id: streams::id,
    log: log::line,
};

/// Returns the table that the other stand-ins use.
#[unsafe(no_mangle)]
pub extern "C" fn tprof_fake_engine() -> *const Engine {
    &raw const ENGINE
}

/// Like the driver's function: the first call loads `CUDA_INJECTION64_PATH`.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: u32) -> c_int {
    inject();
    0
}

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *version = number("FAKE_CUDA_DRIVER_VERSION", 13050) as c_int };
    0
}

extern "C" fn inject() {
    static ONCE: Once = Once::new();
    // A recursive call, from the injected library, returns because the driver counts as started.
    if ONCE.is_completed() || INJECTING.get() {
        return;
    }
    ONCE.call_once(|| {
        STARTING.store(thread_id(), SeqCst);
        INJECTING.set(true);
        let Ok(path) = std::env::var("CUDA_INJECTION64_PATH") else { return };
        let path = format!("{path}\0");
        // SAFETY: the environment names the injected library, and its entry point has this type.
        unsafe {
            let handle = libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOW);
            if handle.is_null() {
                return;
            }
            let entry = libc::dlsym(handle, c"InitializeInjection".as_ptr());
            if !entry.is_null() {
                let entry: extern "C" fn() -> c_int = std::mem::transmute(entry);
                entry();
            }
        }
        INJECTING.set(false);
        // Starting takes longer with many devices.
        let more = number("FAKE_CUDA_INIT_NS", 0) as u64;
        std::thread::sleep(std::time::Duration::from_nanos(more));
    });
    STARTING.store(0, SeqCst);
    INJECTING.set(false);
}

/// The thread in `cuInit`, or 0.
static STARTING: AtomicU32 = AtomicU32::new(0);

extern "C" fn is_starting() -> bool {
    let thread = STARTING.load(SeqCst);
    thread != 0 && thread != thread_id()
}
thread_local!(static INJECTING: Cell<bool> = const { Cell::new(false) });

extern "C" fn attach_sink(sink: Option<Sink>) {
    SINK.store(sink.map_or(0, |f| f as usize), SeqCst);
    if sink.is_some() {
        for device in 0..devices() {
            streams::describe(device);
        }
    }
}

/// Logs what happened, and reports it to CUPTI.
fn happened(place: &Place, start: u64, end: u64, what: &Happened) {
    log::happened(place, start, end, what);
    report(place, start, end, what);
}

/// Reports to CUPTI, if it is attached.
fn report(place: &Place, start: u64, end: u64, what: &Happened) {
    let sink = SINK.load(SeqCst);
    if sink != 0 {
        // SAFETY: only `attach_sink` stores here, and only a `Sink`.
        let sink: Sink = unsafe { std::mem::transmute(sink) };
        sink(place, start, end, what);
    }
}

extern "C" fn begin() -> u32 {
    CORRELATION.fetch_add(1, Relaxed) + 1
}

extern "C" fn end(number: u32, name: *const c_char, correlation: u32, start: u64, result: u32) {
    let thread = thread_id();
    let what = Happened::Call(number, thread, result);
    returned(("call", name), correlation, start, (thread, result), &what);
    callbacks::call(false, number, name, correlation, &raw const result);
}

extern "C" fn driver_end(
    number: u32,
    name: *const c_char,
    correlation: u32,
    start: u64,
    result: u32,
) {
    let thread = thread_id();
    let what = Happened::DriverCall(number, thread, result);
    returned(("driver call", name), correlation, start, (thread, result), &what);
}

fn returned(
    (of, name): (&str, *const c_char),
    correlation: u32,
    start: u64,
    (thread, result): (u32, u32),
    what: &Happened,
) {
    let end = time::now();
    let place = Place { correlation, ..Place::default() };
    // SAFETY: the runtime's stand-in passes a literal, which ends with a zero.
    let name = unsafe { CStr::from_ptr(name) };
    log::call(of, name, &place, thread, start, end, result);
    report(&place, start, end, what);
}

fn thread_id() -> u32 {
    // SAFETY: gettid takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

extern "C" fn choose(device: u32) -> bool {
    if device < devices() {
        DEVICE.set(device);
        streams::enter(device);
    }
    device < devices()
}

extern "C" fn chosen() -> u32 {
    DEVICE.get()
}

extern "C" fn devices() -> u32 {
    number("FAKE_CUDA_DEVICES", 1) as u32
}

/// Turns a value into a handle that is never freed.
fn handle<T>(value: std::sync::Arc<T>) -> *mut c_void {
    std::sync::Arc::into_raw(value).cast_mut().cast()
}
