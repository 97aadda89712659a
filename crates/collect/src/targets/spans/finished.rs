//! Spans that have begun, and finished spans, marks and values that wait for the definition of
//! their name.

use super::args::{Described, StatedFlops};
use tprof_trace::model::ThreadIndex;
use tprof_wire::spans::{OnStack, Place};

/// A span that has begun and not ended.
#[derive(Clone, Debug, Default)]
pub struct OpenSpan {
    pub name: u32,
    pub thread: ThreadIndex,
    pub start_ns: u64,
    pub place: Place,
    pub stated: StatedFlops,
    pub described: Described,
    /// The counts of the thread's allocations when the span began, for a span on a thread's stack.
    pub counted: OnStack,
}

/// A finished span, mark or value.
#[derive(Clone, Debug)]
pub enum Finished {
    /// A span that has ended. `allocated` is the number and the bytes of the allocations within it,
    /// if its thread counted them.
    Span {
        span: OpenSpan,
        end_ns: u64,
        any_thread: bool,
        allocated: Option<(u64, u64)>,
    },
    Mark {
        name: u32,
        time_ns: u64,
    },
    Value {
        name: u32,
        time_ns: u64,
        value: f64,
    },
}

impl Finished {
    /// Returns the id of the name.
    pub fn name(&self) -> u32 {
        match self {
            Finished::Span { span, .. } => span.name,
            Finished::Mark { name, .. } | Finished::Value { name, .. } => *name,
        }
    }
}
