//! Finished spans and marks that wait for their name.

use super::args::{Described, StatedFlops};
use tprof_trace::model::ThreadIndex;
use tprof_wire::spans::{OnStack, Place};

/// A span that has begun.
#[derive(Clone, Debug, Default)]
pub struct OpenSpan {
    pub name: u32,
    pub thread: ThreadIndex,
    pub start_ns: u64,
    pub place: Place,
    pub stated: StatedFlops,
    pub described: Described,
    /// For a span on a thread's stack, the thread's counts at its beginning.
    pub counted: OnStack,
}

/// See the module.
#[derive(Clone, Debug)]
pub enum Finished {
    /// A span, with the allocations within it and their bytes, as its thread counted them.
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
    /// The name that it waits for.
    pub fn name(&self) -> u32 {
        match self {
            Finished::Span { span, .. } => span.name,
            Finished::Mark { name, .. } | Finished::Value { name, .. } => *name,
        }
    }
}
