//! The types of CUPTI's functions. The functions themselves are looked up by name at run time.

use crate::bindings::*;
use core::ffi::{c_char, c_void};

/// Declares a function's type, and makes the compiler compare it with the type in CUPTI's header.
macro_rules! function {
    ($(#[$doc:meta])* $alias:ident = $name:ident($($argument:ty),*)) => {
        $(#[$doc])*
        pub type $alias = unsafe extern "C" fn($($argument),*) -> CUptiResult;
        const _: $alias = $name;
    };
}

function!(
    /// Returns the library's version, e.g. 28 for 12.9 and 130500 for 13.5.
    GetVersion = cuptiGetVersion(*mut u32)
);
function!(
    /// Returns the current time on the clock that records use.
    GetTimestamp = cuptiGetTimestamp(*mut u64)
);
function!(
    /// Returns the number by which records refer to a context.
    GetContextId = cuptiGetContextId(CUcontext, *mut u32)
);
function!(
    /// Returns the number by which records refer to a stream. The context may be null, for a stream
    /// of any context. The third argument says whether the program is compiled for per-thread
    /// default streams.
    GetStreamIdEx = cuptiGetStreamIdEx(CUcontext, CUstream, u8, *mut u32)
);
function!(
    /// Returns the name of a result code.
    GetResultString = cuptiGetResultString(CUptiResult, *mut *const c_char)
);
function!(
    /// Returns the name of a runtime or driver call.
    GetCallbackName =
        cuptiGetCallbackName(CUpti_CallbackDomain, CUpti_CallbackId, *mut *const c_char)
);
function!(
    /// Registers the callbacks that lend buffers to CUPTI and take them back.
    ActivityRegisterCallbacks = cuptiActivityRegisterCallbacks(
        CUpti_BuffersCallbackRequestFunc,
        CUpti_BuffersCallbackCompleteFunc
    )
);
function!(
    /// Starts collecting a kind of record.
    ActivityEnable = cuptiActivityEnable(CUpti_ActivityKind)
);
function!(
    /// Stops collecting a kind of record.
    ActivityDisable = cuptiActivityDisable(CUpti_ActivityKind)
);
function!(
    /// Sets an attribute, which is a limit or a mode.
    ActivitySetAttribute =
        cuptiActivitySetAttribute(CUpti_ActivityAttribute, *mut usize, *mut c_void)
);
function!(
    /// Reads an attribute, which is a limit or a mode.
    ActivityGetAttribute =
        cuptiActivityGetAttribute(CUpti_ActivityAttribute, *mut usize, *mut c_void)
);
function!(
    /// Starts collecting a kind of record in one context.
    ActivityEnableContext = cuptiActivityEnableContext(CUcontext, CUpti_ActivityKind)
);
function!(
    /// Stops collecting a kind of record in one context.
    ActivityDisableContext = cuptiActivityDisableContext(CUcontext, CUpti_ActivityKind)
);
function!(
    /// Selects whether one call of the runtime is recorded (CUDA 12.6 and newer).
    ActivityEnableRuntimeApi = cuptiActivityEnableRuntimeApi(CUpti_CallbackId, u8)
);
function!(
    /// Selects whether one call of the driver is recorded (CUDA 12.6 and newer).
    ActivityEnableDriverApi = cuptiActivityEnableDriverApi(CUpti_CallbackId, u8)
);
function!(
    /// Registers a function that CUPTI calls for the times in records.
    ActivityRegisterTimestampCallback =
        cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc)
);
function!(
    /// Returns whether records identify threads by `pthread_t` or by the kernel's id.
    GetThreadIdType = cuptiGetThreadIdType(*mut CUpti_ActivityThreadIdType)
);
function!(
    /// Detaches CUPTI from the process.
    Finalize = cuptiFinalize()
);
function!(
    /// Enables or disables the callbacks of all calls of a domain.
    EnableDomain = cuptiEnableDomain(u32, CUpti_SubscriberHandle, CUpti_CallbackDomain)
);
function!(
    /// Makes CUPTI return full buffers at regular intervals.
    ActivityFlushPeriod = cuptiActivityFlushPeriod(u32)
);
function!(
    /// Makes CUPTI return buffers now: full ones, or with the flag FORCED all of them.
    ActivityFlushAll = cuptiActivityFlushAll(u32)
);
function!(
    /// Returns the record after the given one in a buffer.
    ActivityGetNextRecord =
        cuptiActivityGetNextRecord(*mut u8, usize, *mut *mut CUpti_Activity)
);
function!(
    /// Returns the number of records for which there was no buffer since the last call.
    ActivityGetNumDroppedRecords =
        cuptiActivityGetNumDroppedRecords(CUcontext, u32, *mut usize)
);
function!(
    /// Sets whether records identify threads by `pthread_t` or by the kernel's id.
    SetThreadIdType = cuptiSetThreadIdType(CUpti_ActivityThreadIdType)
);
function!(
    /// Returns the number of a device's stall reasons.
    PcSamplingGetNumStallReasons =
        cuptiPCSamplingGetNumStallReasons(*mut CUpti_PCSamplingGetNumStallReasonsParams)
);
function!(
    /// Returns the numbers and names of a device's stall reasons.
    PcSamplingGetStallReasons =
        cuptiPCSamplingGetStallReasons(*mut CUpti_PCSamplingGetStallReasonsParams)
);
function!(
    /// Sets how the instructions of a context's kernels are sampled.
    PcSamplingSetConfigurationAttribute =
        cuptiPCSamplingSetConfigurationAttribute(*mut CUpti_PCSamplingConfigurationInfoParams)
);
function!(
    /// Starts sampling the instructions of a context's kernels.
    PcSamplingEnable = cuptiPCSamplingEnable(*mut CUpti_PCSamplingEnableParams)
);
function!(
    /// Ends the sampling of a context.
    PcSamplingDisable = cuptiPCSamplingDisable(*mut CUpti_PCSamplingDisableParams)
);
function!(
    /// Returns samples of a context and removes them from CUPTI.
    PcSamplingGetData = cuptiPCSamplingGetData(*mut CUpti_PCSamplingGetDataParams)
);
function!(
    /// Registers a function that numbers the code of each module that is loaded.
    RegisterComputeCrcCallback = cuptiRegisterComputeCrcCallback(CUpti_ComputeCrcCallbackFunc)
);
function!(
    /// Initializes CUPTI's Profiling API, which counts on the same units as the sampling.
    ProfilerInitialize = cuptiProfilerInitialize(*mut CUpti_Profiler_Initialize_Params)
);
function!(
    /// Subscribes as one of several clients (CUDA 13).
    SubscribeV2 = cuptiSubscribe_v2(
        *mut CUpti_SubscriberHandle,
        CUpti_CallbackFunc,
        *mut c_void,
        *mut CUpti_SubscriberParams
    )
);
function!(
    /// Ends a subscription.
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
    /// The variant of [`GetTimestamp`] for one client.
    GetTimestampV2 = cuptiGetTimestamp_v2(CUpti_SubscriberHandle, *mut u64)
);
function!(
    /// The variant of [`ActivityEnableRuntimeApi`] for one client.
    ActivityEnableRuntimeApiV2 =
        cuptiActivityEnableRuntimeApi_v2(CUpti_SubscriberHandle, CUpti_CallbackId, u8)
);
function!(
    /// The variant of [`ActivityEnableDriverApi`] for one client.
    ActivityEnableDriverApiV2 =
        cuptiActivityEnableDriverApi_v2(CUpti_SubscriberHandle, CUpti_CallbackId, u8)
);
function!(
    /// The variant of [`ActivityGetNextRecord`] for one client.
    ActivityGetNextRecordV2 = cuptiActivityGetNextRecord_v2(
        CUpti_SubscriberHandle,
        *mut u8,
        usize,
        *mut *mut CUpti_Activity
    )
);
function!(
    /// The variant of [`ActivityGetNumDroppedRecords`] for one client.
    ActivityGetNumDroppedRecordsV2 = cuptiActivityGetNumDroppedRecords_v2(
        CUpti_SubscriberHandle,
        CUcontext,
        u32,
        *mut usize
    )
);
function!(
    /// The variant of [`ActivityDisable`] for one client.
    ActivityDisableV2 =
        cuptiActivityDisable_v2(CUpti_SubscriberHandle, CUpti_ActivityKind, *mut CUpti_ActivityConfig)
);
