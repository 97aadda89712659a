//! Prepares a rank's calls on files for the findings: those in the judged time, divided into calls of
//! the thread that drives the job and calls of others.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_trace::TraceFile;
use tprof_trace::model::{FileCalls, FileKind, FileOperation, ThreadIndex};

use super::again::{ReadAgain, Reread};
use super::rates::{RateRows, Rates};
use super::sums::{FileSums, Summing, SumsByUse};
use super::uses::{Use, Uses};
use crate::host::CodeLine;

/// A thread counts as a reader if it reads for at least this share of the time of the thread that
/// reads most.
const READS_MUCH: f64 = 0.1;

/// A rank's calls on files in the time that findings judge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgedFiles {
    /// Calls of the threads that drive the job.
    pub driving: SumsByUse,
    /// Calls of other threads and processes.
    pub others: SumsByUse,
    /// All recorded calls, also those outside of the judged time: what `tprof report io` lists.
    pub recorded: SumsByUse,
    /// Number of other threads that share the reading of files.
    pub other_readers: u64,
    /// How fast each file system was.
    pub rates: Vec<Rates>,
    /// What was read from storage more than once in the whole recording, by the file or group of
    /// files.
    pub again: BTreeMap<String, ReadAgain>,
}

impl JudgedFiles {
    /// Measures a rank's file; `None` if calls on files were not recorded. `window` is the judged
    /// time.
    pub fn of(
        file: &TraceFile,
        window: &Cover,
        is_driving: impl Fn(ThreadIndex) -> bool,
    ) -> Option<JudgedFiles> {
        let mut uses = Uses::new(file);
        let [mut driving, mut others, mut recorded] = [(); 3].map(|()| Summing::new(file));
        let (mut rates, mut again) = (RateRows::default(), Reread::default());
        let mut readers: FxHashMap<ThreadIndex, u64> = FxHashMap::default();
        let mut is_recorded = false;
        uses.each(|row, of| {
            is_recorded = true;
            let drives = is_driving(row.thread);
            again.add(row, drives);
            recorded.add(row, of);
            if !window.touches(Interval::new(row.start_ns, row.start_ns + 1)) {
                return;
            }
            rates.add(row);
            if drives {
                driving.add(row, of);
            } else {
                others.add(row, of);
                if is_read_of_file(row) {
                    *readers.entry(row.thread).or_default() += row.busy_ns;
                }
            }
        });
        let most_ns = readers.values().max().copied().unwrap_or(0);
        let reads_much = |ns: &&u64| **ns as f64 >= READS_MUCH * most_ns as f64;
        let other_readers = readers.values().filter(reads_much).count() as u64;
        let again = again.finish(file, |name| uses.shown(name));
        let uses = uses.finish();
        is_recorded.then(|| JudgedFiles {
            driving: driving.finish(&uses),
            others: others.finish(&uses),
            recorded: recorded.finish(&uses),
            other_readers,
            rates: rates.finish(file),
            again,
        })
    }

    /// Sums up all recorded calls of an operation on a file, also those outside of the judged time.
    pub fn recorded_on(&self, file: &str, operation: FileOperation) -> FileSums {
        let is_of = |of: &Use| of.file == file && of.operation == operation;
        let mut all = FileSums::default();
        self.recorded.iter().filter(|(of, _)| is_of(of)).for_each(|(_, sum)| all.join(sum));
        all
    }

    /// Returns what was read, with the time to open and close the files, by the file or group of
    /// files: those with most time first.
    pub fn data_sets(&self) -> Vec<DataSet> {
        let mut sets: BTreeMap<&str, DataSet> = BTreeMap::new();
        for (drives, sums) in [(true, &self.driving), (false, &self.others)] {
            for (of, sum) in sums.iter().filter(|(of, _)| of.kind == FileKind::File) {
                let set = sets.entry(&of.file).or_default();
                set.add(of.operation, sum, drives);
                if of.operation == FileOperation::Read && !of.file_system.is_empty() {
                    set.file_system.clone_from(&of.file_system);
                }
                // A line that opens may write.
                let reads = of.operation == FileOperation::Read;
                if let Some(line) = of.line.as_ref().filter(|_| reads) {
                    *set.lines.entry(line.clone()).or_default() += sum.ns;
                }
            }
        }
        let named = |(file, set): (&str, DataSet)| DataSet { file: file.to_owned(), ..set };
        let mut sets: Vec<DataSet> = sets.into_iter().map(named).collect();
        sets.retain(|set| set.reads.calls > 0);
        sets.sort_by_key(|set| std::cmp::Reverse(set.read_time.plus(set.open_time).all_ns()));
        sets
    }
}

fn is_read_of_file(row: &FileCalls) -> bool {
    row.operation == FileOperation::Read && row.kind == FileKind::File
}

/// Time in calls, divided into that of the thread that drives the job and that of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderTime {
    /// Time of threads that drive the job, ns.
    pub driving_ns: u64,
    /// Time of other threads, ns.
    pub others_ns: u64,
}

impl ReaderTime {
    /// Adds another time.
    pub fn plus(self, other: ReaderTime) -> ReaderTime {
        ReaderTime {
            driving_ns: self.driving_ns.saturating_add(other.driving_ns),
            others_ns: self.others_ns.saturating_add(other.others_ns),
        }
    }

    /// Returns this share of the time.
    pub fn times(self, share: f64) -> ReaderTime {
        let part = |ns: u64| (ns as f64 * share) as u64;
        ReaderTime { driving_ns: part(self.driving_ns), others_ns: part(self.others_ns) }
    }

    /// Returns the time of all threads, ns.
    pub fn all_ns(self) -> u64 {
        self.driving_ns.saturating_add(self.others_ns)
    }
}

/// A file, or files that are listed together, from which a job read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataSet {
    /// Path of the file, or `DIRECTORY/*.EXTENSION` for several.
    pub file: String,
    /// The file system; empty if it is unknown.
    pub file_system: String,
    /// How often a file was opened.
    pub opens: u64,
    /// Sums of the calls that read from it.
    pub reads: FileSums,
    /// Time in reads.
    pub read_time: ReaderTime,
    /// Time in calls that open and close.
    pub open_time: ReaderTime,
    lines: BTreeMap<CodeLine, u64>,
}

impl DataSet {
    fn add(&mut self, operation: FileOperation, sum: &FileSums, drives: bool) {
        match operation {
            FileOperation::Open => self.opens += sum.calls - sum.failed.min(sum.calls),
            FileOperation::Read => self.reads.join(sum),
            FileOperation::Close => {}
            _ => return,
        }
        let time = match operation {
            FileOperation::Read => &mut self.read_time,
            _ => &mut self.open_time,
        };
        let ns = if drives { &mut time.driving_ns } else { &mut time.others_ns };
        *ns = ns.saturating_add(sum.ns);
    }

    /// The line that reads for the longest time; `None` if it is unknown.
    pub fn line(&self) -> Option<&CodeLine> {
        self.lines.iter().max_by_key(|(_, ns)| **ns).map(|(line, _)| line)
    }
}
