//! `libtprof_preload.so`: loaded into the job by `LD_PRELOAD`.
//!
//! Each hook calls the real function and reports what it saw; the logic is in `tprof-inject`.
//! Without `TPROF_SESSION` in the environment, every hook only calls the real function.
#![no_std]
#![allow(clippy::missing_safety_doc)] // every hook has the premises of the libc function of this name
#![allow(clippy::macro_metavars_in_unsafe)] // hooks pass their own arguments to `real!`

mod hooks;
mod table;

use core::ffi::c_char;

/// Never called: the release library contains no panic (checked by `scripts/check.sh`). Stopping
/// this thread for good would be better than ending the job, so this does not abort.
#[panic_handler]
fn stopped(_: &core::panic::PanicInfo) -> ! {
    loop {
        tprof_inject::sys::sleep_ns(1_000_000_000);
    }
}

/// Runs when the loader has relocated the library: looks up the real functions and attaches. A hook
/// that is called earlier does the same.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn(i32, *const *const c_char, *const *const c_char) = {
    unsafe extern "C" fn constructor(
        count: i32,
        arguments: *const *const c_char,
        variables: *const *const c_char,
    ) {
        table::resolve();
        // SAFETY: glibc passes the arguments of `main` to constructors, and they are the kernel's
        // arrays.
        unsafe { tprof_inject::environment::began_with(count, arguments, variables) };
        let _ = tprof_inject::gate::recording();
        tprof_inject::operators::register_callbacks();
    }
    constructor
};

/// Runs when the process exits, before the destructors of libraries that the program is linked
/// with.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destructor() {
        tprof_inject::pytorch_registration::drop_callback();
    }
    destructor
};
