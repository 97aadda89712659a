//! Stands in for CUPTI 12.9 and 13.5: its activity interface, which the driver's stand-in supplies
//! with events. The real CUPTI demands some things of its clients without checking them: zeroed
//! buffers, no call before the driver is loaded, and no call in a forked child. This one checks
//! them, and logs each violation as a `complaint`.
#![allow(unsafe_code, non_snake_case, non_upper_case_globals, clippy::missing_safety_doc)]

mod buffers;
mod clients;
mod clock;
mod external;
mod faults;
mod muted;
mod names;
mod numbers;
mod pm_sampling;
mod recording;
mod records;
mod replay;
mod sampling;
mod subscribers;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, Once};
use tprof_cupti_sys::bindings::*;
use tprof_fake_cuda::{engine, number};

unsafe extern "C" {
    /// The major version of this CUPTI: 12 or 13. Defined where the library is linked.
    static fake_major: c_int;
}

/// Returns 12 or 13.
pub fn major() -> c_int {
    // SAFETY: `fake_major` is a constant that the link defines.
    unsafe { fake_major }
}

/// The kinds that are being collected, as bits.
static KINDS: AtomicU64 = AtomicU64::new(0);
/// The time from which calls are collected. A call that began earlier has no record.
static CALLS_FROM: AtomicU64 = AtomicU64::new(0);
static ZEROED: AtomicBool = AtomicBool::new(false);
static PER_THREAD: AtomicBool = AtomicBool::new(false);
/// Whether records have the kernel's thread ids.
static SYSTEM_THREADS: AtomicBool = AtomicBool::new(false);

/// Locks a mutex, even after a holder has panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Whether a kind is collected.
pub fn is_on(kind: CUpti_ActivityKind) -> bool {
    KINDS.load(Relaxed) >> kind & 1 != 0
}

/// Returns the kinds that clients collect, as bits. A program uses it to wait until the kinds have
/// been restored.
#[unsafe(no_mangle)]
pub extern "C" fn tprof_fake_kinds() -> u64 {
    KINDS.load(SeqCst)
}

/// Logs how many kinds are collected now.
fn log_kinds() {
    let line = format!("{{\"what\":\"kinds\",\"on\":{}}}", KINDS.load(SeqCst).count_ones());
    (engine().log)(line.as_ptr(), line.len());
}

/// Logs that a client violated a rule of CUPTI.
pub fn complain(what: &str) {
    let line = format!("{{\"what\":\"complaint\",\"about\":\"{what}\"}}");
    (engine().log)(line.as_ptr(), line.len());
}

/// Checks what every call needs. Without a driver there is no CUPTI.
fn enter(name: &str) -> CUptiResult {
    // SAFETY: dlopen with RTLD_NOLOAD only looks the library up, and its name ends with a zero.
    let driver =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if driver.is_null() {
        if major() == 13 {
            // SAFETY: abort has no preconditions. CUPTI 13.2 does the same here.
            unsafe { libc::abort() };
        }
        return CUPTI_ERROR_NOT_INITIALIZED;
    }
    static PID: Mutex<u32> = Mutex::new(0);
    let mut first = lock(&PID);
    if *first == 0 {
        *first = std::process::id();
    } else if *first != std::process::id() {
        complain(&format!("{name} in a forked child"));
    }
    if (engine().is_starting)() {
        complain(&format!("{name} while another thread is in cuInit"));
    }
    match clients::use_interface(name) {
        CUPTI_SUCCESS => faults::refusal(name),
        refused => refused,
    }
}

fn feed() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| (engine().attach_sink)(Some(records::take)));
}

