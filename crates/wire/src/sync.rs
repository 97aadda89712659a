//! The atomics of memory that threads or processes share: those of `core`.
//!
//! Under `--cfg loom` they are instead atomics that have the same layout, but whose accesses a model
//! can perform. So a model runs the very code that runs in profiled processes, including code that
//! views mapped memory as atomics. `scripts/loom.sh` runs the models.

#[cfg(not(loom))]
pub use core::{hint::spin_loop, sync::atomic::*};

#[cfg(loom)]
mod modelled;
#[cfg(loom)]
pub use modelled::*;
