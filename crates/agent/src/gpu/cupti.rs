//! Resolves the addresses of the functions of CUPTI that the agent calls.

use super::loader::{Loader, function};
use super::places::CuptiLibrary;
use core::ffi::CStr;
use tprof_cupti_sys::functions as f;
use tprof_cupti_sys::*;

/// The functions of CUPTI that the agent calls.
#[derive(Clone, Copy)]
pub struct Cupti {
    /// The library's version.
    pub version: u32,
    /// Whether CUPTI separates the records of its clients (`super::subscriber`), so that the agent
    /// need not serve another client.
    pub has_clients_apart: bool,
    /// `cuptiGetTimestamp`, which every version has.
    pub timestamp: f::GetTimestamp,
    /// `cuptiActivityRegisterCallbacks`, which every version has.
    pub register: f::ActivityRegisterCallbacks,
    /// `cuptiActivityEnable`, which every version has.
    pub enable: f::ActivityEnable,
    /// `cuptiActivityDisable`; `None` if the library lacks it.
    pub disable: Option<f::ActivityDisable>,
    /// `cuptiActivityFlushAll`, which every version has.
    pub flush: f::ActivityFlushAll,
    /// `cuptiActivityGetNextRecord`, which every version has.
    pub next: f::ActivityGetNextRecord,
    /// `cuptiActivityGetNumDroppedRecords`, which every version has.
    pub dropped: f::ActivityGetNumDroppedRecords,
    /// Selects whether a call of the runtime API is recorded; available since CUDA 12.6.
    pub choose_runtime_call: Option<f::ActivityEnableRuntimeApi>,
    /// Selects whether a call of the driver API is recorded; available since CUDA 12.6.
    pub choose_driver_call: Option<f::ActivityEnableDriverApi>,
    /// `cuptiGetContextId`, which returns a context's number in records.
    pub context_id: Option<f::GetContextId>,
    /// `cuptiGetStreamIdEx`, which returns a stream's number in records.
    pub stream_id: Option<f::GetStreamIdEx>,
    /// `cuptiSetThreadIdType`, which applies to all clients of the process.
    pub(super) thread_ids: Option<f::SetThreadIdType>,
    pub(super) name: Option<f::GetCallbackName>,
    pub(super) text: Option<f::GetResultString>,
}

/// Oldest supported version: CUDA 12.0. Records of older versions have other layouts.
const OLDEST: u32 = 18;

/// Why a CUPTI library cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The library is older than CUDA 12.0.
    Old,
    /// The library lacks functions that are needed.
    Lacks,
    /// The library returns no version.
    Silent,
}

impl Cupti {
    /// Resolves the functions of the library that was found.
    pub fn of(loader: &Loader, found: &CuptiLibrary) -> Result<Cupti, Unfit> {
        let at = |name: &CStr| loader.symbol(found.handle, name);
        let get_version = function!(at(c"cuptiGetVersion").ok_or(Unfit::Lacks)?, f::GetVersion);
        let mut version = 0;
        // SAFETY: `cuptiGetVersion` writes one number to the local. It may be called, since the
        // driver is loaded: `places::find` checks that first.
        if unsafe { get_version(&raw mut version) } != CUPTI_SUCCESS {
            return Err(Unfit::Silent);
        }
        if version < OLDEST {
            return Err(Unfit::Old);
        }
        Cupti::with(at, version).ok_or(Unfit::Lacks)
    }

    /// Resolves the functions by name; `None` if one that is needed is missing.
    fn with(at: impl Fn(&CStr) -> Option<usize>, version: u32) -> Option<Cupti> {
        Some(Cupti {
            version,
            has_clients_apart: false,
            timestamp: function!(at(c"cuptiGetTimestamp")?, f::GetTimestamp),
            register: function!(
                at(c"cuptiActivityRegisterCallbacks")?,
                f::ActivityRegisterCallbacks
            ),
            enable: function!(at(c"cuptiActivityEnable")?, f::ActivityEnable),
            disable: at(c"cuptiActivityDisable")
                .map(|address| function!(address, f::ActivityDisable)),
            flush: function!(at(c"cuptiActivityFlushAll")?, f::ActivityFlushAll),
            next: function!(at(c"cuptiActivityGetNextRecord")?, f::ActivityGetNextRecord),
            dropped: function!(
                at(c"cuptiActivityGetNumDroppedRecords")?,
                f::ActivityGetNumDroppedRecords
            ),
            choose_runtime_call: at(c"cuptiActivityEnableRuntimeApi")
                .map(|address| function!(address, f::ActivityEnableRuntimeApi)),
            choose_driver_call: at(c"cuptiActivityEnableDriverApi")
                .map(|address| function!(address, f::ActivityEnableDriverApi)),
            context_id: at(c"cuptiGetContextId").map(|address| function!(address, f::GetContextId)),
            stream_id: at(c"cuptiGetStreamIdEx")
                .map(|address| function!(address, f::GetStreamIdEx)),
            thread_ids: at(c"cuptiSetThreadIdType")
                .map(|address| function!(address, f::SetThreadIdType)),
            name: at(c"cuptiGetCallbackName").map(|address| function!(address, f::GetCallbackName)),
            text: at(c"cuptiGetResultString").map(|address| function!(address, f::GetResultString)),
        })
    }

    /// Makes CUPTI's records contain the kernel's thread ids. This sets no attribute, since
    /// attributes about zeroed or shared buffers would apply to the job's own profiler too.
    pub fn set_up(&self) {
        if let Some(thread_ids) = self.thread_ids {
            // SAFETY: the argument is a constant of CUPTI's header.
            unsafe { thread_ids(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM) };
        }
    }

    /// Whether records of CUPTI's own overhead contain the kernel's thread ids as well. By its
    /// release notes they do since CUDA 12.4. In older versions the number is a truncated
    /// `pthread_t`.
    pub fn names_threads_of_overhead(&self) -> bool {
        self.version >= 22
    }

    /// Whether a request for a buffer may be refused. By its release notes that works since CUDA
    /// 12.9. Older versions crash.
    pub fn may_be_refused(&self) -> bool {
        self.version >= 27
    }

    /// Returns the name of a call.
    pub fn call_name(&self, domain: CUpti_CallbackDomain, number: u32) -> Option<&'static CStr> {
        let mut text = core::ptr::null();
        // SAFETY: CUPTI writes the address of a NUL-terminated string, which it never frees, to the
        // local.
        unsafe {
            let known = (self.name?)(domain, number, &raw mut text) == CUPTI_SUCCESS;
            (known && !text.is_null()).then(|| CStr::from_ptr(text))
        }
    }

    /// Returns the name of a result code.
    pub fn result_name(&self, result: CUptiResult) -> &'static [u8] {
        let mut text = core::ptr::null();
        let Some(get) = self.text else { return b"an error" };
        // SAFETY: CUPTI writes the address of a NUL-terminated string, which it never frees, to the
        // local.
        unsafe {
            let known = get(result, &raw mut text) == CUPTI_SUCCESS;
            if known && !text.is_null() { CStr::from_ptr(text).to_bytes() } else { b"an error" }
        }
    }
}
