//! `libtprof_cupti.so`: loaded by the CUDA driver (`CUDA_INJECTION64_PATH`), and
//! by every copy of NVTX (`NVTX_INJECTION64_PATH`).
//!
//! It attaches by itself, as one more region of the process: it also works where
//! the hooks of `libtprof_preload.so` are not loaded. The logic lives in
//! `tprof-inject`. Without `TPROF_SESSION` in the environment it does nothing.
#![no_std]

use core::ffi::c_int;
use tprof_inject::gpu::agent;

/// Never reached: the release library contains no panic (checked by
/// `scripts/check.sh`). Stopping this thread for good would be better than
/// taking the job down, so it does not abort.
#[panic_handler]
fn stopped(_: &core::panic::PanicInfo) -> ! {
    loop {
        tprof_inject::sys::sleep_ns(1_000_000_000);
    }
}

/// The driver's `cuInit` calls this, once. Not 0: it stays loaded.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    agent::start();
    1
}
