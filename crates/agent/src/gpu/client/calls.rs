//! Serves the CUPTI calls of another client while the agent uses CUPTI. Each function here replaces
//! a function of CUPTI, and has its type and its results.
//!
//! A test in `tprof-cupti-sys` compares the types with those in CUPTI's header.

use super::super::agent;
use super::super::buffers;
use super::super::client_clock as clock;
use super::super::cupti::Cupti;
use super::super::detach;
use super::super::journal::{self, JournalEvent};
use super::super::kinds;
use super::super::notes::{note, refused};
use super::super::started;
use super::super::subscriber;
use super::super::{deliver, lent, wants};
use super::early;
use super::intercepted::real;
use core::ffi::c_void;
use tprof_cupti_sys::functions as f;
use tprof_cupti_sys::*;
use tprof_inject::cupti_functions::Number;
use tprof_inject::gate;
use tprof_wire::gpu::trouble;
use tprof_wire::sync::Ordering::Relaxed;

/// Notes a client's call in the journal. Returns its result.
fn served(number: Number, argument: u64, result: CUptiResult) -> CUptiResult {
    journal::keep(JournalEvent::Client, [number as u64, argument, u64::from(result)]);
    result
}

/// The current time on CUPTI's own clock.
fn now_ns(cupti: &Cupti) -> u64 {
    let mut now = 0;
    // SAFETY: `cuptiGetTimestamp` writes one number to the local that it gets.
    unsafe { (cupti.timestamp)(&raw mut now) };
    now
}

pub(super) extern "C" fn register_callbacks(
    request: CUpti_BuffersCallbackRequestFunc,
    complete: CUpti_BuffersCallbackCompleteFunc,
) -> CUptiResult {
    let (Some(request), Some(complete)) = (request, complete) else {
        return CUPTI_ERROR_INVALID_PARAMETER;
    };
    if started::serving().is_none() {
        let result = early::register(request, complete);
        note_refused(b"another client's callbacks (cuptiActivityRegisterCallbacks)", result);
        return result;
    }
    detach::attach_again();
    let is_other = |(had, _): (wants::Request, _)| had as usize != request as usize;
    if wants::callbacks().is_none_or(is_other) {
        // The buffer that an earlier client lent belongs to that client, so it goes back now.
        lent::flush();
    }
    let is_first = wants::register(request, complete).is_none();
    if let Some(thread) = gate::recording().filter(|_| is_first) {
        note(thread, trouble::SHARED, 1, b"");
    }
    if wants::is_any_on() {
        lent::prepare((request, complete));
    }
    served(Number::cuptiActivityRegisterCallbacks, 0, CUPTI_SUCCESS)
}

pub(super) extern "C" fn enable(kind: CUpti_ActivityKind) -> CUptiResult {
    let Some(cupti) = started::serving() else { return early::enable(kind) };
    detach::attach_again();
    kinds::locked(|| enable_with(&cupti, kind))
}

fn enable_with(cupti: &Cupti, kind: CUpti_ActivityKind) -> CUptiResult {
    let result = match kinds::is_on(kind) {
        true => CUPTI_SUCCESS,
        false => real!(cuptiActivityEnable as f::ActivityEnable, (kind)),
    };
    if result == CUPTI_SUCCESS {
        match kind {
            CUPTI_ACTIVITY_KIND_RUNTIME => wants::choose_all(false, true),
            CUPTI_ACTIVITY_KIND_DRIVER => wants::choose_all(true, true),
            _ => {}
        }
        wants::begin(kind, now_ns(cupti));
        kinds::mute(cupti, kind);
        kinds::choose_graphs(cupti);
    }
    if let Some(callbacks) = wants::callbacks().filter(|_| result == CUPTI_SUCCESS) {
        lent::prepare(callbacks);
    }
    served(Number::cuptiActivityEnable, kind.into(), result)
}

pub(super) extern "C" fn disable(kind: CUpti_ActivityKind) -> CUptiResult {
    let Some(cupti) = started::serving() else { return early::disable(kind) };
    kinds::locked(|| disable_with(&cupti, kind))
}

