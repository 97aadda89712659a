//! Spells categories and names as torch.profiler does, for rows that have none of their own.

use tprof_trace::model::ThreadState;
use tprof_trace::model::{CopyKind, DeviceSpanKind, SpanKind, SyncKind};

/// Returns the category for a span's kind; `None` if the span has a category of its own.
pub(crate) fn of_span(kind: SpanKind) -> Option<&'static str> {
    match kind {
        SpanKind::Runtime => Some("cuda_runtime"),
        SpanKind::Driver => Some("cuda_driver"),
        SpanKind::Operator => Some("cpu_op"),
        SpanKind::Annotation => Some("user_annotation"),
        SpanKind::Nvtx => Some("nvtx"),
        SpanKind::Python => Some("python_function"),
        SpanKind::Overhead => Some("overhead"),
        SpanKind::Other => None,
    }
}

/// Returns the category for an interval on a stream; `None` if the interval has a category of its
/// own.
pub(crate) fn of_device_span(kind: DeviceSpanKind) -> Option<&'static str> {
    match kind {
        DeviceSpanKind::Annotation => Some("gpu_user_annotation"),
        DeviceSpanKind::Counters => Some("cuda_profiler_range"),
        DeviceSpanKind::Other => None,
    }
}

pub(crate) fn of_copy(kind: CopyKind) -> &'static str {
    if kind == CopyKind::Memset { "gpu_memset" } else { "gpu_memcpy" }
}

/// Returns the name for a synchronisation without a name.
pub(crate) fn sync_name(kind: SyncKind) -> &'static str {
    match kind {
        SyncKind::Event => "Event Sync",
        SyncKind::StreamWaitEvent => "Stream Wait Event",
        SyncKind::Stream => "Stream Sync",
        SyncKind::Context => "Context Sync",
        SyncKind::Unknown => "Sync",
    }
}

/// Returns the innermost frame for a thread that is not on a core; `None` for a thread on a core.
pub(crate) fn waiting(state: ThreadState) -> Option<&'static str> {
    match state {
        ThreadState::Running => None,
        ThreadState::Runnable => Some("[waiting for a core]"),
        ThreadState::Blocked => Some("[off core]"),
        ThreadState::Lock => Some("[waiting for a lock]"),
        ThreadState::Io => Some("[waiting for I/O]"),
        ThreadState::Sleep => Some("[sleeping]"),
        ThreadState::Poll => Some("[waiting for an event]"),
        ThreadState::Gil => Some("[waiting for the GIL]"),
        ThreadState::Device => Some("[waiting for a device]"),
    }
}
