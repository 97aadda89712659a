//! The parameters of CUPTI's PM sampling and of its profiler host interface (CUDA 12.6 and newer),
//! with which the counters of a whole device are read at a fixed interval.
//!
//! Every function takes a pointer to one structure, whose first field is its size. CUPTI refuses a
//! size that it doesn't know. A newer CUPTI accepts the sizes of older ones, so these are the
//! structures of CUDA 12.6, in C's field names. `scripts/cuda/pm_sampling.py` compares their fields
//! with each header.
#![allow(non_snake_case)] // C's names of fields

use crate::bindings::CUptiResult;
use core::ffi::{c_char, c_void};

/// A structure of parameters.
///
/// # Safety
///
/// The type is `repr(C)`, its first fields are the size and a pointer that must be null, and all
/// bytes may be zero.
pub unsafe trait Params: Sized {
    /// Name of the structure in CUPTI's header.
    const NAME: &'static str;
    /// What the first field must hold: bytes up to the end of the last field.
    const BYTES: usize;
    /// The fields behind the first two, each with its offset in bytes.
    const FIELDS: &'static [(&'static str, usize)];
}

/// The type of a function that takes one structure of parameters.
pub type WithParams<P> = unsafe extern "C" fn(*mut P) -> CUptiResult;

macro_rules! params {
    ($(#[$doc:meta])* $name:ident = $c:literal { $($field:ident: $type:ty,)* } to $last:ident: $of:ty) => {
        $(#[$doc])*
        #[repr(C)]
        #[allow(missing_docs)] // CUPTI's header describes the fields
        pub struct $name {
            pub structSize: usize,
            pub pPriv: *mut c_void,
            $(pub $field: $type,)*
            pub $last: $of,
        }

        // SAFETY: the declaration above has these fields, and each of them is a number or a pointer.
        unsafe impl Params for $name {
            const NAME: &'static str = $c;
            const BYTES: usize = core::mem::offset_of!($name, $last) + size_of::<$of>();
            const FIELDS: &'static [(&'static str, usize)] = &[
                $((stringify!($field), core::mem::offset_of!($name, $field)),)*
                (stringify!($last), core::mem::offset_of!($name, $last)),
            ];
        }

        impl Default for $name {
            /// Parameters that are zero, but for the size.
            fn default() -> $name {
                // SAFETY: all fields may be zero, as `Params` demands.
                let mut all: $name = unsafe { core::mem::zeroed() };
                all.structSize = <$name as Params>::BYTES;
                all
            }
        }
    };
}