fn disable_with(cupti: &Cupti, kind: CUpti_ActivityKind) -> CUptiResult {
    wants::end(kind, now_ns(cupti));
    kinds::choose_graphs(cupti);
    if !kinds::is_on(kind) {
        return real!(cuptiActivityDisable as f::ActivityDisable, (kind));
    }
    kinds::mute(cupti, kind);
    served(Number::cuptiActivityDisable, kind.into(), CUPTI_SUCCESS)
}

/// Enables a kind for one context. If the agent collects the kind, it does so for all contexts.
/// Then the client gets it for all contexts, too.
pub(super) extern "C" fn enable_context(
    context: CUcontext,
    kind: CUpti_ActivityKind,
) -> CUptiResult {
    let real = || real!(cuptiActivityEnableContext as f::ActivityEnableContext, (context, kind));
    // A forked child isn't served, since the lock of [`kinds::locked`] may be locked forever
    // there.
    let Some(cupti) = started::serving() else { return real() };
    kinds::locked(|| {
        if kinds::is_on(kind) {
            return enable_with(&cupti, kind);
        }
        let result = real();
        if result == CUPTI_SUCCESS {
            wants::begin(kind, now_ns(&cupti));
        }
        result
    })
}

pub(super) extern "C" fn disable_context(
    context: CUcontext,
    kind: CUpti_ActivityKind,
) -> CUptiResult {
    let real = || real!(cuptiActivityDisableContext as f::ActivityDisableContext, (context, kind));
    let Some(cupti) = started::serving() else { return real() };
    kinds::locked(|| match kinds::is_on(kind) {
        true => disable_with(&cupti, kind),
        false => real(),
    })
}

