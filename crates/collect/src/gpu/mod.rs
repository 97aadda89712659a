//! Turns the records of a process's CUPTI agent into rows for the work of devices.
//!
//! The caller copies each payload out of shared memory before it passes the payload to this module.
//! A process may have written anything, so every payload becomes either a row or a count of
//! malformed records.

mod agent;
pub mod by_order;
mod call_classes;
pub mod call_stacks;
pub mod context_memory;
pub mod coverage;
mod devices;
mod joins;
mod launches;
pub mod matching;
mod ranges;
mod rows;
mod stalls;
pub mod texts;
mod thread_rows;
pub mod virtual_memory;

pub use agent::{AgentRecord, Gpu, NCCL_CHOICES, NCCL_LOG};
pub use thread_rows::ThreadRows;
