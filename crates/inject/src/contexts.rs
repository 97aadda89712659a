//! Tracks whether the program makes CUDA contexts itself (`cuCtxCreate`). Then each allocation's
//! record has its context, since destroying a context frees its memory. Most programs use only the
//! device's primary context, and their records have no contexts.

use crate::loaded;
use core::ffi::{CStr, c_int, c_void};
use tprof_wire::sync::{AtomicBool, AtomicUsize, Ordering::*};

static ARE_MADE: AtomicBool = AtomicBool::new(false);

/// Called when the program made a context.
pub fn made() {
    ARE_MADE.store(true, Release);
}

/// The calling thread's context, and its device plus one; `None` if the program has not made a
/// context itself.
pub fn current() -> Option<[u64; 2]> {
    static CONTEXT: AtomicUsize = AtomicUsize::new(0);
    static DEVICE: AtomicUsize = AtomicUsize::new(0);
    if !ARE_MADE.load(Acquire) {
        return None;
    }
    let get_context = of_driver(&CONTEXT, c"cuCtxGetCurrent")?;
    let get_device = of_driver(&DEVICE, c"cuCtxGetDevice")?;
    let (mut context, mut device) = (core::ptr::null_mut(), 0);
    // SAFETY: the driver's functions of these names have these types. Each writes one value to the
    // local that it gets.
    let results = unsafe {
        let get_context: unsafe extern "C" fn(*mut *mut c_void) -> c_int =
            core::mem::transmute(get_context);
        let get_device: unsafe extern "C" fn(*mut c_int) -> c_int =
            core::mem::transmute(get_device);
        [get_context(&raw mut context), get_device(&raw mut device)]
    };
    let is_known = results == [0; 2] && !context.is_null();
    is_known.then(|| [context as u64, u64::from(device as u32) + 1])
}

fn of_driver(place: &AtomicUsize, name: &CStr) -> Option<usize> {
    match place.load(Relaxed) {
        0 => {
            let address = loaded::named(b"libcuda.so")?.function(name)?;
            // The driver is never unloaded.
            place.store(address, Relaxed);
            Some(address)
        }
        address => Some(address),
    }
}
