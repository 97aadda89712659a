//! Holds CUPTI's only subscription, and runs its client's callback at the calls that the client chose.

use crate::{clients, enter, faults, lock};
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

/// The data that a callback gets, laid out like `CUpti_CallbackData`.
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

/// Runs the client's callback when a CUDA call begins (`result` is null) or ends.
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
    // SAFETY: the client registered this function of CUPTI's type. `data` has everything that the
    // header promises, except the arguments and the kernel's name, which the tests' clients don't
    // read.
    unsafe { callback(user, domain, number, (&raw const data).cast()) };
}

/// Like CUPTI's function, but resources and other domains have no callbacks.
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

/// Like CUPTI's function: it refuses while another client holds the subscription.
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
    // SAFETY: the caller passes a valid pointer to write the answer to. The handle is opaque, and
    // nothing dereferences it.
    unsafe { *subscriber = (&raw const TAKEN).cast_mut().cast() };
    CUPTI_SUCCESS
}

/// Like CUPTI's function. A handle that isn't of a client in [`clients`] gives up the subscription.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(subscriber: CUpti_SubscriberHandle) -> CUptiResult {
    if !clients::unsubscribe(subscriber) {
        (engine().attach_callbacks)(None);
        TAKEN.store(false, SeqCst);
    }
    enter("cuptiUnsubscribe")
}
