//! Code that goes away: what was learnt of its addresses must be forgotten.
//!
//! `dlopen` is not hooked: the loader would look up the caller's RUNPATH by
//! this library's return address. New code shows by its unknown addresses.

use crate::real;
use core::ffi::{c_int, c_void};
use tprof_inject::{python, unwind};

/// Hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    python::unloading();
    let error = real!(DLCLOSE(handle) as fn(*mut c_void) -> c_int, else -1);
    python::unloaded();
    if error == 0 {
        unwind::code_changed();
    }
    error
}
