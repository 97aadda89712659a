//! The kinds of report that are documents.

use crate::document::DocumentKind;

/// Every kind but `summary` and `memory`, in the order in which help lists them.
pub const KINDS: &[DocumentKind] = &[
    crate::findings::KIND,
    crate::breakdown::KIND,
    crate::idle::KIND,
    crate::overlap::KIND,
    crate::kernels::KIND,
    crate::gemms::KIND,
    crate::api::KIND,
    crate::launches::KIND,
    crate::queue::KIND,
    crate::bandwidth::KIND,
    crate::memcpy::KIND,
    crate::device_memory::KIND,
    crate::devices::KIND,
    crate::steps::KIND,
    crate::annotations::KIND,
    crate::nvtx::KIND,
    crate::operators::KIND,
    crate::sequences::KIND,
    crate::counters::KIND,
    crate::comm::KIND,
    crate::stragglers::KIND,
    crate::critical_path::KIND,
    crate::cpu::CPU,
    crate::cpu::THREADS,
];
