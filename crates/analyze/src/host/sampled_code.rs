//! The kinds of functions that samples could show. Rules that recognise a cause by names must know
//! them before they deny it.

use tprof_trace::model::ThreadState;

use crate::rank::samples::{CpuTrace, Layer, is_interpreter};

/// Over all samples on a core of a rank. Waits have stacks of compiled code without perf events,
/// too.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampledCode {
    /// Compiled functions were sampled.
    pub native: bool,
    /// Python's functions were sampled, running or waiting.
    pub python: bool,
    /// Functions of Python's interpreter were sampled.
    pub interpreter: bool,
    /// Some functions of the interpreter have no names.
    pub nameless_interpreter: bool,
}

impl SampledCode {
    /// Examines a rank's samples.
    pub fn of(trace: &CpuTrace) -> SampledCode {
        let mut found = SampledCode::default();
        let stretches = trace.stretches.iter().flat_map(|one| &one.stack);
        found.python = stretches.into_iter().any(|id| trace.names.get(*id).layer == Layer::Python);
        let running = trace.stretches.iter().filter(|one| one.state == ThreadState::Running);
        let functions = running.flat_map(|one| &one.stack).map(|id| trace.names.get(*id));
        for func in functions.filter(|func| func.layer == Layer::Native) {
            found.native = true;
            if is_interpreter(&func.module) {
                found.interpreter = true;
                found.nameless_interpreter |= func.is_nameless();
            }
        }
        found
    }
}
