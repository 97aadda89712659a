//! Interfaces to the kernel: system calls as safe functions, and readers of `/proc` and of cgroups.
//!
//! The modules in reading order; each uses only those above it:
//!
//! - [`sys`]: system calls, those of sockets in a file of their own;
//! - [`proc`], [`maps`], [`mounts`]: what `/proc` shows of a process;
//! - [`cgroup`], [`host_cpu`], [`kernel_log`], `gpu_host`, `commit`: the machine around a job, and
//!   the version of its source;
//! - [`variables`], [`wall_clock`]: environments of processes, and the time of day.

mod socket;
pub mod sys;

pub mod maps;
pub mod mounts;
pub mod proc;

pub mod cgroup;
mod commit;
mod gpu_host;
pub mod host_cpu;
pub mod kernel_log;

pub mod variables;
pub mod wall_clock;

pub use commit::commit_of;
pub use gpu_host::{GpuHost, gpu_host};
