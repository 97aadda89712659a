//! Sums up a rank's calls on files by file, operation and line.

use rustc_hash::FxHashSet;
use std::ops::Range;
use tprof_rank::RankTrace;
use tprof_trace::TraceFile;
use tprof_trace::model::{FileCalls, FileOperation, NameId};

use super::rates::{RateRows, Rates};
use super::steps::{StepFiles, StepSums};
use super::unseen::Unseen;
use super::uses::{Use, UseId, Uses, is_joint};

/// Sums of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSums {
    /// Number of calls.
    pub calls: u64,
    /// How many of them failed.
    pub failed: u64,
    /// Bytes that they transferred, or mapped.
    pub bytes: u64,
    /// Time in the calls, summed over threads, ns.
    pub ns: u64,
    /// Time of the longest call, ns.
    pub longest_ns: u64,
    /// Number of calls that began elsewhere in the file than the one before ended.
    pub jumps: u64,
    /// Bytes that were read from storage, of calls for which that is known.
    pub storage_bytes: u64,
    /// Bytes of the calls for which that is known.
    pub known_bytes: u64,
    /// Number of files; `None` if the recording doesn't name each of them.
    pub files: Option<u64>,
}

impl FileSums {
    pub(super) fn add(&mut self, row: &FileCalls) {
        self.calls += row.calls;
        self.failed += row.failed;
        self.bytes = self.bytes.saturating_add(row.bytes);
        self.ns = self.ns.saturating_add(row.busy_ns);
        self.longest_ns = self.longest_ns.max(row.longest_ns);
        self.jumps += row.jumps;
        if let Some(bytes) = row.storage_bytes {
            self.storage_bytes = self.storage_bytes.saturating_add(bytes);
            let of = if row.operation == FileOperation::Fault { bytes } else { row.bytes };
            self.known_bytes = self.known_bytes.saturating_add(of);
        }
    }

    /// Adds the calls of another sum. The number of files isn't known then.
    pub fn join(&mut self, other: &FileSums) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ns = self.ns.saturating_add(other.ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.jumps += other.jumps;
        self.storage_bytes = self.storage_bytes.saturating_add(other.storage_bytes);
        self.known_bytes = self.known_bytes.saturating_add(other.known_bytes);
        self.files = None;
    }

    /// The share of the bytes that came from the page cache; `None` if it is unknown.
    pub fn cached_share(&self) -> Option<f64> {
        (self.known_bytes > 0).then(|| {
            1.0 - self.storage_bytes.min(self.known_bytes) as f64 / self.known_bytes as f64
        })
    }

    /// Bytes per second of the time in the calls; `None` without bytes or time.
    pub fn rate(&self) -> Option<f64> {
        (self.bytes > 0 && self.ns > 0).then(|| self.bytes as f64 * 1e9 / self.ns as f64)
    }

    /// Mean bytes of a call that didn't fail.
    pub fn bytes_per_call(&self) -> Option<f64> {
        let done = self.calls - self.failed.min(self.calls);
        (self.bytes > 0 && done > 0).then(|| self.bytes as f64 / done as f64)
    }
}

/// Sums of calls by use, those with the most time first.
pub type SumsByUse = Vec<(Use, FileSums)>;

/// Sums up calls that are added one by one.
pub(super) struct Summing<'a> {
    file: &'a TraceFile,
    sums: Vec<(FileSums, FxHashSet<NameId>)>,
}

impl<'a> Summing<'a> {
    pub fn new(file: &'a TraceFile) -> Summing<'a> {
        Summing { file, sums: Vec::new() }
    }

    pub fn add(&mut self, row: &FileCalls, of: UseId) {
        let of = of as usize;
        if self.sums.len() <= of {
            self.sums.resize_with(of + 1, Default::default);
        }
        let (sum, files) = &mut self.sums[of];
        sum.add(row);
        files.insert(row.file);
    }

    pub fn finish(self, uses: &[Use]) -> SumsByUse {
        let mut sums: SumsByUse = Vec::new();
        for (at, (mut sum, files)) in self.sums.into_iter().enumerate() {
            if sum.calls == 0 && sum.storage_bytes == 0 {
                continue;
            }
            let is_each_named = !files.iter().any(|name| is_joint(self.file.name(*name)));
            sum.files = is_each_named.then_some(files.len() as u64);
            sums.push((uses[at].clone(), sum));
        }
        sums.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then_with(|| a.0.cmp(&b.0)));
        sums
    }
}

/// A rank's calls on files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankFiles {
    /// The sums of the calls.
    pub sums: SumsByUse,
    /// Whether calls on files were recorded.
    pub is_recorded: bool,
    /// What the kernel counted for the processes, and what of it no recorded call transferred.
    pub unseen: Unseen,
    /// How fast each file system was.
    pub rates: Vec<Rates>,
    /// What each step transferred; empty without steps.
    pub steps: Vec<StepFiles>,
}

impl RankFiles {
    /// Sums up the calls of a rank that began in a range of times, ns on the file's clock.
    pub fn of(rank: &RankTrace<'_>, times: Range<u64>) -> RankFiles {
        let file = rank.file;
        let (mut uses, mut summing) = (Uses::new(file), Summing::new(file));
        let (mut rates, mut steps) = (RateRows::default(), StepSums::of(rank));
        let mut is_recorded = false;
        uses.each(|row, of| {
            is_recorded = true;
            if times.contains(&row.start_ns) {
                summing.add(row, of);
                rates.add(row);
                steps.add(row);
            }
        });
        RankFiles {
            sums: summing.finish(&uses.finish()),
            is_recorded,
            unseen: Unseen::of(file),
            rates: rates.finish(file),
            steps: steps.finish(),
        }
    }
}