params! {
    /// Of `cuptiProfilerInitialize`, which has no further fields. The last one is counted twice.
    ProfilerInitialize = "CUpti_Profiler_Initialize_Params" {} to unused: [u8; 0]
}
params! {
    /// Parameters of `cuptiDeviceGetChipName`.
    GetChipName = "CUpti_Device_GetChipName_Params" { deviceIndex: usize, } to pChipName: *const c_char
}
params! {
    /// Parameters of `cuptiPmSamplingGetCounterAvailability`.
    GetCounterAvailability = "CUpti_PmSampling_GetCounterAvailability_Params" {
        deviceIndex: usize,
        counterAvailabilityImageSize: usize,
    } to pCounterAvailabilityImage: *mut u8
}
params! {
    /// Parameters of `cuptiProfilerHostInitialize`. CUDA 13.1 and newer have one more field, the name of a set
    /// of metrics, which older ones refuse.
    HostInitialize = "CUpti_Profiler_Host_Initialize_Params" {
        profilerType: i32,
        pChipName: *const c_char,
        pCounterAvailabilityImage: *const u8,
    } to pHostObject: *mut c_void
}
params! {
    /// Parameters of `cuptiProfilerHostDeinitialize`.
    HostDeinitialize = "CUpti_Profiler_Host_Deinitialize_Params" {} to pHostObject: *mut c_void
}
params! {
    /// Parameters of `cuptiProfilerHostConfigAddMetrics`.
    ConfigAddMetrics = "CUpti_Profiler_Host_ConfigAddMetrics_Params" {
        pHostObject: *mut c_void,
        ppMetricNames: *const *const c_char,
    } to numMetrics: usize
}
params! {
    /// Parameters of `cuptiProfilerHostGetConfigImageSize`.
    GetConfigImageSize = "CUpti_Profiler_Host_GetConfigImageSize_Params" {
        pHostObject: *mut c_void,
    } to configImageSize: usize
}
params! {
    /// Parameters of `cuptiProfilerHostGetConfigImage`.
    GetConfigImage = "CUpti_Profiler_Host_GetConfigImage_Params" {
        pHostObject: *mut c_void,
        configImageSize: usize,
    } to pConfigImage: *mut u8
}
params! {
    /// Parameters of `cuptiProfilerHostGetNumOfPasses`.
    GetNumOfPasses = "CUpti_Profiler_Host_GetNumOfPasses_Params" {
        configImageSize: usize,
        pConfigImage: *mut u8,
    } to numOfPasses: usize
}
params! {
    /// Parameters of `cuptiProfilerHostEvaluateToGpuValues`.
    EvaluateToGpuValues = "CUpti_Profiler_Host_EvaluateToGpuValues_Params" {
        pHostObject: *mut c_void,
        pCounterDataImage: *const u8,
        counterDataImageSize: usize,
        rangeIndex: usize,
        ppMetricNames: *const *const c_char,
        numMetrics: usize,
    } to pMetricValues: *mut f64
}
params! {
    /// Parameters of `cuptiPmSamplingEnable`.
    Enable = "CUpti_PmSampling_Enable_Params" { deviceIndex: usize, } to pPmSamplingObject: *mut c_void
}
params! {
    /// Parameters of `cuptiPmSamplingDisable`.
    Disable = "CUpti_PmSampling_Disable_Params" {} to pPmSamplingObject: *mut c_void
}
params! {
    /// Parameters of `cuptiPmSamplingSetConfig`.
    SetConfig = "CUpti_PmSampling_SetConfig_Params" {
        pPmSamplingObject: *mut c_void,
        configSize: usize,
        pConfig: *const u8,
        hardwareBufferSize: usize,
        samplingInterval: u64,
        triggerMode: i32,
    } to hwBufferAppendMode: i32
}
params! {
    /// Parameters of `cuptiPmSamplingStart`.
    Start = "CUpti_PmSampling_Start_Params" {} to pPmSamplingObject: *mut c_void
}
params! {
    /// Parameters of `cuptiPmSamplingStop`.
    Stop = "CUpti_PmSampling_Stop_Params" {} to pPmSamplingObject: *mut c_void
}
params! {
    /// Parameters of `cuptiPmSamplingDecodeData`.
    DecodeData = "CUpti_PmSampling_DecodeData_Params" {
        pPmSamplingObject: *mut c_void,
        pCounterDataImage: *mut u8,
        counterDataImageSize: usize,
        decodeStopReason: i32,
    } to overflow: u8
}
params! {
    /// Parameters of `cuptiPmSamplingGetCounterDataSize`.
    GetCounterDataSize = "CUpti_PmSampling_GetCounterDataSize_Params" {
        pPmSamplingObject: *mut c_void,
        pMetricNames: *const *const c_char,
        numMetrics: usize,
        maxSamples: u32,
    } to counterDataSize: usize
}
params! {
    /// Parameters of `cuptiPmSamplingCounterDataImageInitialize`.
    CounterDataImageInitialize = "CUpti_PmSampling_CounterDataImage_Initialize_Params" {
        pPmSamplingObject: *mut c_void,
        counterDataSize: usize,
    } to pCounterData: *mut u8
}
params! {
    /// Parameters of `cuptiPmSamplingGetCounterDataInfo`.
    GetCounterDataInfo = "CUpti_PmSampling_GetCounterDataInfo_Params" {
        pCounterDataImage: *const u8,
        counterDataImageSize: usize,
        numTotalSamples: usize,
        numPopulatedSamples: usize,
    } to numCompletedSamples: usize
}
params! {
    /// Parameters of `cuptiPmSamplingCounterDataGetSampleInfo`.
    GetSampleInfo = "CUpti_PmSampling_CounterData_GetSampleInfo_Params" {
        pPmSamplingObject: *mut c_void,
        pCounterDataImage: *const u8,
        counterDataImageSize: usize,
        sampleIndex: usize,
        startTimestamp: u64,
    } to endTimestamp: u64
}

/// The value of `CUPTI_PROFILER_TYPE_PM_SAMPLING`.
pub const PROFILER_TYPE_PM_SAMPLING: i32 = 1;
/// The value of `CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL`.
pub const TRIGGER_SYSCLK_INTERVAL: i32 = 0;
/// The value of `CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL`.
pub const TRIGGER_TIME_INTERVAL: i32 = 1;
/// The value of `CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST`.
pub const KEEP_OLDEST: i32 = 0;
/// The value of `CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL`.
pub const STOPPED_FULL: i32 = 1;
/// The value of `CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS`.
pub const STOPPED_AT_END: i32 = 2;