pub(super) extern "C" fn set_attribute(
    attribute: CUpti_ActivityAttribute,
    bytes: *mut usize,
    value: *mut c_void,
) -> CUptiResult {
    let is_served = started::serving().is_some() || started::is_awaited();
    let Some(kept) = wants::attribute(attribute).filter(|_| is_served) else {
        return real!(
            cuptiActivitySetAttribute as f::ActivitySetAttribute,
            (attribute, bytes, value)
        );
    };
    if bytes.is_null() || value.is_null() {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    // SAFETY: the client passed a valid pointer to the value. By CUPTI's header, the values of
    // these attributes have one byte.
    kept.store(u32::from(unsafe { *value.cast::<u8>() }) + 1, Relaxed);
    // A buffer per thread suits the agent too, and CUPTI accepts this choice only before kinds are
    // enabled. So it is passed on if the agent has not started.
    if attribute == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER && started::serving().is_none() {
        return real!(
            cuptiActivitySetAttribute as f::ActivitySetAttribute,
            (attribute, bytes, value)
        );
    }
    CUPTI_SUCCESS
}

pub(super) extern "C" fn get_attribute(
    attribute: CUpti_ActivityAttribute,
    bytes: *mut usize,
    value: *mut c_void,
) -> CUptiResult {
    let kept = wants::attribute(attribute).map_or(0, |kept| kept.load(Relaxed));
    if kept == 0 || bytes.is_null() || value.is_null() {
        return real!(
            cuptiActivityGetAttribute as f::ActivityGetAttribute,
            (attribute, bytes, value)
        );
    }
    // SAFETY: the client passed both pointers to get the answers. By CUPTI's header, the values of
    // these attributes have one byte.
    unsafe {
        *bytes = 1;
        *value.cast::<u8>() = (kept - 1) as u8;
    }
    CUPTI_SUCCESS
}

pub(super) extern "C" fn register_timestamp_callback(
    clock: CUpti_TimestampCallbackFunc,
) -> CUptiResult {
    let Some(cupti) = started::serving() else { return early::register_clock(clock) };
    let Some(clock) = clock else { return CUPTI_ERROR_INVALID_PARAMETER };
    clock::choose(clock);
    clock::read(&cupti);
    served(Number::cuptiActivityRegisterTimestampCallback, 0, CUPTI_SUCCESS)
}

/// The current time on the client's clock. By CUPTI's header, this time must be comparable with the
/// times in the client's records.
pub(super) extern "C" fn get_timestamp(time: *mut u64) -> CUptiResult {
    match clock::now() {
        Some(now) if !time.is_null() => {
            // SAFETY: the client passed this pointer for the answer, and it isn't null.
            unsafe { *time = now };
            CUPTI_SUCCESS
        }
        _ => real!(cuptiGetTimestamp as f::GetTimestamp, (time)),
    }
}

pub(super) extern "C" fn flush_all(flags: u32) -> CUptiResult {
    let flush = || {
        buffers::during_flush(flags, || {
            real!(cuptiActivityFlushAll as f::ActivityFlushAll, (flags))
        })
    };
    if started::serving().is_none() {
        return flush();
    }
    if wants::callbacks().is_none() {
        // CUPTI's header demands this result, since the client has not registered callbacks.
        return CUPTI_ERROR_INVALID_OPERATION;
    }
    let result = flush();
    deliver::wait();
    lent::flush();
    served(Number::cuptiActivityFlushAll, flags.into(), result)
}

pub(super) extern "C" fn flush_period(milliseconds: u32) -> CUptiResult {
    let result = real!(cuptiActivityFlushPeriod as f::ActivityFlushPeriod, (milliseconds));
    if result == CUPTI_SUCCESS {
        wants::IS_PERIODIC.store(milliseconds != 0, Relaxed);
    }
    result
}

pub(super) extern "C" fn dropped_records(
    context: CUcontext,
    stream: u32,
    dropped: *mut usize,
) -> CUptiResult {
    let result = real!(
        cuptiActivityGetNumDroppedRecords as f::ActivityGetNumDroppedRecords,
        (context, stream, dropped)
    );
    if result == CUPTI_SUCCESS && !dropped.is_null() {
        // SAFETY: the client passed this pointer for the answer, and CUPTI has just written to it.
        unsafe {
            wants::DROPPED_OURS.fetch_add(*dropped as u64, Relaxed);
            *dropped += wants::DROPPED.swap(0, Relaxed) as usize;
        }
    }
    result
}

pub(super) extern "C" fn enable_runtime_api(call: CUpti_CallbackId, on: u8) -> CUptiResult {
    choose_call(CUPTI_ACTIVITY_KIND_RUNTIME, call, on != 0)
}

pub(super) extern "C" fn enable_driver_api(call: CUpti_CallbackId, on: u8) -> CUptiResult {
    choose_call(CUPTI_ACTIVITY_KIND_DRIVER, call, on != 0)
}

/// Enables or disables the records of one call. By CUPTI's header, if the kind itself is off, only
/// the calls that are enabled here are recorded.
fn choose_call(kind: CUpti_ActivityKind, call: u32, on: bool) -> CUptiResult {
    let Some(cupti) = started::serving() else { return early::choose_call(kind, call, on) };
    kinds::locked(|| choose_with(&cupti, kind, call, on))
}

fn choose_with(cupti: &Cupti, kind: CUpti_ActivityKind, call: u32, on: bool) -> CUptiResult {
    let driver = kind == CUPTI_ACTIVITY_KIND_DRIVER;
    if !kinds::is_on(kind) {
        let flag = u8::from(on);
        let result = match driver {
            true => real!(cuptiActivityEnableDriverApi as f::ActivityEnableDriverApi, (call, flag)),
            false => {
                real!(cuptiActivityEnableRuntimeApi as f::ActivityEnableRuntimeApi, (call, flag))
            }
        };
        // When recording resumes, the agent's kind is on again. From then on the client's calls are
        // selected from the agent's records.
        if result != CUPTI_SUCCESS || !kinds::is_paused() {
            return result;
        }
    }
    if on && !wants::is_on(kind) {
        wants::choose_all(driver, false);
        wants::begin(kind, now_ns(cupti));
    }
    wants::choose(driver, call, on);
    kinds::mute(cupti, kind);
    CUPTI_SUCCESS
}

/// Only stores the client's choice while the agent runs, since the agent needs the kernel's thread
/// ids.
pub(super) extern "C" fn set_thread_id_type(kind: CUpti_ActivityThreadIdType) -> CUptiResult {
    wants::THREAD_IDS.store(kind + 1, Relaxed);
    match started::serving() {
        Some(_) => CUPTI_SUCCESS,
        None => real!(cuptiSetThreadIdType as f::SetThreadIdType, (kind)),
    }
}

pub(super) extern "C" fn get_thread_id_type(kind: *mut CUpti_ActivityThreadIdType) -> CUptiResult {
    if kind.is_null() {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    let chosen = wants::THREAD_IDS.load(Relaxed);
    // SAFETY: the client passed this pointer for the answer, and it isn't null.
    unsafe {
        *kind = chosen.checked_sub(1).unwrap_or(CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT);
    }
    CUPTI_SUCCESS
}

/// Newest version of CUPTI in which disabling a domain may disable kinds: 12.6. Its update 1 has
/// the same number.
const DOMAIN_DISABLES_KINDS: u32 = 24;

pub(super) extern "C" fn enable_domain(
    on: u32,
    subscriber: CUpti_SubscriberHandle,
    domain: CUpti_CallbackDomain,
) -> CUptiResult {
    let result = real!(cuptiEnableDomain as f::EnableDomain, (on, subscriber, domain));
    let is_concerned = |cupti: &Cupti| on == 0 && cupti.version <= DOMAIN_DISABLES_KINDS;
    if let Some(cupti) = started::cupti().filter(is_concerned) {
        kinds::enable_again(&cupti);
    }
    result
}

/// Reports that CUPTI refused another client's call because the agent uses the other of two
/// interfaces. The interface of CUDA 13.3 and the older one exclude each other.
fn note_refused(what: &[u8], result: CUptiResult) {
    let Some(cupti) = started::cupti().filter(|_| result != CUPTI_SUCCESS) else { return };
    // Before the agent has started, this library must not begin to record, so nothing is reported.
    if let Some(thread) = gate::recording() {
        refused(thread, &cupti, what, result);
    }
}

/// Passes on a client's subscription by the interface of CUDA 13.3, and notes it.
pub(super) extern "C" fn subscribe_v2(
    subscriber: *mut CUpti_SubscriberHandle,
    callback: CUpti_CallbackFunc,
    data: *mut c_void,
    parameters: *mut CUpti_SubscriberParams,
) -> CUptiResult {
    let result =
        real!(cuptiSubscribe_v2 as f::SubscribeV2, (subscriber, callback, data, parameters));
    if result == CUPTI_SUCCESS && started::is_awaited() {
        // SAFETY: CUPTI has accepted these parameters, so they are valid.
        unsafe { subscriber::has_client(parameters) };
    }
    note_refused(b"another client's subscription (cuptiSubscribe_v2)", result);
    result
}

/// Ends the agent's own sampling of instructions, which another client's would collide with.
pub(super) extern "C" fn pc_sampling_enable(
    parameters: *mut CUpti_PCSamplingEnableParams,
) -> CUptiResult {
    agent::leave_sampling();
    real!(cuptiPCSamplingEnable as f::PcSamplingEnable, (parameters))
}

/// Ends the agent's sampling of instructions, which uses the same units as another client's
/// counters.
pub(super) extern "C" fn profiler_initialize(
    parameters: *mut CUpti_Profiler_Initialize_Params,
) -> CUptiResult {
    agent::leave_sampling();
    real!(cuptiProfilerInitialize as f::ProfilerInitialize, (parameters))
}

pub(super) extern "C" fn finalize() -> CUptiResult {
    let now = started::serving().map_or(0, |cupti| now_ns(&cupti));
    let finalize = || real!(cuptiFinalize as f::Finalize, ());
    let result = match started::cupti() {
        // The agent's subscription ends first. Otherwise CUPTI would find one client more than
        // without tprof, and detaching would fail.
        Some(cupti) if cupti.has_clients_apart => {
            let mut result = CUPTI_SUCCESS;
            detach::detached(|| {
                subscriber::leave();
                result = finalize();
                CUPTI_SUCCESS
            });
            return result;
        }
        Some(_) => detach::detached(finalize),
        None => finalize(),
    };
    if result == CUPTI_SUCCESS {
        wants::forget(now);
        clock::forget();
    }
    result
}
