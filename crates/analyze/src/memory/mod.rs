//! Host memory of one rank: all processes of its file.
//!
//! Exact recordings are replayed event by event; sampled ones take their totals
//! from the processes' own counters and estimate sites from the samples.
//! `docs/metrics.md` defines every number.

mod blocks;
pub mod churn;
pub mod curve;
mod gauges;
pub mod growth;
pub mod killed;
pub mod maps;
mod pass;
mod points;
mod replay;
pub mod resident;
pub mod sites;
mod sums;
pub mod timeline;
mod totals;
mod weight;

use tprof_facts::Clock;
use tprof_trace::{Problem, TraceFile};

use crate::base::reading::{Reading, object};
use churn::Churn;
use growth::Growth;
use killed::Death;
use maps::Maps;
use pass::Pass;
use sites::Site;
use timeline::{Cgroup, Timeline};
pub use totals::PEAK_SLACK_BYTES;

/// Why live bytes are unknown after a gap in the recording.
pub(crate) const PARTIAL: &str = "recording did not cover the whole life (--delay, --duration, --max-size, --paused, tprof ctl, or a collector that stood still)";
/// Why nothing is known of the heap of a process that was not recorded.
pub(crate) const OFF: &str =
    "allocations were not recorded (--mem off, or the program brings its own allocator)";

/// Heap of a rank.
#[derive(Clone, Debug)]
pub struct HostMemory {
    /// `exact`, `sampled` or `off`.
    pub recording: &'static str,
    /// Mean bytes between samples.
    pub sample_interval_bytes: Option<u64>,
    /// What live and peak bytes count: `requested` or `usable` (as the allocator rounds).
    pub live_counts: &'static str,
    /// Allocations; a realloc is one.
    pub allocations: Reading<u64>,
    /// Frees; a realloc is one.
    pub frees: Reading<u64>,
    /// Requested bytes.
    pub allocated_bytes: Reading<u64>,
    /// Highest sum of live bytes of the rank's processes.
    pub peak_bytes: Reading<u64>,
    /// When that was, since the run began.
    pub peak_at_ns: Reading<u64>,
    /// Live bytes of each process at its end, summed.
    pub live_at_exit_bytes: Reading<u64>,
    /// Set where events are missing, and why: then counts are at least those
    /// given, and live and peak bytes may be off either way.
    pub at_least: Option<String>,
    /// Frees of blocks whose allocation was not recorded.
    pub unmatched_frees: u64,
    /// Rates and lifetimes.
    pub churn: Churn,
    /// What grew from mark to mark.
    pub growth: Reading<Growth>,
    /// The same over quarters of the run, where there are no marks.
    pub growth_over_quarters: Option<Growth>,
    /// Mappings that the program made.
    pub maps: Maps,
    /// Number of distinct stacks.
    pub sites_total: usize,
    /// Sites, largest at the peak first.
    pub sites: Vec<Site>,
}
object! { HostMemory {
    plain recording, some sample_interval_bytes, plain live_counts, reading allocations,
    reading frees, reading allocated_bytes, reading peak_bytes, reading peak_at_ns,
    reading live_at_exit_bytes, some at_least, plain unmatched_frees, plain churn, reading growth,
    some growth_over_quarters, plain maps, plain sites_total, plain sites,
} }

/// All that one pass over a file tells about memory.
#[derive(Clone, Debug)]
pub struct RankMemory {
    /// The heap.
    pub host_memory: HostMemory,
    /// RSS, mapped and heap over time.
    pub timeline: Timeline,
    /// What the file knows of the cgroup.
    pub cgroup: Cgroup,
    /// Processes that a signal ended; judged once all files are read.
    pub deaths: Vec<Death>,
    /// How many processes SIGKILL ended.
    pub sigkills: u64,
    /// Last moment that the file tells of, on its own clock.
    pub end_ns: u64,
    /// Blocks of events that could not be read.
    pub problems: Vec<Problem>,
}

/// Reads the memory of a rank in one pass.
pub fn rank_memory(file: &TraceFile, clock: Clock) -> RankMemory {
    let pass = Pass::over(file, clock);
    RankMemory {
        host_memory: pass.host_memory(),
        timeline: pass.timeline(),
        cgroup: Cgroup::of(file),
        deaths: pass.deaths(),
        sigkills: pass.sigkills(),
        end_ns: pass.end_ns,
        problems: pass.problems,
    }
}