/// The version that this CUPTI reports.
pub fn version() -> u32 {
    let known = if major() == 12 { 28 } else { 130_500 };
    let known = replay::replay().map_or(known, |replay| i64::from(replay.version));
    number("FAKE_CUPTI_VERSION", known) as u32
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetVersion(known: *mut u32) -> CUptiResult {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *known = version() };
    enter("cuptiGetVersion")
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetTimestamp(time: *mut u64) -> CUptiResult {
    let engine = engine();
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe {
        *time = match replay::replay() {
            Some(replay) => replay.timestamp(),
            None => clock::of((engine.stamp)((engine.now)())),
        }
    };
    enter("cuptiGetTimestamp")
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetResultString(
    result: CUptiResult,
    text: *mut *const c_char,
) -> CUptiResult {
    let name: &CStr = match result {
        CUPTI_SUCCESS => c"CUPTI_SUCCESS",
        CUPTI_ERROR_NOT_INITIALIZED => c"CUPTI_ERROR_NOT_INITIALIZED",
        CUPTI_ERROR_NOT_COMPATIBLE => c"CUPTI_ERROR_NOT_COMPATIBLE",
        CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => {
            c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
        }
        CUPTI_ERROR_INVALID_OPERATION => c"CUPTI_ERROR_INVALID_OPERATION",
        CUPTI_ERROR_NOT_SUPPORTED => c"CUPTI_ERROR_NOT_SUPPORTED",
        CUPTI_ERROR_INSUFFICIENT_PRIVILEGES => c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        _ => c"CUPTI_ERROR_UNKNOWN",
    };
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *text = name.as_ptr() };
    CUPTI_SUCCESS
}

/// Like CUPTI's function, for the calls that the runtime's stand-in makes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetCallbackName(
    domain: CUpti_CallbackDomain,
    number: u32,
    name: *mut *const c_char,
) -> CUptiResult {
    let found = match domain {
        CUPTI_CB_DOMAIN_RUNTIME_API => {
            records::name_of(number).or_else(|| names::of_runtime(number))
        }
        CUPTI_CB_DOMAIN_DRIVER_API => names::of_driver(number),
        _ => None,
    };
    let Some(found) = found else { return CUPTI_ERROR_INVALID_PARAMETER };
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *name = found.as_ptr() };
    CUPTI_SUCCESS
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityRegisterCallbacks(
    request: CUpti_BuffersCallbackRequestFunc,
    complete: CUpti_BuffersCallbackCompleteFunc,
) -> CUptiResult {
    let (Some(request), Some(complete)) = (request, complete) else {
        return CUPTI_ERROR_INVALID_PARAMETER;
    };
    let result = enter("cuptiActivityRegisterCallbacks");
    if let Some(replay) = replay::replay() {
        return replay.register(request, complete);
    }
    if result == CUPTI_SUCCESS {
        buffers::register(request, complete);
    }
    result
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(kind: CUpti_ActivityKind) -> CUptiResult {
    let mut result = enter("cuptiActivityEnable");
    if let Some(replay) = replay::replay() {
        return replay.enable(kind);
    }
    if result == CUPTI_SUCCESS {
        result = faults::refusal(&format!("cuptiActivityEnable/{kind}"));
    }
    if result == CUPTI_SUCCESS && (kind >= 64 || records::size(kind) == 0) {
        result = CUPTI_ERROR_INVALID_KIND;
    }
    if result == CUPTI_SUCCESS {
        muted::none(kind);
        if kind == CUPTI_ACTIVITY_KIND_RUNTIME && !is_on(kind) {
            CALLS_FROM.store((engine().now)(), SeqCst);
        }
        KINDS.fetch_or(1 << kind, SeqCst);
        log_kinds();
        feed();
    }
    result
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(kind: CUpti_ActivityKind) -> CUptiResult {
    let result = enter("cuptiActivityDisable");
    if result == CUPTI_SUCCESS && kind < 64 {
        KINDS.fetch_and(!(1 << kind), SeqCst);
        log_kinds();
    }
    result
}

/// Like CUPTI's function, without an effect: the stand-in has no domains.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableDomain(
    on: u32,
    _subscriber: *mut c_void,
    _domain: CUpti_CallbackDomain,
) -> CUptiResult {
    let result = enter("cuptiEnableDomain");
    if result == CUPTI_SUCCESS && on == 0 && faults::is_set("domains") {
        KINDS.store(0, SeqCst);
    }
    result
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivitySetAttribute(
    attribute: CUpti_ActivityAttribute,
    size: *mut usize,
    value: *mut c_void,
) -> CUptiResult {
    let result = enter("cuptiActivitySetAttribute");
    if result != CUPTI_SUCCESS {
        return result;
    }
    // SAFETY: the caller passes a valid size, and a value of `size` bytes.
    let on = unsafe { *size >= 1 && *value.cast::<u8>() != 0 };
    match attribute {
        CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER => ZEROED.store(on, SeqCst),
        CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER if KINDS.load(SeqCst) != 0 => {
            complain("PER_THREAD_ACTIVITY_BUFFER changed while kinds are collected");
        }
        CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER => PER_THREAD.store(on, SeqCst),
        _ => {}
    }
    CUPTI_SUCCESS
}

/// Like CUPTI's function, for the two attributes of buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetAttribute(
    attribute: CUpti_ActivityAttribute,
    size: *mut usize,
    value: *mut c_void,
) -> CUptiResult {
    let on = match attribute {
        CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER => ZEROED.load(SeqCst),
        CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER => PER_THREAD.load(SeqCst),
        _ => return CUPTI_ERROR_INVALID_PARAMETER,
    };
    // SAFETY: the caller passes valid pointers to write the answers to.
    unsafe {
        *size = 1;
        *value.cast::<u8>() = u8::from(on);
    }
    enter("cuptiActivityGetAttribute")
}

/// Like CUPTI's function, which detaches CUPTI: buffers that clients lent never come back.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiFinalize() -> CUptiResult {
    let result = enter("cuptiFinalize");
    if result == CUPTI_SUCCESS && clients::may_finalize() {
        clients::forget();
        KINDS.store(0, SeqCst);
        clock::forget();
        buffers::detach();
    }
    result
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiSetThreadIdType(kind: CUpti_ActivityThreadIdType) -> CUptiResult {
    SYSTEM_THREADS.store(kind == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM, SeqCst);
    enter("cuptiSetThreadIdType")
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(flags: u32) -> CUptiResult {
    let mut result = enter("cuptiActivityFlushAll");
    if let Some(replay) = replay::replay() {
        return replay.flush();
    }
    if result == CUPTI_SUCCESS && !clients::are_apart() && !buffers::is_registered() {
        result = CUPTI_ERROR_INVALID_OPERATION;
    }
    if result == CUPTI_SUCCESS {
        let line = format!("{{\"what\":\"flush\",\"start\":{}}}", (engine().now)());
        (engine().log)(line.as_ptr(), line.len());
        if flags != 0 {
            records::late_contexts();
        }
        match clients::are_apart() {
            true => clients::flush(),
            false => buffers::flush(flags != 0),
        }
    }
    result
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut CUpti_Activity,
) -> CUptiResult {
    if buffer.is_null() || record.is_null() {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    // SAFETY: the caller's record is null, or this function returned it before; records lie one
    // behind the other in the buffer.
    unsafe {
        let next = if (*record).is_null() {
            buffer
        } else {
            (*record).cast::<u8>().add(records::size((**record).kind))
        };
        if next as usize >= buffer as usize + valid {
            return CUPTI_ERROR_MAX_LIMIT_REACHED;
        }
        if records::size((*next.cast::<CUpti_Activity>()).kind) == 0 {
            return CUPTI_ERROR_INVALID_KIND;
        }
        *record = next.cast();
    }
    CUPTI_SUCCESS
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: CUcontext,
    _stream: u32,
    dropped: *mut usize,
) -> CUptiResult {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *dropped = faults::DROPPED.swap(0, SeqCst) };
    enter("cuptiActivityGetNumDroppedRecords")
}
