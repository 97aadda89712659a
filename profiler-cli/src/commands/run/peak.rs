//! Finds the highest heap peak of a run, for the summary of `tprof run`.
//!
//! The peak is found by replaying all recorded allocations and frees. The user waits for the shell
//! prompt meanwhile. The files were just written and are still in the page cache. Small ones take
//! less than a second. If the files together are larger than [`MOST_BYTES`], the summary has no
//! peak, and only `tprof report` shows it.

use std::fmt;
use std::path::Path;

use tprof_facts::Clock;
use tprof_facts::units::bytes;
use tprof_metrics::memory::rank_memory;
use tprof_trace::TraceFile;
use tprof_trace::run::{RunInfo, misses_allocations};

/// Largest sum of the sizes of a run's files for which the peak is found. An allocation takes about
/// four bytes in a file, so that is some four million allocations.
const MOST_BYTES: u64 = 16 << 20;

/// The heap peak of the rank whose peak is the highest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Highest sum of the live bytes of the rank's processes.
    pub bytes: u64,
    /// The rank; `None` if the run has only one file, or the file has no rank.
    pub rank: Option<u32>,
    /// Whether no allocations of some process of the run were recorded, so that the peak is a lower
    /// bound.
    pub at_least: bool,
    /// Why allocations or frees of any rank are missing; `None` if none are. Missing frees make the
    /// peak too high and missing allocations make it too low, so it isn't a lower bound either.
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

/// Returns the highest peak of the run's files; `None` if the peak of any file is unknown, or if
/// the files are too large.
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
        // Despite its name, the field is the reason why events are missing.
        uncertain = uncertain.or(memory.at_least);
        let rank = file.header().rank.filter(|_| paths.len() > 1);
        highest = highest.max(Some((bytes, rank)));
    }
    highest.map(|(bytes, rank)| Peak { bytes, rank, at_least, uncertain })
}
