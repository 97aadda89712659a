//! `libtprof_preload.so`, the preloaded library: `LD_PRELOAD` loads it into every process of the
//! job, where it interposes functions of libc and other libraries.
//!
//! Each hook calls the real function and reports what it saw; the code for that is in
//! `tprof-inject`. Without `TPROF_SESSION` in the environment, hooks only call the real functions.
#![no_std]
#![allow(clippy::missing_safety_doc)] // every hook has the premises of the libc function of this name
#![allow(clippy::macro_metavars_in_unsafe)] // hooks pass their own arguments to `real!`

mod hooks;
mod table;

use core::ffi::c_char;

/// This is never called, since the release library contains no panic (`scripts/check.sh` checks
/// that). It doesn't abort, because a thread that stops for good is better than a job that ends.
#[panic_handler]
fn stopped(_: &core::panic::PanicInfo) -> ! {
    loop {
        tprof_inject::sys::sleep_ns(1_000_000_000);
    }
}

/// Looks up the real functions and attaches the process. The loader calls this when it has
/// relocated the library. A hook that runs earlier does the same.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn(i32, *const *const c_char, *const *const c_char) = {
    unsafe extern "C" fn constructor(
        count: i32,
        arguments: *const *const c_char,
        variables: *const *const c_char,
    ) {
        table::resolve();
        // SAFETY: glibc passes the arguments of `main` to constructors, and these are the kernel's
        // arrays. `began_with` allows for loaders that don't.
        unsafe { tprof_inject::environment::began_with(count, arguments, variables) };
        let _ = tprof_inject::gate::recording();
        tprof_inject::operators::register_callbacks();
    }
    constructor
};

/// Drops PyTorch's callback when the process exits, before the destructors of the libraries that
/// the program is linked with.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destructor() {
        tprof_inject::pytorch_registration::drop_callbacks();
    }
    destructor
};
