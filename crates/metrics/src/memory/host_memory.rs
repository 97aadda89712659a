//! Defines the figures of a rank's heap that reports print.

use tprof_rank::base::object::object;
use tprof_rank::base::reading::Reading;

use super::churn::Churn;
use super::growth::Growth;
use super::maps::Maps;
use super::sites::Site;

/// The heap of a rank.
#[derive(Clone, Debug)]
pub struct HostMemory {
    /// `exact`, `sampled` or `off`.
    pub recording: &'static str,
    /// Mean bytes between samples.
    pub sample_interval_bytes: Option<u64>,
    /// The kind of bytes that live and peak figures count: `requested` bytes or `usable` bytes (as
    /// the allocator rounds them).
    pub live_counts: &'static str,
    /// Number of allocations; a realloc counts as one.
    pub allocations: Reading<u64>,
    /// Number of frees; a realloc counts as one.
    pub frees: Reading<u64>,
    /// Sum of the requested bytes.
    pub allocated_bytes: Reading<u64>,
    /// Highest sum of the live bytes of the rank's processes.
    pub peak_bytes: Reading<u64>,
    /// The time of the peak, nanoseconds since the run began.
    pub peak_at_ns: Reading<u64>,
    /// Live bytes of each process at its end, summed over processes.
    pub live_at_exit_bytes: Reading<u64>,
    /// The reason why events are missing, if any are. Counts are then lower bounds, and live and
    /// peak bytes may be too high or too low.
    pub at_least: Option<String>,
    /// Frees of blocks without a recorded allocation.
    pub unmatched_frees: u64,
    /// The part of `unmatched_frees` in processes that another process of the rank forked. They
    /// freed blocks that their parent had allocated before the fork.
    pub unmatched_frees_forked: u64,
    /// Rates and lifetimes of blocks.
    pub churn: Churn,
    /// Growth from mark to mark, or from step to step.
    pub growth: Reading<Growth>,
    /// Growth over quarters of the run, if there are no marks or steps.
    pub growth_over_quarters: Option<Growth>,
    /// Mappings that the program made.
    pub maps: Maps,
    /// Number of distinct stacks.
    pub sites_total: usize,
    /// Sites, largest at the peak first.
    pub sites: Vec<Site>,
}
impl HostMemory {
    /// Returns a note on all figures of the heap if events are missing: a block whose free is
    /// missing counts as live, and a block whose allocation is missing is not counted at all.
    pub fn caution(&self) -> Option<String> {
        let why = self.at_least.as_ref()?;
        Some(format!(
            "counts are lower bounds; peak, live bytes and growth may be less or more: {why}"
        ))
    }
}

object! { HostMemory {
    plain recording, some sample_interval_bytes, plain live_counts, reading allocations,
    reading frees, reading allocated_bytes, reading peak_bytes, reading peak_at_ns,
    reading live_at_exit_bytes, some at_least, plain unmatched_frees, plain unmatched_frees_forked,
    plain churn, reading growth,
    some growth_over_quarters, plain maps, plain sites_total, plain sites,
} }
