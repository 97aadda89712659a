//! Calls the callback that CUPTI attached, when a call begins and when it returns. Of the driver's
//! calls, it does so only for the launch.

use std::ffi::c_char;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tprof_fake_cuda::Callback;

static CALLBACK: AtomicUsize = AtomicUsize::new(0);

/// The implementation of [`tprof_fake_cuda::Engine::attach_callbacks`].
pub extern "C" fn attach(callback: Option<Callback>) {
    CALLBACK.store(callback.map_or(0, |f| f as usize), SeqCst);
}

/// The implementation of [`tprof_fake_cuda::Engine::called`].
pub extern "C" fn call(
    driver: bool,
    number: u32,
    name: *const c_char,
    correlation: u32,
    result: *const u32,
) {
    let callback = CALLBACK.load(SeqCst);
    if callback != 0 {
        // SAFETY: only `attach` stores here, and only a `Callback`.
        let callback: Callback = unsafe { std::mem::transmute(callback) };
        callback(driver, number, name, correlation, result);
    }
}
