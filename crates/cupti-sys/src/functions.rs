//! Types of CUPTI's functions, for addresses that were looked up by name.

use crate::bindings::*;
use core::ffi::{c_char, c_void};

/// Declares a function's type, and has the compiler compare it with the header's.
macro_rules! function {
    ($(#[$doc:meta])* $alias:ident = $name:ident($($argument:ty),*)) => {
        $(#[$doc])*
        pub type $alias = unsafe extern "C" fn($($argument),*) -> CUptiResult;
        const _: $alias = $name;
    };
}

function!(
    /// The library's version, e.g. 28 for 12.9 and 130500 for 13.5.
    GetVersion = cuptiGetVersion(*mut u32)
);
function!(
    /// Now, on the clock of the records.
    GetTimestamp = cuptiGetTimestamp(*mut u64)
);
function!(
    /// The number of a context in records.
    GetContextId = cuptiGetContextId(CUcontext, *mut u32)
);
function!(
    /// The number of a stream in records: of any context where that is null; whether the program
    /// is compiled for default streams by thread.
    GetStreamIdEx = cuptiGetStreamIdEx(CUcontext, CUstream, u8, *mut u32)
);
function!(
    /// The name of a result.
    GetResultString = cuptiGetResultString(CUptiResult, *mut *const c_char)
);
function!(
    /// The name of a call.
    GetCallbackName =
        cuptiGetCallbackName(CUpti_CallbackDomain, CUpti_CallbackId, *mut *const c_char)
);
function!(
    /// Whom to ask for buffers, and to give them to.
    ActivityRegisterCallbacks = cuptiActivityRegisterCallbacks(
        CUpti_BuffersCallbackRequestFunc,
        CUpti_BuffersCallbackCompleteFunc
    )
);
function!(
    /// Begins to collect a kind of record.
    ActivityEnable = cuptiActivityEnable(CUpti_ActivityKind)
);
function!(
    /// Stops collecting a kind of record.
    ActivityDisable = cuptiActivityDisable(CUpti_ActivityKind)
);
function!(
    /// Sets a limit or a mode.
    ActivitySetAttribute =
        cuptiActivitySetAttribute(CUpti_ActivityAttribute, *mut usize, *mut c_void)
);
function!(
    /// Reads a limit or a mode.
    ActivityGetAttribute =
        cuptiActivityGetAttribute(CUpti_ActivityAttribute, *mut usize, *mut c_void)
);
function!(
    /// Begins to collect a kind of record in one context.
    ActivityEnableContext = cuptiActivityEnableContext(CUcontext, CUpti_ActivityKind)
);
function!(
    /// Stops collecting a kind of record in one context.
    ActivityDisableContext = cuptiActivityDisableContext(CUcontext, CUpti_ActivityKind)
);
function!(
    /// Chooses whether one call of the runtime's is recorded (CUDA 12.6 and newer).
    ActivityEnableRuntimeApi = cuptiActivityEnableRuntimeApi(CUpti_CallbackId, u8)
);
function!(
    /// Chooses whether one call of the driver's is recorded (CUDA 12.6 and newer).
    ActivityEnableDriverApi = cuptiActivityEnableDriverApi(CUpti_CallbackId, u8)
);
function!(
    /// Takes the times of records from a function.
    ActivityRegisterTimestampCallback =
        cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc)
);
function!(
    /// Whether threads are named by pthread or by the kernel.
    GetThreadIdType = cuptiGetThreadIdType(*mut CUpti_ActivityThreadIdType)
);
function!(
    /// Detaches CUPTI from the process.
    Finalize = cuptiFinalize()
);
function!(
    /// Switches the callbacks of all calls of a domain on or off.
    EnableDomain = cuptiEnableDomain(u32, CUpti_SubscriberHandle, CUpti_CallbackDomain)
);
function!(
    /// Has CUPTI hand over buffers at regular times.
    ActivityFlushPeriod = cuptiActivityFlushPeriod(u32)
);
function!(
    /// Hands over buffers.
    ActivityFlushAll = cuptiActivityFlushAll(u32)
);
function!(
    /// The record after this one in a buffer.
    ActivityGetNextRecord =
        cuptiActivityGetNextRecord(*mut u8, usize, *mut *mut CUpti_Activity)
);
function!(
    /// Records that found no place, since the last question.
    ActivityGetNumDroppedRecords =
        cuptiActivityGetNumDroppedRecords(CUcontext, u32, *mut usize)
);
function!(
    /// Whether threads are named by pthread or by the kernel.
    SetThreadIdType = cuptiSetThreadIdType(CUpti_ActivityThreadIdType)
);
function!(
    /// Subscribes as one client among several (CUDA 13).
    SubscribeV2 = cuptiSubscribe_v2(
        *mut CUpti_SubscriberHandle,
        CUpti_CallbackFunc,
        *mut c_void,
        *mut CUpti_SubscriberParams
    )
);
function!(
    /// Stops being a client.
    Unsubscribe = cuptiUnsubscribe(CUpti_SubscriberHandle)
);
function!(
    /// The variant of [`ActivityRegisterCallbacks`] for one client.
    ActivityRegisterCallbacksV2 = cuptiActivityRegisterCallbacks_v2(
        CUpti_SubscriberHandle,
        CUpti_BuffersCallbackRequestFunc_v2,
        CUpti_BuffersCallbackCompleteFunc_v2
    )
);
function!(
    /// The variant of [`ActivityEnable`] for one client.
    ActivityEnableV2 =
        cuptiActivityEnable_v2(CUpti_SubscriberHandle, CUpti_ActivityKind, *mut CUpti_ActivityConfig)
);
function!(
    /// The variant of [`ActivitySetAttribute`] for one client.
    ActivitySetAttributeV2 = cuptiActivitySetAttribute_v2(
        CUpti_SubscriberHandle,
        CUpti_ActivityAttribute,
        *mut usize,
        *mut c_void
    )
);
function!(
    /// As [`GetTimestamp`], for one client.
    GetTimestampV2 = cuptiGetTimestamp_v2(CUpti_SubscriberHandle, *mut u64)
);
function!(
    /// As [`ActivityEnableRuntimeApi`], for one client.
    ActivityEnableRuntimeApiV2 =
        cuptiActivityEnableRuntimeApi_v2(CUpti_SubscriberHandle, CUpti_CallbackId, u8)
);
function!(
    /// As [`ActivityEnableDriverApi`], for one client.
    ActivityEnableDriverApiV2 =
        cuptiActivityEnableDriverApi_v2(CUpti_SubscriberHandle, CUpti_CallbackId, u8)
);
function!(
    /// As [`ActivityGetNextRecord`], for one client.
    ActivityGetNextRecordV2 = cuptiActivityGetNextRecord_v2(
        CUpti_SubscriberHandle,
        *mut u8,
        usize,
        *mut *mut CUpti_Activity
    )
);
function!(
    /// As [`ActivityGetNumDroppedRecords`], for one client.
    ActivityGetNumDroppedRecordsV2 = cuptiActivityGetNumDroppedRecords_v2(
        CUpti_SubscriberHandle,
        CUcontext,
        u32,
        *mut usize
    )
);
function!(
    /// As [`ActivityDisable`], for one client.
    ActivityDisableV2 =
        cuptiActivityDisable_v2(CUpti_SubscriberHandle, CUpti_ActivityKind, *mut CUpti_ActivityConfig)
);
