//! `tprof doctor`: reports what tprof can record here, what it cannot record and why, and what to
//! do about it.
//!
//! Every line is the result of a test on this machine. Nothing is concluded from a version or the
//! name of a distribution.

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
