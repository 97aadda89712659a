//! Samples the threads of a job from outside: native stacks, Python's frames, waits, and events
//! that the processor or the kernel counts.
//!
//! The modules in reading order; each uses only those above it:
//!
//! - `config`: the options of a run that decide how stacks are taken and what is counted;
//! - `perf`: the kernel's perf events, their rings and records;
//! - [`python`]: CPython's frames;
//! - [`cpu`]: samples of threads, taken by perf events or read from `/proc`;
//! - `fuzzing`: the entry point of a fuzz target, without which none of it is compiled.

mod config;

mod perf;
pub mod python;

pub mod cpu;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use config::{PerfEvent, StackMode};
pub use perf::first::open_beside as open_first_event;
