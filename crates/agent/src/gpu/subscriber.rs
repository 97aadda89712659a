//! Uses CUPTI's interface for several clients (CUDA 13.3 Update 1). Each client subscribes and has
//! its own kinds, buffers and records, so that no client must serve another. By NVIDIA's
//! documentation, this interface and the older one exclude each other in a process. The agent uses
//! this interface if the user requests it, or if a client has already subscribed through it, since
//! CUPTI would then refuse the older one.
//!
//! The functions here have the types of the older ones, and add the agent's handle. They replace
//! those in [`Cupti`].

use super::cupti::Cupti;
use super::loader::{Loader, function};
use super::places::CuptiLibrary;
use core::ffi::{CStr, c_void};
use core::mem::{offset_of, transmute};
use tprof_cupti_sys::functions as f;
use tprof_cupti_sys::*;
use tprof_inject::environment;
use tprof_wire::env;
use tprof_wire::sync::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

/// Oldest version with which this interface is used: CUDA 13.3 Update 1. In 13.2 the interface was
/// experimental, and 13.3 may crash if clients begin at the same time.
const FROM: u32 = 130_301;

/// Whether a client that allows other subscribers subscribed before the agent could.
static HAS_CLIENT: AtomicBool = AtomicBool::new(false);
/// The agent's subscriber handle; null while the agent isn't a subscriber.
static HANDLE: AtomicPtr<CUpti_Subscriber_st> = AtomicPtr::new(core::ptr::null_mut());
/// Address of the agent's function that lends a buffer, which has the older interface's type.
static LENDS: AtomicUsize = AtomicUsize::new(0);
static TAKES: AtomicUsize = AtomicUsize::new(0);

/// Passes each function to a macro: its name in [`Function`] and its name in CUPTI.
macro_rules! functions {
    ($take:ident) => {
        $take! {
            Subscribe c"cuptiSubscribe_v2",
            Unsubscribe c"cuptiUnsubscribe",
            Register c"cuptiActivityRegisterCallbacks_v2",
            Enable c"cuptiActivityEnable_v2",
            Disable c"cuptiActivityDisable_v2",
            Set c"cuptiActivitySetAttribute_v2",
            Next c"cuptiActivityGetNextRecord_v2",
            Dropped c"cuptiActivityGetNumDroppedRecords_v2",
            Timestamp c"cuptiGetTimestamp_v2",
            RuntimeCall c"cuptiActivityEnableRuntimeApi_v2",
            DriverCall c"cuptiActivityEnableDriverApi_v2",
        }
    };
}

macro_rules! table {
    ($($place:ident $name:literal,)*) => {
        #[derive(Clone, Copy)]
        enum Function { $($place),* }
        const NAMES: &[&CStr] = &[$($name),*];
        static FOUND: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
    };
}
functions!(table);

/// Calls a function of [`FOUND`], which [`of`] has filled, or returns an error if it isn't known.
macro_rules! call {
    ($place:ident as $type:ty, ($($argument:expr),*)) => {{
        let address = FOUND.get(Function::$place as usize).map_or(0, |found| found.load(Acquire));
        match address {
            0 => CUPTI_ERROR_NOT_INITIALIZED,
            address => {
                let call = function!(address, $type);
                // SAFETY: `$type` is the function's type in CUPTI's header. The arguments are
                // those that CUPTI's caller passed, or pointers to locals.
                unsafe { call($($argument),*) }
            }
        }
    }};
}

/// Called when a client has subscribed while the agent may still start.
///
/// # Safety
/// `parameters` is null, or CUPTI has accepted it, so that it begins with its own size.
pub unsafe fn has_client(parameters: *const CUpti_SubscriberParams) {
    const REACHES: usize = offset_of!(CUpti_SubscriberParams, allowMultipleSubscribers);
    // SAFETY: the caller guarantees the size field. The other field is read only if the size says
    // that the structure includes it.
    let allows = !parameters.is_null()
        && unsafe {
            (*parameters).structSize > REACHES && (*parameters).allowMultipleSubscribers != 0
        };
    HAS_CLIENT.store(allows, Release);
}

/// Whether the user requests that the agent subscribes.
pub fn is_asked() -> bool {
    environment::variable(env::CUPTI_SUBSCRIBE).is_some_and(|text| text == b"1")
}

/// Returns the same CUPTI with the functions of this interface, if the agent should subscribe and
/// the library has all of them.
pub fn of(older: &Cupti, loader: &Loader, library: &CuptiLibrary) -> Option<Cupti> {
    if older.version < FROM || !(is_asked() || HAS_CLIENT.load(Acquire)) {
        return None;
    }
    for (name, found) in NAMES.iter().zip(&FOUND) {
        found.store(loader.symbol(library.handle, name)?, Release);
    }
    Some(Cupti {
        has_clients_apart: true,
        timestamp,
        register,
        enable,
        disable: Some(disable),
        next,
        dropped,
        choose_runtime_call: Some(choose_runtime_call),
        choose_driver_call: Some(choose_driver_call),
        thread_ids: None,
        ..*older
    })
}

