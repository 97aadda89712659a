//! Which functions samples could show: what rules that recognise a cause by names must know
//! before they deny it.

use crate::rank::samples::{CpuTrace, Layer, is_interpreter};

/// Over all samples of a rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visible {
    /// Compiled functions were sampled.
    pub native: bool,
    /// Functions of Python's interpreter were sampled.
    pub interpreter: bool,
    /// Some of those have no names: the interpreter is stripped.
    pub nameless_interpreter: bool,
}

impl Visible {
    /// Of a rank's samples.
    pub fn of(trace: &CpuTrace) -> Visible {
        let mut found = Visible::default();
        for func in trace.names.all().iter().filter(|func| func.layer == Layer::Native) {
            found.native = true;
            if is_interpreter(&func.module) {
                found.interpreter = true;
                found.nameless_interpreter |= func.is_nameless();
            }
        }
        found
    }
}
