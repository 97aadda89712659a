//! `libtprof_cupti.so`: loaded by the CUDA driver (`CUDA_INJECTION64_PATH`), and
//! by every copy of NVTX (`NVTX_INJECTION64_PATH`).
//!
//! It attaches by itself, as one more region of the process: it also works where
//! the hooks of `libtprof_preload.so` are not loaded. The logic lives in
//! `tprof-inject`. Without `TPROF_SESSION` in the environment it does nothing.
#![no_std]

use core::ffi::c_int;
use tprof_inject::gpu::agent;
use tprof_inject::nvtx::{self, GetExportTable};

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

/// Every copy of NVTX calls this, at its first use. 0: nothing is recorded, and the
/// copy goes on as without a tool.
///
/// # Safety
/// `get` is what a copy of NVTX passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get: Option<GetExportTable>) -> c_int {
    // SAFETY: the caller's premise.
    get.map_or(0, |get| c_int::from(unsafe { nvtx::install(get) }))
}
