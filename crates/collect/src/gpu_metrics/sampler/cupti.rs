//! Calls CUPTI's PM sampling and its profiler host interface.

#![allow(unsafe_code)] // libraries with a C interface

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use tprof_cupti_sys::bindings::*;
use tprof_cupti_sys::pm_sampling::{Params, WithParams};

/// The first version with PM sampling: CUDA 12.6.
const TOO_OLD: &str = "this CUPTI has no PM sampling, which CUDA 12.6 and newer have";

/// A call of CUPTI's that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct CuptiError {
    /// The code that the call returned.
    pub result: CUptiResult,
    /// Why, for people.
    pub why: String,
}

impl From<CuptiError> for String {
    fn from(error: CuptiError) -> String {
        error.why
    }
}

/// The loaded library. It stays loaded until the process ends.
pub struct Cupti {
    library: &'static Library,
}

/// Loads a library from a path, or else the first of these names that the loader finds.
pub fn load(path: &Path, names: &[&str]) -> Option<&'static Library> {
    let open = |name: &std::ffi::OsStr| {
        // SAFETY: loading runs the constructors of NVIDIA's libraries, in a process that exists for
        // nothing else.
        unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.ok()
    };
    let named = Some(path).filter(|path| !path.as_os_str().is_empty());
    let found = named
        .and_then(|path| open(path.as_os_str()))
        .or_else(|| names.iter().find_map(|name| open(name.as_ref())));
    found.map(|library| &*Box::leak(Box::new(library)))
}

impl Cupti {
    /// Loads CUPTI from a path, or by the loader's search if there is none.
    ///
    /// CUPTI itself loads the two libraries `libnvperf_*` that lie beside it, by name. They are
    /// loaded before it, because the loader may not find them by name.
    pub fn open(path: &Path) -> Result<&'static Cupti, String> {
        if let Some(folder) = path.parent() {
            for name in ["libnvperf_target.so", "libnvperf_host.so"] {
                let beside = folder.join(name);
                if beside.is_file() {
                    load(&beside, &[]);
                }
            }
        }
        let library = load(path, &["libcupti.so.13", "libcupti.so.12"])
            .ok_or("CUPTI was not found: neither the job's nor by the loader")?;
        let cupti: &'static Cupti = Box::leak(Box::new(Cupti { library }));
        type Any = unsafe extern "C" fn();
        // SAFETY: the function is looked up and not called.
        let has = unsafe { library.get::<Any>(c"cuptiPmSamplingGetCounterAvailability") }.is_ok();
        match has {
            true => Ok(cupti),
            false => Err(TOO_OLD.to_owned()),
        }
    }

    /// Calls a function with its parameters.
    pub fn call<P: Params>(&self, name: &CStr, params: &mut P) -> Result<(), CuptiError> {
        // SAFETY: CUPTI's header declares each function that is called through this with the
        // structure that its caller passes; callers name both.
        let function = unsafe { self.library.get::<WithParams<P>>(name) };
        let Ok(function) = function else {
            return Err(CuptiError { result: CUPTI_ERROR_NOT_SUPPORTED, why: TOO_OLD.to_owned() });
        };
        // SAFETY: the parameters hold their size, and pointers to memory that lives until the call
        // returns.
        let result = unsafe { function(params) };
        self.check(name, result)
    }

    fn check(&self, name: &CStr, result: CUptiResult) -> Result<(), CuptiError> {
        if result == CUPTI_SUCCESS {
            return Ok(());
        }
        let why = known_reason(name, result).map_or_else(
            || format!("{} failed: {}", name.to_string_lossy(), self.text(result)),
            str::to_owned,
        );
        Err(CuptiError { result, why })
    }

    /// CUPTI's name of a result.
    fn text(&self, result: CUptiResult) -> String {
        type Text = unsafe extern "C" fn(CUptiResult, *mut *const c_char) -> CUptiResult;
        let mut text = std::ptr::null();
        // SAFETY: CUPTI's header declares the function with this type; it writes one pointer to a
        // constant text.
        let found = unsafe {
            let get = self.library.get::<Text>(c"cuptiGetResultString");
            get.is_ok_and(|get| get(result, &raw mut text) == CUPTI_SUCCESS) && !text.is_null()
        };
        match found {
            // SAFETY: as above.
            true => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
            false => format!("error {result}"),
        }
    }

    /// Returns the library's version.
    pub fn version(&self) -> u32 {
        type Get = unsafe extern "C" fn(*mut u32) -> CUptiResult;
        let mut version = 0;
        // SAFETY: CUPTI's header declares the function with this type.
        if let Ok(get) = unsafe { self.library.get::<Get>(c"cuptiGetVersion") } {
            // SAFETY: it writes one number.
            unsafe { get(&raw mut version) };
        }
        version
    }

    /// Returns the time of CUPTI's clock.
    pub fn timestamp(&self) -> Result<u64, String> {
        type Get = unsafe extern "C" fn(*mut u64) -> CUptiResult;
        let mut time = 0;
        // SAFETY: CUPTI's header declares the function with this type.
        let get = unsafe { self.library.get::<Get>(c"cuptiGetTimestamp") }
            .map_err(|_| "this CUPTI has no cuptiGetTimestamp".to_owned())?;
        // SAFETY: it writes one number.
        let result = unsafe { get(&raw mut time) };
        self.check(c"cuptiGetTimestamp", result)?;
        Ok(time)
    }
}

/// Results that have one cause, and what to do about it.
fn known_reason(call: &CStr, result: CUptiResult) -> Option<&'static str> {
    let is_enable = call == c"cuptiPmSamplingEnable" || call == c"cuptiPmSamplingStart";
    Some(match result {
        CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
        | CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES => {
            "its counters are open to administrators only: run as root, with CAP_SYS_ADMIN, or load the \
             driver with NVreg_RestrictProfilingToAdminUsers=0"
        }
        CUPTI_ERROR_INVALID_OPERATION if is_enable => {
            "another program samples its counters already"
        }
        CUPTI_ERROR_HARDWARE_BUSY => "another program uses its counters",
        CUPTI_ERROR_NOT_INITIALIZED => {
            "CUPTI finds no libnvperf_host.so and libnvperf_target.so, which belong beside it"
        }
        CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED => "CUPTI does not sample a device in MIG mode",
        CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED => "CUPTI does not sample devices under WSL",
        CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED => "CUPTI does not sample this virtual device",
        CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED => {
            "CUPTI does not sample a device in confidential computing mode"
        }
        _ => return None,
    })
}

/// Names as C has them, and pointers to them.
pub struct MetricNames {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl MetricNames {
    /// Returns the names of metrics for a call.
    pub fn new(names: &[&str]) -> MetricNames {
        let texts: Vec<CString> =
            names.iter().filter_map(|name| CString::new(*name).ok()).collect();
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        MetricNames { _texts: texts, pointers }
    }

    /// Address of the first pointer.
    pub fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.pointers.len()
    }
}
