//! Finds files that were read from storage more than once.
//!
//! A file that a program opens and reads without a jump is read from its beginning on. So the bytes
//! of the largest of its readings are all that there was to read, and what the kernel read from
//! storage beyond them was read again. Files in which a program jumps are left out, as their readings
//! may be of different parts, and files that it writes, as their content may be new. A file that is
//! opened once isn't read again: threads or children may share the opening.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{FileCalls, FileKind, FileOperation, NameId, ThreadIndex};

use super::judged::ReaderTime;
use super::uses::is_joint;

/// Files that are listed together, of which some were read more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAgain {
    /// Number of files that were read without jumps, and whose reads from storage are known.
    pub files: u64,
    /// How often they were opened.
    pub opens: u64,
    /// Bytes that were read from them.
    pub bytes: u64,
    /// Bytes of the largest reading of each.
    pub distinct_bytes: u64,
    /// The most that can have been read again: for each opening after the first, the largest reading.
    pub most_again_bytes: u64,
    /// Bytes that were read from storage for them, without the reads for which that is unknown.
    pub storage_bytes: u64,
    /// Time in these reads.
    pub time: ReaderTime,
}

impl ReadAgain {
    /// Bytes that were read from storage though they had been read before. Each opening after the
    /// first can have read at most as much as the largest.
    pub fn again_bytes(&self) -> u64 {
        self.storage_bytes.saturating_sub(self.distinct_bytes).min(self.most_again_bytes)
    }

    /// The share of the bytes read that these are.
    pub fn again_share(&self) -> f64 {
        self.again_bytes() as f64 / self.bytes.max(1) as f64
    }
}

/// The readings of one file.
#[derive(Default)]
struct Readings {
    sum: ReadAgain,
    /// Bytes of the reading that each thread is at.
    current: FxHashMap<ThreadIndex, u64>,
    /// Whether the program jumped in the file.
    jumps: bool,
    /// Whether the program wrote to the file, so that its content may be new.
    is_written: bool,
    /// Whether the bytes from storage are known of any of its reads.
    is_known: bool,
}

/// Collects the rows of each file.
#[derive(Default)]
pub(super) struct Reread(FxHashMap<NameId, Readings>);

impl Reread {
    pub fn add(&mut self, row: &FileCalls, is_driving: bool) {
        if row.kind != FileKind::File || row.file == NameId(0) {
            return;
        }
        let readings = self.0.entry(row.file).or_default();
        match row.operation {
            FileOperation::Open => {
                readings.sum.opens += row.calls - row.failed.min(row.calls);
                readings.current.insert(row.thread, 0);
            }
            FileOperation::Read => {
                readings.jumps |= row.jumps > 0;
                readings.is_known |= row.storage_bytes.is_some();
                let current = readings.current.entry(row.thread).or_default();
                *current += row.bytes;
                let sum = &mut readings.sum;
                sum.distinct_bytes = sum.distinct_bytes.max(*current);
                sum.bytes += row.bytes;
                sum.storage_bytes += row.storage_bytes.unwrap_or(0);
                let time = &mut sum.time;
                let ns = if is_driving { &mut time.driving_ns } else { &mut time.others_ns };
                *ns += row.busy_ns;
            }
            FileOperation::Write => readings.is_written = true,
            _ => {}
        }
    }

    /// Adds up the files that `shown` lists together.
    pub fn finish(
        self,
        file: &TraceFile,
        shown: impl Fn(NameId) -> Option<String>,
    ) -> BTreeMap<String, ReadAgain> {
        let mut sums: BTreeMap<String, ReadAgain> = BTreeMap::new();
        for (name, readings) in self.0 {
            let of = readings.sum;
            let is_left_out = readings.jumps || readings.is_written || !readings.is_known;
            if is_left_out || is_joint(file.name(name)) {
                continue;
            }
            let Some(shown) = shown(name) else { continue };
            let sum = sums.entry(shown).or_default();
            sum.files += 1;
            sum.opens += of.opens;
            sum.bytes += of.bytes;
            sum.distinct_bytes += of.distinct_bytes;
            sum.most_again_bytes += of.distinct_bytes * of.opens.saturating_sub(1);
            sum.storage_bytes += of.storage_bytes;
            sum.time = sum.time.plus(of.time);
        }
        sums
    }
}
