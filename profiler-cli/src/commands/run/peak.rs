//! Finds the highest heap peak of a run, for the summary of `tprof run`.
//!
//! The run's files were just written, so they are still in the page cache. The shell prompt must
//! not wait while a long exact recording is replayed: if the files are larger than [`MOST_BYTES`],
//! only `tprof report` shows the peak.

use std::fmt;
use std::path::Path;
use tprof_analyze::memory::rank_memory;
use tprof_facts::Clock;
use tprof_facts::units::bytes;
use tprof_trace::TraceFile;
use tprof_trace::run::{RunInfo, misses_allocations};

/// Largest size of a run's files to read. That is some five million allocations, which take about
/// four bytes each in a file, and less than a second to read.
const MOST_BYTES: u64 = 16 << 20;

/// A peak and its rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Highest sum of live bytes.
    pub bytes: u64,
    /// The rank, if there are several.
    pub rank: Option<u32>,
    /// Whether the allocations of a process could not be recorded.
    pub at_least: bool,
    /// Why allocations or frees of a rank are missing.
    pub uncertain: Option<String>,
}

impl fmt::Display for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = if self.at_least && self.uncertain.is_none() { "at least " } else { "" };
        write!(f, "heap peak {bound}{}", bytes(self.bytes))?;
        if let Some(rank) = self.rank {
            write!(f, " (rank {rank}, the highest)")?;
        }
        match &self.uncertain {
            Some(why) => write!(f, "; it may be less or more: {why}"),
            None => Ok(()),
        }
    }
}

/// Returns the highest peak of the run's files; `None` if it is unknown or would take long to find.
pub fn of(directory: &Path, info: &RunInfo) -> Option<Peak> {
    let paths: Vec<_> = info.files.iter().map(|file| directory.join(file)).collect();
    let sizes = paths.iter().map(|path| path.metadata().map_or(0, |meta| meta.len()));
    if sizes.sum::<u64>() > MOST_BYTES {
        return None;
    }
    let at_least = misses_allocations(&info.completeness.blind);
    let (mut highest, mut uncertain) = (None, None);
    for path in &paths {
        let file = TraceFile::open(path).ok()?;
        let memory = rank_memory(&file, Clock::default()).host_memory;
        let bytes = *memory.peak_bytes.value()?;
        uncertain = uncertain.or(memory.at_least);
        let rank = file.header().rank.filter(|_| paths.len() > 1);
        highest = highest.max(Some((bytes, rank)));
    }
    highest.map(|(bytes, rank)| Peak { bytes, rank, at_least, uncertain })
}
