//! Starts a job, waits for it, and inspects its environment.

pub mod caches;
pub mod ctrl_c;
pub mod failures;
pub mod fallback;
pub mod follow;
pub mod inherited;
pub mod libraries;
pub mod python_path;
mod reach;
pub mod signals;
mod start;
pub mod system;
pub mod wait;

pub use start::{
    ChildPipes, InheritedState, NotStarted, Replacement, Unusable, find, fork, refuses_libraries,
};
