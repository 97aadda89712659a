//! The one client that may hold the subscription, and which calls it wants to be called for.

use crate::{buffers, enter, faults, lock};
use std::collections::BTreeSet;
use std::ffi::{c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};
use tprof_cupti_sys::bindings::*;
use tprof_fake_cuda::engine;

static TAKEN: AtomicBool = AtomicBool::new(false);

struct Wanted {
    callback: CUpti_CallbackFunc,
    data: usize,
    calls: BTreeSet<(CUpti_CallbackDomain, u32)>,
}

static WANTED: Mutex<Wanted> =
    Mutex::new(Wanted { callback: None, data: 0, calls: BTreeSet::new() });

/// What a callback of a call gets, by CUPTI's header.
#[repr(C)]
struct CallbackData {
    site: u32,
    function_name: *const c_char,
    function_params: *const c_void,
    return_value: *const c_void,
    symbol_name: *const c_char,
    context: *mut c_void,
    context_id: u32,
    between: *mut u64,
    correlation: u32,
}

extern "C" fn called(
    driver: bool,
    number: u32,
    name: *const c_char,
    correlation: u32,
    result: *const u32,
) {
    let domain = match driver {
        true => CUPTI_CB_DOMAIN_DRIVER_API,
        false => CUPTI_CB_DOMAIN_RUNTIME_API,
    };
    let wanted = lock(&WANTED);
    let Some(callback) = wanted.callback.filter(|_| wanted.calls.contains(&(domain, number)))
    else {
        return;
    };
    let user = wanted.data as *mut c_void;
    drop(wanted);
    let context_id = (engine().chosen)() + 1;
    let mut between = 0;
    let data = CallbackData {
        site: u32::from(!result.is_null()),
        function_name: name,
        function_params: std::ptr::null(),
        return_value: result.cast(),
        symbol_name: std::ptr::null(),
        context: context_id as usize as *mut c_void,
        context_id,
        between: &raw mut between,
        correlation,
    };
    // SAFETY: the client's function, with what the header promises it, but for the arguments and
    // the kernel's name.
    unsafe { callback(user, domain, number, (&raw const data).cast()) };
}

/// As CUPTI's. Nothing is called for resources and other domains.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableCallback(
    on: u32,
    _subscriber: CUpti_SubscriberHandle,
    domain: CUpti_CallbackDomain,
    number: u32,
) -> CUptiResult {
    let result = enter("cuptiEnableCallback");
    if result == CUPTI_SUCCESS {
        let calls = &mut lock(&WANTED).calls;
        match on {
            0 => calls.remove(&(domain, number)),
            _ => calls.insert((domain, number)),
        };
    }
    result
}

/// As CUPTI's: refused while another client holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe(
    subscriber: *mut CUpti_SubscriberHandle,
    callback: CUpti_CallbackFunc,
    data: *mut c_void,
) -> CUptiResult {
    let result = enter("cuptiSubscribe");
    if result != CUPTI_SUCCESS {
        return result;
    }
    if faults::is_set("subscriber") || TAKEN.swap(true, SeqCst) {
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    *lock(&WANTED) = Wanted { callback, data: data as usize, calls: BTreeSet::new() };
    (engine().attach_callbacks)(Some(called));
    // SAFETY: the caller's place for the answer; the handle is opaque.
    unsafe { *subscriber = (&raw const TAKEN).cast_mut().cast() };
    CUPTI_SUCCESS
}

/// As CUPTI's, by its documentation: refused where the older interface is in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe_v2(
    subscriber: *mut CUpti_SubscriberHandle,
    callback: CUpti_CallbackFunc,
    data: *mut c_void,
    _parameters: *mut CUpti_SubscriberParams,
) -> CUptiResult {
    if buffers::is_registered() {
        return CUPTI_ERROR_NOT_COMPATIBLE;
    }
    // SAFETY: as the caller calls this.
    unsafe { cuptiSubscribe(subscriber, callback, data) }
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(_subscriber: CUpti_SubscriberHandle) -> CUptiResult {
    (engine().attach_callbacks)(None);
    TAKEN.store(false, SeqCst);
    enter("cuptiUnsubscribe")
}