/// Ends the agent's subscription, if there is one. The next registration subscribes again.
pub fn leave() {
    let handle = HANDLE.swap(core::ptr::null_mut(), AcqRel);
    if !handle.is_null() {
        call!(Unsubscribe as f::Unsubscribe, (handle));
    }
}

fn handle() -> CUpti_SubscriberHandle {
    HANDLE.load(Acquire)
}

unsafe extern "C" fn no_callback(
    _: *mut c_void,
    _: CUpti_CallbackDomain,
    _: CUpti_CallbackId,
    _: *const c_void,
) {
}

/// Subscribes, and makes the records contain the kernel's thread ids.
fn subscribe() -> CUptiResult {
    let mut new = core::ptr::null_mut();
    let mut parameters = CUpti_SubscriberParams {
        structSize: size_of::<CUpti_SubscriberParams>(),
        subscriberName: c"tprof".as_ptr(),
        oldSubscriberName: core::ptr::null_mut(),
        oldSubscriberSize: 0,
        allowMultipleSubscribers: 1,
        padding: [0; 7],
    };
    let result = call!(
        Subscribe as f::SubscribeV2,
        (&raw mut new, Some(no_callback), core::ptr::null_mut(), &raw mut parameters)
    );
    if result != CUPTI_SUCCESS {
        return result;
    }
    let mut ids: CUpti_ActivityThreadIdType = CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM;
    let mut bytes = size_of_val(&ids);
    let result = call!(
        Set as f::ActivitySetAttributeV2,
        (new, CUPTI_ACTIVITY_ATTR_THREAD_ID_TYPE, &raw mut bytes, (&raw mut ids).cast())
    );
    match result {
        CUPTI_SUCCESS => HANDLE.store(new, Release),
        _ => drop(call!(Unsubscribe as f::Unsubscribe, (new))),
    }
    result
}

unsafe extern "C" fn register(
    lends: CUpti_BuffersCallbackRequestFunc,
    takes: CUpti_BuffersCallbackCompleteFunc,
) -> CUptiResult {
    let (Some(lends), Some(takes)) = (lends, takes) else {
        return CUPTI_ERROR_INVALID_PARAMETER;
    };
    if handle().is_null() {
        let result = subscribe();
        if result != CUPTI_SUCCESS {
            return result;
        }
    }
    LENDS.store(lends as usize, Release);
    TAKES.store(takes as usize, Release);
    let result = call!(
        Register as f::ActivityRegisterCallbacksV2,
        (handle(), Some(request), Some(complete))
    );
    if result != CUPTI_SUCCESS {
        leave();
    }
    result
}

unsafe extern "C" fn request(
    buffer: *mut *mut u8,
    bytes: *mut usize,
    most: *mut usize,
    _: *mut CUpti_BufferCallbackRequestInfo,
) {
    // SAFETY: `register` stored the function's address before CUPTI got `request`. The arguments
    // are those that CUPTI passed.
    unsafe {
        let lends = transmute::<usize, CUpti_BuffersCallbackRequestFunc>(LENDS.load(Acquire));
        if let Some(lends) = lends {
            lends(buffer, bytes, most);
        }
    }
}

unsafe extern "C" fn complete(
    buffer: *mut u8,
    bytes: usize,
    valid: usize,
    _: *mut CUpti_BufferCallbackCompleteInfo,
) {
    // SAFETY: `register` stored the function's address before CUPTI got `complete`. The arguments
    // are those that CUPTI passed, without context and stream, which buffers don't have since CUDA
    // 6.
    unsafe {
        let takes = transmute::<usize, CUpti_BuffersCallbackCompleteFunc>(TAKES.load(Acquire));
        if let Some(takes) = takes {
            takes(core::ptr::null_mut(), 0, buffer, bytes, valid);
        }
    }
}

unsafe extern "C" fn timestamp(now: *mut u64) -> CUptiResult {
    call!(Timestamp as f::GetTimestampV2, (handle(), now))
}

unsafe extern "C" fn enable(kind: CUpti_ActivityKind) -> CUptiResult {
    call!(Enable as f::ActivityEnableV2, (handle(), kind, core::ptr::null_mut()))
}

unsafe extern "C" fn disable(kind: CUpti_ActivityKind) -> CUptiResult {
    call!(Disable as f::ActivityDisableV2, (handle(), kind, core::ptr::null_mut()))
}

unsafe extern "C" fn next(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut CUpti_Activity,
) -> CUptiResult {
    call!(Next as f::ActivityGetNextRecordV2, (handle(), buffer, valid, record))
}

unsafe extern "C" fn dropped(context: CUcontext, stream: u32, count: *mut usize) -> CUptiResult {
    call!(Dropped as f::ActivityGetNumDroppedRecordsV2, (handle(), context, stream, count))
}

unsafe extern "C" fn choose_runtime_call(number: CUpti_CallbackId, on: u8) -> CUptiResult {
    call!(RuntimeCall as f::ActivityEnableRuntimeApiV2, (handle(), number, on))
}

unsafe extern "C" fn choose_driver_call(number: CUpti_CallbackId, on: u8) -> CUptiResult {
    call!(DriverCall as f::ActivityEnableDriverApiV2, (handle(), number, on))
}
