//! Tells which kinds of functions the samples show. A rule that recognises a cause by the names of
//! functions may deny the cause only if such functions would have been visible.

use tprof_rank::samples::{CpuTrace, Layer, is_interpreter};
use tprof_trace::model::ThreadState;

/// The kinds of functions in a rank's samples. Except for `python`, only samples on a core count,
/// since waits have stacks of compiled code even without perf events.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampledCode {
    /// Whether compiled functions were sampled.
    pub native: bool,
    /// Whether Python functions were sampled, running or waiting.
    pub python: bool,
    /// Whether functions of Python's interpreter were sampled.
    pub interpreter: bool,
    /// Whether some of the interpreter's functions have no names.
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
