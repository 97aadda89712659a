//! Lists the functions of CUPTI that act on the whole process. The preloaded library intercepts them,
//! and the agent serves the calls while it uses the same CUPTI library.

/// Passes the names of these functions to a macro, each with the agent's function that replaces it.
#[macro_export]
macro_rules! cupti_functions {
    ($take:ident) => {
        $take! {
            cuptiActivityRegisterCallbacks register_callbacks,
            cuptiActivityEnable enable,
            cuptiActivityDisable disable,
            cuptiActivityEnableContext enable_context,
            cuptiActivityDisableContext disable_context,
            cuptiActivitySetAttribute set_attribute,
            cuptiActivityGetAttribute get_attribute,
            cuptiActivityRegisterTimestampCallback register_timestamp_callback,
            cuptiGetTimestamp get_timestamp,
            cuptiActivityFlushAll flush_all,
            cuptiActivityFlushPeriod flush_period,
            cuptiActivityGetNumDroppedRecords dropped_records,
            cuptiActivityEnableRuntimeApi enable_runtime_api,
            cuptiActivityEnableDriverApi enable_driver_api,
            cuptiSetThreadIdType set_thread_id_type,
            cuptiGetThreadIdType get_thread_id_type,
            cuptiEnableDomain enable_domain,
            cuptiSubscribe_v2 subscribe_v2,
            cuptiFinalize finalize,
            cuptiPCSamplingEnable pc_sampling_enable,
            cuptiProfilerInitialize profiler_initialize,
        }
    };
}

macro_rules! numbers {
    ($($name:ident $instead:ident,)*) => {
        /// Numbers of the intercepted functions, in the order of the list.
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy)]
        pub enum Number { $($name),* }
    };
}
cupti_functions!(numbers);

/// Whether a client may begin to use CUPTI with this function. The agent must know of such calls
/// even if the driver has not loaded it yet.
pub fn begins(number: u32) -> bool {
    use Number::*;
    let first = [
        cuptiActivityRegisterCallbacks,
        cuptiActivityEnable,
        cuptiActivitySetAttribute,
        cuptiActivityRegisterTimestampCallback,
        cuptiActivityFlushPeriod,
        cuptiActivityEnableRuntimeApi,
        cuptiActivityEnableDriverApi,
        cuptiSetThreadIdType,
        cuptiSubscribe_v2,
    ];
    first.iter().any(|known| *known as u32 == number)
}
