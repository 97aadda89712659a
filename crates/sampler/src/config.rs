//! The options of a run that decide how stacks are taken and what is counted.

use serde::{Deserialize, Serialize};

/// The values of `--stacks`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum StackMode {
    /// Unwind by tables, and by frame pointers where the tables permit that.
    Auto,
    /// Unwind only by frame pointers.
    Fp,
    /// The same as `Auto`.
    Dwarf,
    /// The same as `Auto`, and stacks of allocations include Python's frames.
    Python,
    /// Stacks are not taken.
    Off,
}

/// `--counters`: events that the processor or the kernel counts, named as `perf
/// list` names them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[serde(rename_all = "kebab-case")]
pub enum PerfEvent {
    /// Cycles of the processor.
    Cycles,
    /// Instructions that the processor finished.
    Instructions,
    /// References to the last-level cache.
    CacheReferences,
    /// References that the last-level cache could not answer.
    CacheMisses,
    /// Branch instructions that ran.
    Branches,
    /// Branches that were mispredicted.
    BranchMisses,
    /// Page faults, including those at the first use of a page.
    PageFaults,
    /// Page faults for which a page had to be read from disk.
    MajorFaults,
}

impl PerfEvent {
    /// All events, each with its name.
    pub const ALL: [(&'static str, PerfEvent); 8] = [
        ("cycles", PerfEvent::Cycles),
        ("instructions", PerfEvent::Instructions),
        ("cache-references", PerfEvent::CacheReferences),
        ("cache-misses", PerfEvent::CacheMisses),
        ("branches", PerfEvent::Branches),
        ("branch-misses", PerfEvent::BranchMisses),
        ("page-faults", PerfEvent::PageFaults),
        ("major-faults", PerfEvent::MajorFaults),
    ];
    /// The events that are counted by default. They show how many instructions the processor
    /// finishes per cycle, and how well its cache works.
    pub const STANDARD: [PerfEvent; 4] = [
        PerfEvent::Cycles,
        PerfEvent::Instructions,
        PerfEvent::CacheReferences,
        PerfEvent::CacheMisses,
    ];

    /// Returns the option's value for this event.
    pub fn name(self) -> &'static str {
        PerfEvent::ALL.iter().find(|(_, event)| *event == self).map_or("", |(name, _)| name)
    }
}
