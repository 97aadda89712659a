//! The work of devices, from the records of a process's CUPTI agent.
//!
//! Payloads are copied out of shared memory before they reach this module, and are not trusted:
//! whatever a target wrote becomes a row or a count.

mod agent;
pub mod by_order;
pub mod call_stacks;
mod classes;
pub mod context_memory;
pub mod coverage;
mod devices;
mod joins;
mod launches;
pub mod matching;
mod ranges;
mod rows;
pub mod texts;
mod thread_rows;
pub mod virtual_memory;

pub use agent::{AgentRecord, Gpu, NCCL_CHOICES};
pub use thread_rows::ThreadRows;
