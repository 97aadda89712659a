//! `libtprof_preload.so`: loaded into the job by `LD_PRELOAD`.
//!
//! Each hook calls the real function and reports what it saw; the logic lives
//! in `tprof-inject`. Without `TPROF_SESSION` in the environment every hook
//! only passes through.
#![no_std]
#![allow(clippy::missing_safety_doc)] // every hook: "as the function of this name in libc"
#![allow(clippy::macro_metavars_in_unsafe)] // `real!` is given the hooks' own arguments

mod hooks;
mod table;

use core::ffi::c_char;

/// Never reached: the release library contains no panic (checked by
/// `scripts/check.sh`). Stopping this thread for good would be better than
/// taking the job down, so it does not abort.
#[panic_handler]
fn stopped(_: &core::panic::PanicInfo) -> ! {
    loop {
        tprof_inject::sys::sleep_ns(1_000_000_000);
    }
}

/// Runs when the loader has relocated the library: finds the real functions and
/// attaches. A hook that is called earlier does the same.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn(i32, *const *const c_char, *const *const c_char) = {
    unsafe extern "C" fn constructor(
        count: i32,
        arguments: *const *const c_char,
        variables: *const *const c_char,
    ) {
        table::resolve();
        // SAFETY: as glibc calls constructors: with what it gives `main`.
        unsafe { tprof_inject::environment::began_with(count, arguments, variables) };
        let _ = tprof_inject::gate::recording();
        tprof_inject::operators::register_callbacks();
    }
    constructor
};

/// Runs as the process ends, before the destructors of libraries that the program is linked with.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destructor() {
        tprof_inject::pytorch_registration::drop_callback();
    }
    destructor
};
