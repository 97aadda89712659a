//! The tables of a file that a report reads.

use std::ops::BitOr;

use tprof_trace::model::SpanKind;

/// Tables that a report reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs(u32);

impl Needs {
    /// Kernels, copies, memsets.
    pub const WORK: Needs = Needs(1 << 16);
    /// Waits of hosts for devices.
    pub const SYNCHRONIZATIONS: Needs = Needs(1 << 17);
    /// Images of annotations on devices, and ranges of range profilers.
    pub const DEVICE_SPANS: Needs = Needs(1 << 18);
    /// Collectives between ranks.
    pub const COLLECTIVES: Needs = Needs(1 << 19);
    /// Allocations and frees of device memory.
    pub const ALLOCATIONS: Needs = Needs(1 << 20);
    /// CPU samples of threads.
    pub const SAMPLES: Needs = Needs(1 << 21);
    /// Logs of `torch.compile`, which are separate files beside the trace.
    pub const COMPILE: Needs = Needs(1 << 22);
    /// Calls of the runtime and the driver.
    pub const CALLS: Needs = Needs(1 << SpanKind::Runtime as u32 | 1 << SpanKind::Driver as u32);
    /// Operators of a framework.
    pub const OPERATORS: Needs = Needs::spans(SpanKind::Operator);
    /// Annotations of the program.
    pub const ANNOTATIONS: Needs = Needs::spans(SpanKind::Annotation);
    /// Training steps, and the rows that steps are derived from.
    pub const STEPS: Needs = Needs::ANNOTATIONS.and(Needs(1 << 23));
    /// Host spans of all kinds.
    pub const ALL_SPANS: Needs = Needs(0xff);
    /// All tables except samples.
    pub const ALL: Needs = Needs(!Needs::SAMPLES.0);

    /// Host spans of one kind.
    pub const fn spans(kind: SpanKind) -> Needs {
        Needs(1 << kind as u32)
    }

    /// The tables of `self` and of `other`.
    pub const fn and(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }

    /// Whether all tables of `other` are included.
    #[inline]
    pub fn has(self, other: Needs) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any table of `other` is included.
    #[inline]
    pub fn has_any(self, other: Needs) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Needs {
    type Output = Needs;

    fn bitor(self, other: Needs) -> Needs {
        self.and(other)
    }
}
