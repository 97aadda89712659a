//! CUPTI's functions, by address, and the loader's that find them. None of them
//! is linked: the agent needs libc.so.6 alone, and loads where there is no CUDA.

use super::places::Found;
use crate::loaded;
use core::ffi::{CStr, c_char, c_int, c_void};
use tprof_cupti_sys::functions as f;
use tprof_cupti_sys::*;

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Symbol = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Error = unsafe extern "C" fn() -> *const c_char;

/// Turns an address into a function of type `$type`.
macro_rules! function {
    ($address:expr, $type:ty) => {
        // SAFETY: the address was found under the name of a function of this type.
        unsafe { core::mem::transmute::<usize, $type>($address) }
    };
}

/// An open library.
#[derive(Clone, Copy)]
pub struct Handle(*mut c_void);

/// The loader.
pub struct Loader {
    open: Open,
    symbol: Symbol,
    error: Option<Error>,
}

impl Loader {
    /// Of the C library in this process.
    pub fn find() -> Option<Loader> {
        Some(Loader {
            open: function!(loaded::libc_function(c"dlopen")?, Open),
            symbol: function!(loaded::libc_function(c"dlsym")?, Symbol),
            error: loaded::libc_function(c"dlerror").map(|address| function!(address, Error)),
        })
    }

    /// Opens a library. A failure leaves nothing behind that the job could read.
    pub fn open(&self, path: &CStr, how: c_int) -> Option<Handle> {
        // SAFETY: a NUL-terminated path.
        let handle = unsafe { (self.open)(path.as_ptr(), how) };
        if handle.is_null() {
            self.forget_error();
            return None;
        }
        Some(Handle(handle))
    }

    /// Address of a symbol of an open library.
    pub fn symbol(&self, handle: Handle, name: &CStr) -> Option<usize> {
        // SAFETY: a handle of `open`, a NUL-terminated name.
        let address = unsafe { (self.symbol)(handle.0, name.as_ptr()) };
        if address.is_null() {
            self.forget_error();
            return None;
        }
        Some(address as usize)
    }

    fn forget_error(&self) {
        if let Some(error) = self.error {
            // SAFETY: takes nothing, and its text is not read.
            unsafe { error() };
        }
    }
}

/// The functions that are used.
#[derive(Clone, Copy)]
pub struct Cupti {
    /// The library's version.
    pub version: u32,
    /// See CUPTI.
    pub timestamp: f::GetTimestamp,
    /// See CUPTI.
    pub register: f::ActivityRegisterCallbacks,
    /// See CUPTI.
    pub enable: f::ActivityEnable,
    /// See CUPTI.
    pub flush: f::ActivityFlushAll,
    /// See CUPTI.
    pub next: f::ActivityGetNextRecord,
    /// See CUPTI.
    pub dropped: f::ActivityGetNumDroppedRecords,
    set: Option<f::ActivitySetAttribute>,
    thread_ids: Option<f::SetThreadIdType>,
    name: Option<f::GetCallbackName>,
    text: Option<f::GetResultString>,
}

/// Older ones have other records.
const OLDEST: u32 = 18;

/// Why a library will not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is older than CUDA 12.0.
    Old,
    /// It lacks functions that are needed.
    Lacks,
    /// It does not even tell its version.
    Silent,
}

impl Cupti {
    /// Of the library that was found.
    pub fn of(loader: &Loader, found: &Found) -> Result<Cupti, Unfit> {
        let at = |name: &CStr| loader.symbol(found.handle, name);
        let get_version = function!(at(c"cuptiGetVersion").ok_or(Unfit::Lacks)?, f::GetVersion);
        let mut version = 0;
        // SAFETY: the driver is loaded (checked when CUPTI was looked for).
        if unsafe { get_version(&raw mut version) } != CUPTI_SUCCESS {
            return Err(Unfit::Silent);
        }
        if version < OLDEST {
            return Err(Unfit::Old);
        }
        Cupti::with(at, version).ok_or(Unfit::Lacks)
    }

    /// Of functions by name.
    fn with(at: impl Fn(&CStr) -> Option<usize>, version: u32) -> Option<Cupti> {
        Some(Cupti {
            version,
            timestamp: function!(at(c"cuptiGetTimestamp")?, f::GetTimestamp),
            register: function!(
                at(c"cuptiActivityRegisterCallbacks")?,
                f::ActivityRegisterCallbacks
            ),
            enable: function!(at(c"cuptiActivityEnable")?, f::ActivityEnable),
            flush: function!(at(c"cuptiActivityFlushAll")?, f::ActivityFlushAll),
            next: function!(at(c"cuptiActivityGetNextRecord")?, f::ActivityGetNextRecord),
            dropped: function!(
                at(c"cuptiActivityGetNumDroppedRecords")?,
                f::ActivityGetNumDroppedRecords
            ),
            set: at(c"cuptiActivitySetAttribute")
                .map(|address| function!(address, f::ActivitySetAttribute)),
            thread_ids: at(c"cuptiSetThreadIdType")
                .map(|address| function!(address, f::SetThreadIdType)),
            name: at(c"cuptiGetCallbackName").map(|address| function!(address, f::GetCallbackName)),
            text: at(c"cuptiGetResultString").map(|address| function!(address, f::GetResultString)),
        })
    }

    /// Threads by the kernel's ids, buffers zeroed by us and one set per thread:
    /// said outright, since defaults changed between versions. Not knowing an
    /// attribute is no failure.
    pub fn set_up(&self) {
        if let Some(thread_ids) = self.thread_ids {
            // SAFETY: a number that CUPTI defines.
            unsafe { thread_ids(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM) };
        }
        self.set(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER);
        self.set(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER);
    }

    fn set(&self, attribute: CUpti_ActivityAttribute) {
        let Some(set) = self.set else { return };
        let (mut bytes, mut on) = (1usize, 1u8);
        // SAFETY: both attributes take one byte.
        unsafe { set(attribute, &raw mut bytes, (&raw mut on).cast()) };
    }

    /// Name of a call.
    pub fn call_name(&self, domain: CUpti_CallbackDomain, number: u32) -> Option<&'static CStr> {
        let mut text = core::ptr::null();
        // SAFETY: a place for the answer, which CUPTI keeps for good.
        unsafe {
            let known = (self.name?)(domain, number, &raw mut text) == CUPTI_SUCCESS;
            (known && !text.is_null()).then(|| CStr::from_ptr(text))
        }
    }

    /// Name of a result.
    pub fn result_name(&self, result: CUptiResult) -> &'static [u8] {
        let mut text = core::ptr::null();
        let Some(get) = self.text else { return b"an error" };
        // SAFETY: a place for the answer, which CUPTI keeps for good.
        unsafe {
            let known = get(result, &raw mut text) == CUPTI_SUCCESS;
            if known && !text.is_null() { CStr::from_ptr(text).to_bytes() } else { b"an error" }
        }
    }
}
