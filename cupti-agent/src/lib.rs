//! `libtprof_cupti.so`, the CUPTI agent. Several libraries load it: the CUDA driver
//! (`CUDA_INJECTION64_PATH`), every copy of NVTX (`NVTX_INJECTION64_PATH`) and of ITT
//! (`INTEL_LIBITTNOTIFY64`), and NCCL as its profiler plugin (`NCCL_PROFILER_PLUGIN`).
//!
//! The agent attaches to the collector by itself and gets an additional region for the process. So
//! it also works if the hooks of `libtprof_preload.so` are not loaded. The code is in
//! `tprof-agent`. Without `TPROF_SESSION` in the environment the agent does nothing.
#![no_std]
#![allow(non_snake_case)] // NCCL's names

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use tprof_agent::gpu::agent;
use tprof_agent::gpu::client::intercepted;
use tprof_agent::itt;
use tprof_agent::nccl;
use tprof_agent::nvtx::{self, GetExportTable};

/// This is never called, since the release library contains no panic (`scripts/check.sh` checks
/// that). It doesn't abort, because a thread that stops for good is better than a job that ends.
#[panic_handler]
fn stopped(_: &core::panic::PanicInfo) -> ! {
    loop {
        tprof_inject::sys::sleep_ns(1_000_000_000);
    }
}

/// The driver's `cuInit` calls this once. The result isn't 0, so that the driver doesn't unload the
/// library.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    agent::start();
    1
}

/// The preloaded library's hooks call this with the number and address of a function of CUPTI.
/// Returns the address of the function to call: the agent's substitute, or the same address.
#[unsafe(no_mangle)]
pub extern "C" fn tprof_cupti_instead(number: u32, real: usize) -> usize {
    intercepted::instead(number, real)
}

/// The preloaded library's hooks call this before a context is destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn tprof_cupti_flush() {
    agent::flush_before_end();
}

/// Every copy of NVTX calls this at its first use. If the result is 0, the copy works as without a
/// tool, and its ranges are not recorded.
///
/// # Safety
/// `get` is the function that a copy of NVTX passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get: Option<GetExportTable>) -> c_int {
    // SAFETY: the caller guarantees that `get` comes from a copy of NVTX.
    get.map_or(0, |get| c_int::from(unsafe { nvtx::install(get) }))
}

/// Every static part of ITT calls this at its first use.
///
/// # Safety
/// A static part of ITT passed `global`, and its lock is locked during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __itt_api_init(global: *mut itt::Global, groups: c_int) {
    // SAFETY: the caller guarantees that `global` comes from a static part of ITT whose lock is
    // locked.
    unsafe { itt::install(global, groups) };
}

/// The table of NCCL's profiler plugin for this version of the interface; null if there is none.
extern "C" fn resolve(version: usize) -> *const c_void {
    nccl::table(version)
}

/// Defines the symbols by which NCCL finds the tables. Each symbol is an indirect function: `dlsym`
/// returns what its code returns, which may be the table of the job's own plugin.
macro_rules! plugin {
    ($($name:ident $version:literal)*) => {$(
        /// A table of the interface that NCCL's `ext-profiler` describes.
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
