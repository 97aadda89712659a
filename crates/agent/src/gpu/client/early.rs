//! Serves a client that uses CUPTI before the agent does, and hands the client over to the agent
//! when it starts.
//!
//! NVIDIA's samples register and enable kinds before `cuInit`, and a library that the job injects
//! itself (`CUDA_INJECTION64_PATH`) runs right before the agent. Until the agent starts, CUPTI
//! serves the client: calls with its callbacks and kinds are passed on to CUPTI, and remembered in
//! [`super::super::wants`].
//!
//! Two settings would spoil the agent's records: the clock, and the attribute by which buffers come
//! zeroed. They are only remembered, since before `cuInit` there is no record that they could
//! affect. If the agent doesn't start, they are passed on to CUPTI after all.

use super::super::client_clock as clock;
use super::super::cupti::Cupti;
use super::super::notes::note;
use super::super::{lent, started, wants};
use super::intercepted::real;
use tprof_cupti_sys::functions as f;
use tprof_cupti_sys::*;
use tprof_inject::block::Thread;
use tprof_inject::cupti_functions::Number;
use tprof_wire::gpu::trouble;
use tprof_wire::sync::Ordering::Relaxed;

/// Returns CUPTI's result. If CUPTI succeeded and the agent may still start, calls `keep` first.
fn kept(result: CUptiResult, keep: impl FnOnce()) -> CUptiResult {
    if result == CUPTI_SUCCESS && started::is_awaited() {
        keep();
    }
    result
}

/// Passes on `cuptiActivityRegisterCallbacks`, and remembers the callbacks.
pub fn register(request: wants::Request, complete: wants::Complete) -> CUptiResult {
    let result = real!(
        cuptiActivityRegisterCallbacks as f::ActivityRegisterCallbacks,
        (Some(request), Some(complete))
    );
    kept(result, || {
        wants::register(request, complete);
    })
}

/// Passes on `cuptiActivityEnable`. A client that enables a kind before the first record wants all
/// records of the kind.
pub fn enable(kind: CUpti_ActivityKind) -> CUptiResult {
    let result = real!(cuptiActivityEnable as f::ActivityEnable, (kind));
    kept(result, || {
        match kind {
            CUPTI_ACTIVITY_KIND_RUNTIME => wants::choose_all(false, true),
            CUPTI_ACTIVITY_KIND_DRIVER => wants::choose_all(true, true),
            _ => {}
        }
        wants::begin(kind, 0);
    })
}

/// Passes on `cuptiActivityDisable`, and remembers it.
pub fn disable(kind: CUpti_ActivityKind) -> CUptiResult {
    let result = real!(cuptiActivityDisable as f::ActivityDisable, (kind));
    kept(result, || wants::end(kind, 0))
}

/// Passes on `cuptiActivityEnableRuntimeApi` or `…DriverApi`, and remembers the choice.
pub fn choose_call(kind: CUpti_ActivityKind, call: u32, on: bool) -> CUptiResult {
    let driver = kind == CUPTI_ACTIVITY_KIND_DRIVER;
    let choice = u8::from(on);
    let result = match driver {
        true => {
            real!(cuptiActivityEnableDriverApi as f::ActivityEnableDriverApi, (call, choice))
        }
        false => {
            real!(cuptiActivityEnableRuntimeApi as f::ActivityEnableRuntimeApi, (call, choice))
        }
    };
    kept(result, || {
        if on && !wants::is_on(kind) {
            wants::choose_all(driver, false);
            wants::begin(kind, 0);
        }
        wants::choose(driver, call, on);
    })
}

/// Remembers the client's timestamp callback for the agent, or passes it on if no agent will start.
pub fn register_clock(clock: CUpti_TimestampCallbackFunc) -> CUptiResult {
    match clock {
        Some(clock) if started::is_awaited() => {
            clock::choose(clock);
            CUPTI_SUCCESS
        }
        _ => real!(
            cuptiActivityRegisterTimestampCallback as f::ActivityRegisterTimestampCallback,
            (clock)
        ),
    }
}

/// Flushes before the agent registers, so that an earlier client gets its buffers back. When
/// another client registers, CUPTI returns the earlier client's buffers to the new one, or not at
/// all.
pub fn flush() {
    if wants::callbacks().is_some() {
        real!(cuptiActivityFlushAll as f::ActivityFlushAll, (CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    }
}

/// Called when the agent has registered and started. From now on the agent serves the client.
pub fn go_on(thread: &Thread, cupti: &Cupti) {
    clock::read(cupti);
    let Some(callbacks) = wants::callbacks() else { return };
    note(thread, trouble::SHARED, 1, b"");
    if wants::is_any_on() {
        lent::prepare(callbacks);
    }
}

/// Called when the agent can't start, or when it uses another CUPTI than the client. Passes on to
/// the client's CUPTI everything that was only remembered.
pub fn hand_back() {
    if let Some(clock) = clock::forget() {
        real!(
            cuptiActivityRegisterTimestampCallback as f::ActivityRegisterTimestampCallback,
            (Some(clock))
        );
    }
    const ZEROED: CUpti_ActivityAttribute = CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER;
    let kept = wants::attribute(ZEROED).map_or(0, |kept| kept.load(Relaxed));
    if let Some(value) = kept.checked_sub(1) {
        let (mut value, mut bytes) = (value as u8, 1);
        real!(
            cuptiActivitySetAttribute as f::ActivitySetAttribute,
            (ZEROED, &raw mut bytes, (&raw mut value).cast())
        );
    }
    wants::forget(0);
}
