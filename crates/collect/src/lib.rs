//! The collector: drains rings, joins clocks, resolves symbols, assigns ranks,
//! and writes the files while the job runs.
//!
//! Its rooms, from the ground up; none uses a later one:
//!
//! | room | what is in it |
//! |---|---|
//! | `os` | system calls, and what `/proc` shows |
//! | [`elf`], [`unwind_table`], [`symbols`], [`modules`] | the code that a process runs |
//! | `shared` | the memory that targets share with the collector, and their clock |
//! | [`perf`], `python`, [`cpu`] | what threads do: perf events or `/proc`, Python's frames, samples |
//! | `out` | the files of a run, and what became of its processes |
//! | `gpu`, `nvml` | what CUPTI records of devices, and what their driver measures |
//! | `targets` | one process of the job: its rings, and what their records mean |
//! | `directory` | the directory of a session: its socket, its lock, its owner |
//! | `engine` | the main loop, and the threads that do what a pass over the rings has no time for |
//! | `session` | begins and ends it all: the directory, the socket, who answers there |
//!
//! [`Session`] is what `tprof run` holds.

pub mod config;
pub mod cpu;
mod directory;
pub mod elf;
mod engine;
mod error;
mod gpu;
pub mod modules;
mod nvml;
mod os;
mod out;
pub mod perf;
mod python;
mod session;
mod shared;
pub mod symbols;
mod targets;
pub mod unwind_table;

pub use config::{
    Activity, Config, DEFAULT_GPU_INTERVAL, DEFAULT_RSS_INTERVAL, DEFAULT_SAMPLE_INTERVAL,
    GPU_INTERVALS, MemMode, OnFull, PerfEvent, RSS_INTERVALS, StackMode,
};
pub use cpu::{DEFAULT_RATE as DEFAULT_SAMPLE_RATE, highest_rate as highest_sample_rate};
pub use directory::owned::{Owned, PREFIX, claim, places, sweep};
pub use error::CollectError;
pub use os::proc;
pub use out::ranks;
pub use session::{Libraries, Session, collect_on_demand, control, free, injections};
