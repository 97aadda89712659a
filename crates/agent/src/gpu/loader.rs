//! Calls the C library's `dlopen` and `dlsym`, with which the agent finds CUPTI. The agent isn't
//! linked with CUDA: it needs only libc.so.6, so that it also loads on machines without CUDA.

use core::ffi::{CStr, c_char, c_int, c_void};
use tprof_inject::loaded;

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Error = unsafe extern "C" fn() -> *const c_char;

/// Turns an address into a function of type `$type`.
macro_rules! function {
    ($address:expr, $type:ty) => {
        // SAFETY: callers pass an address that was found under the name of a function of this type.
        unsafe { core::mem::transmute::<usize, $type>($address) }
    };
}

pub(super) use function;

/// An open library.
#[derive(Clone, Copy)]
pub struct Handle(*mut c_void);

/// The functions of the loader that the agent calls.
pub struct Loader {
    open: Open,
    symbol: Dlsym,
    error: Option<Error>,
}

impl Loader {
    /// Finds the functions of the C library in this process.
    pub fn find() -> Option<Loader> {
        Some(Loader {
            open: function!(loaded::libc_function(c"dlopen")?, Open),
            symbol: function!(loaded::libc_function(c"dlsym")?, Dlsym),
            error: loaded::libc_function(c"dlerror").map(|address| function!(address, Error)),
        })
    }

    /// Opens a library. If that fails, this clears the loader's error text, so that the job doesn't
    /// read it.
    pub fn open(&self, path: &CStr, how: c_int) -> Option<Handle> {
        // SAFETY: `path` is NUL terminated, and `open` is `dlopen`.
        let handle = unsafe { (self.open)(path.as_ptr(), how) };
        if handle.is_null() {
            self.forget_error();
            return None;
        }
        Some(Handle(handle))
    }

    /// Address of a symbol of an open library.
    pub fn symbol(&self, handle: Handle, name: &CStr) -> Option<usize> {
        // SAFETY: the handle came from `open`, the name is NUL terminated, and `symbol` is `dlsym`.
        let address = unsafe { (self.symbol)(handle.0, name.as_ptr()) };
        if address.is_null() {
            self.forget_error();
            return None;
        }
        Some(address as usize)
    }

    fn forget_error(&self) {
        if let Some(error) = self.error {
            // SAFETY: `dlerror` takes no argument, and its text is not read.
            unsafe { error() };
        }
    }
}
