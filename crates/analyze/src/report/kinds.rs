//! Lists the kinds of report that are documents.

use tprof_document::DocumentKind;

/// Every kind except `summary` and `memory`, in the order in which help lists them.
pub const KINDS: &[DocumentKind] = &[
    crate::findings::KIND,
    crate::host::KIND,
    crate::gpu::gpu_time::KIND,
    crate::gpu::breakdown::KIND,
    crate::gpu::idle::KIND,
    crate::gpu::overlap::KIND,
    crate::gpu::kernels::KIND,
    crate::gpu::gemms::KIND,
    crate::gpu::api::KIND,
    crate::gpu::launches::KIND,
    crate::gpu::queue::KIND,
    crate::gpu::bandwidth::KIND,
    crate::gpu::memcpy::KIND,
    crate::gpu::device_memory::KIND,
    crate::gpu::report_gpu::KIND,
    crate::program::steps::KIND,
    crate::program::annotations::KIND,
    crate::program::nvtx::KIND,
    crate::program::spans::KIND,
    crate::program::operators::KIND,
    crate::program::flops::FLOPS,
    crate::program::flops::ROOFLINE,
    crate::program::compile::KIND,
    crate::program::sequences::KIND,
    crate::program::counters::KIND,
    crate::gpu::comm::KIND,
    crate::gpu::stragglers::KIND,
    crate::gpu::critical_path::KIND,
    crate::cpu::CPU,
    crate::cpu::THREADS,
];
