//! Lists the kinds of report that are documents.

use tprof_document::DocumentKind;

/// Every kind except `summary` and `memory`, in the order in which help lists them.
pub const KINDS: &[DocumentKind] = &[
    tprof_findings::KIND,
    tprof_metrics::host::KIND,
    tprof_metrics::gpu::gpu_time::KIND,
    tprof_metrics::gpu::breakdown::KIND,
    tprof_metrics::gpu::idle::KIND,
    tprof_metrics::gpu::overlap::KIND,
    tprof_metrics::gpu::kernels::KIND,
    tprof_metrics::gpu::gemms::KIND,
    tprof_metrics::gpu::api::KIND,
    tprof_metrics::gpu::launches::KIND,
    tprof_metrics::gpu::queue::KIND,
    tprof_metrics::gpu::bandwidth::KIND,
    tprof_metrics::gpu::memcpy::KIND,
    tprof_metrics::gpu::device_memory::KIND,
    tprof_metrics::gpu::report_gpu::KIND,
    tprof_metrics::machine::KIND,
    tprof_metrics::program::steps::KIND,
    tprof_metrics::program::history::KIND,
    tprof_metrics::program::annotations::KIND,
    tprof_metrics::program::nvtx::KIND,
    tprof_metrics::program::spans::KIND,
    tprof_metrics::program::operators::KIND,
    tprof_metrics::program::flops::FLOPS,
    tprof_metrics::program::flops::ROOFLINE,
    tprof_metrics::program::compile::KIND,
    tprof_metrics::program::sequences::KIND,
    tprof_metrics::program::counters::KIND,
    tprof_metrics::gpu::comm::KIND,
    tprof_metrics::gpu::stragglers::KIND,
    tprof_metrics::gpu::critical_path::KIND,
    tprof_metrics::cpu::CPU,
    tprof_metrics::cpu::THREADS,
];
