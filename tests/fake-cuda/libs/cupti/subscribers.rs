//! The one client that may hold the subscription.

use crate::{buffers, enter, faults};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::*};
use tprof_cupti_sys::bindings::*;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// As CUPTI's: refused while another client holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe(
    subscriber: *mut CUpti_SubscriberHandle,
    _callback: CUpti_CallbackFunc,
    _data: *mut c_void,
) -> CUptiResult {
    let result = enter("cuptiSubscribe");
    if result != CUPTI_SUCCESS {
        return result;
    }
    if faults::is_set("subscriber") || TAKEN.swap(true, SeqCst) {
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
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

/// As CUPTI's.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(_subscriber: CUpti_SubscriberHandle) -> CUptiResult {
    TAKEN.store(false, SeqCst);
    enter("cuptiUnsubscribe")
}
