//! Follows the processes of the job that have attached: reads their rings, turns their records into
//! rows of the trace, and assigns samples to them.

pub mod attached;
pub mod attribution;
pub mod boundaries;
pub mod budget;
mod calls;
pub mod code;
mod collectives;
mod cpu_rows;
mod device_queue;
pub mod ending;
mod file_calls;
mod gemms;
mod heap;
mod image;
mod interned;
mod live;
mod lost;
mod memory;
mod mmap_callers;
mod notes;
mod operators;
pub mod own_switch;
pub mod placing;
mod progress;
mod spans;
mod standstill;
pub mod target;
#[cfg(test)]
mod tests;
mod thread_table;
mod threads;
