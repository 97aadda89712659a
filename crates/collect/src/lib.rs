//! The collector: drains rings, joins clocks, resolves symbols, assigns ranks,
//! and writes the files while the job runs.
//!
//! [`Session`] is what `tprof run` holds; `engine` is its main loop over
//! `process` images; `server` answers those who attach; `workers` do what
//! takes longer than a pass over the rings may.

mod ahead;
mod calibrate;
mod calls;
mod clock;
mod code;
pub mod config;
pub mod control;
pub mod cpu;
mod door;
pub mod elf;
mod engine;
mod error;
mod files;
mod gemms;
mod gpu;
mod heap;
#[cfg(test)]
mod hostile;
mod info;
mod job;
mod ledger;
mod live;
mod mappers;
pub mod modules;
mod nvml;
mod observe;
mod owned;
pub mod perf;
mod process;
mod pss;
mod python;
pub mod ranks;
mod reserve;
mod rundir;
mod sampled;
mod server;
mod session;
mod shared;
mod story;
mod survivors;
pub mod symbols;
mod sys;
mod tracked;
pub mod unwind_table;
mod workers;

pub use config::{
    Activity, Config, DEFAULT_GPU_INTERVAL, DEFAULT_RSS_INTERVAL, DEFAULT_SAMPLE_INTERVAL,
    GPU_INTERVALS, MemMode, OnFull, PerfEvent, RSS_INTERVALS, StackMode,
};
pub use cpu::{DEFAULT_RATE as DEFAULT_SAMPLE_RATE, highest_rate as highest_sample_rate};
pub use error::CollectError;
pub use owned::{Owned, PREFIX, claim, places, sweep};
pub use rundir::free;
pub use session::{Libraries, Session, collect_on_demand, injections};
