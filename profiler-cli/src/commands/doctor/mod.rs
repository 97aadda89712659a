//! `tprof doctor`: what can be recorded here, what cannot and why, and what to do.
//!
//! Every line is tried on the spot, not concluded from a version or a
//! distribution's name.

mod check;
mod diagnose;
mod gpu;
pub mod kernel;
mod machine;
mod peaks;
mod program;
mod run_kernel;

pub use diagnose::{DoctorArgs, run};
pub use run_kernel::COMMAND as RUN_KERNEL;
