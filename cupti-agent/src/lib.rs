//! `libtprof_cupti.so`: loaded by the CUDA driver (`CUDA_INJECTION64_PATH`), by every copy
//! of NVTX (`NVTX_INJECTION64_PATH`) and of ITT (`INTEL_LIBITTNOTIFY64`), and by NCCL as its
//! profiler plugin (`NCCL_PROFILER_PLUGIN`).
//!
//! The agent attaches by itself, as one more region of the process: it also works where
//! the hooks of `libtprof_preload.so` are not loaded. The logic lives in
//! `tprof-inject`. Without `TPROF_SESSION` in the environment it does nothing.
#![no_std]
#![allow(non_snake_case)] // NCCL's names

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use tprof_inject::gpu::agent;
use tprof_inject::gpu::client::functions;
use tprof_inject::itt;
use tprof_inject::nccl;
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

/// The preloaded library's hooks call this, for a function of CUPTI's with this number and
/// address: what to call in its place, or that address.
#[unsafe(no_mangle)]
pub extern "C" fn tprof_cupti_instead(number: u32, real: usize) -> usize {
    functions::instead(number, real)
}

/// The preloaded library's hooks call this before a context ends.
#[unsafe(no_mangle)]
pub extern "C" fn tprof_cupti_flush() {
    agent::flush_before_end();
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

/// Every static part of ITT calls this, at its first use.
///
/// # Safety
/// `global` is what a static part of ITT passes, which holds its lock meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __itt_api_init(global: *mut itt::Global, groups: c_int) {
    // SAFETY: the caller's premise.
    unsafe { itt::install(global, groups) };
}

/// The table of NCCL's profiler plugin in this version, or null.
extern "C" fn resolve(version: usize) -> *const c_void {
    nccl::table(version)
}

/// Names by which NCCL finds the tables. Each is an indirect function: what `dlsym` returns for
/// it is what its code returns, so that a plugin of the job's own can be handed over.
macro_rules! plugin {
    ($($name:ident $version:literal)*) => {$(
        /// See NCCL's `ext-profiler`.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub extern "C" fn $name() {
            naked_asm!(
                concat!(".type ", stringify!($name), ", @gnu_indirect_function"),
                "mov edi, {version}",
                "jmp {resolve}",
                version = const $version,
                resolve = sym resolve,
            )
        }
    )*};
}
plugin! {
    ncclProfiler_v1 1
    ncclProfiler_v2 2
    ncclProfiler_v3 3
    ncclProfiler_v4 4
    ncclProfiler_v5 5
    ncclProfiler_v6 6
}
