//! Analyses the host memory of one rank, which is the memory of all processes of its file.
//!
//! Exact recordings are replayed event by event. The totals of sampled recordings come from the
//! processes' own counters, and the sites are estimated from the samples. `docs/metrics.md` defines
//! every number.

pub mod arenas;
mod blocks;
pub mod churn;
pub mod curve;
pub mod forked;
mod gauges;
pub mod growth;
mod heap_within;
mod held_within;
mod host_memory;
pub mod killed;
pub mod maps;
mod missing;
mod moments;
mod pass;
mod points;
mod rank_memory;
pub mod rate;
mod replay;
pub mod resident;
pub mod sites;
pub mod snapshot;
mod sums;
pub mod timeline;
mod totals;
pub mod transfers;
mod weight;

pub(crate) use heap_within::{heap_within, lost};
pub(crate) use held_within::{HeldLevel, HeldSweep, HeldWindow, HeldWithin};
pub use host_memory::HostMemory;
pub(crate) use missing::{OFF, gap, was_off};
pub use moments::{Moments, growth_at};
pub use rank_memory::{RankMemory, rank_memory};
pub use totals::PEAK_SLACK_BYTES;
