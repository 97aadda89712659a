//! Sums up a rank's calls on files by file, operation and line.
//!
//! Only some calls have a stack: of each kind one in 22 ms of a thread's time, and long ones. A call without
//! one counts for the line from which the same thread made the same kind of call on the same file
//! (or a file that is listed together with it) before, or else for the first one afterwards.

use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use tprof_trace::TraceFile;
use tprof_trace::model::{
    FileCalls, FileKind, FileOperation, NameId, ProcessIndex, StackId, ThreadIndex,
};

use super::unseen::Unseen;
use crate::host::CodeLine;
use crate::host::code_line::CodeLines;

/// From this many files of a directory with one extension on, they are listed together.
const MANY: usize = 16;

/// What calls were made on: the key of a sum.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Use {
    /// What the file is.
    pub kind: FileKind,
    /// Path of the file, or of several: `DIRECTORY/*.EXTENSION`; or a socket's peer. Empty if it is
    /// unknown.
    pub file: String,
    /// What the calls did.
    pub operation: FileOperation,
    /// The line of the program that made them; `None` if no call had a stack with a line.
    pub line: Option<CodeLine>,
}

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

/// A rank's calls on files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankFiles {
    /// The sums, those with the most time first.
    pub sums: Vec<(Use, FileSums)>,
    /// Whether calls on files were recorded.
    pub is_recorded: bool,
    /// What the kernel counted for the processes, and what of it no recorded call transferred.
    pub unseen: Unseen,
}

/// What calls of one thread that probably come from one line have in common.
type Alike = (ProcessIndex, ThreadIndex, String, FileOperation);

impl RankFiles {
    /// Sums up the calls of a rank's file that began in a range of times, ns on the file's clock.
    pub fn of(file: &TraceFile, times: Range<u64>) -> RankFiles {
        let rows = || file.blocks::<FileCalls>().flatten();
        let in_time = |row: &FileCalls| times.contains(&row.start_ns);
        let mut groups = Groups::new(file);
        for row in rows().filter(in_time).filter(|row| row.kind == FileKind::File) {
            groups.add(row.file);
        }
        let mut is_recorded = false;
        let mut first: FxHashMap<Alike, StackId> = FxHashMap::default();
        for row in rows() {
            is_recorded = true;
            if row.stack != 0 {
                first.entry(groups.alike(&row)).or_insert(row.stack);
            }
        }
        let mut lines = CodeLines::new(file);
        let mut known: FxHashMap<(ProcessIndex, StackId), Option<CodeLine>> = FxHashMap::default();
        let mut last = first;
        let mut sums: FxHashMap<Use, FileSums> = FxHashMap::default();
        let mut members: FxHashMap<Use, FxHashSet<NameId>> = FxHashMap::default();
        for row in rows().filter(in_time) {
            let alike = groups.alike(&row);
            let file = alike.2.clone();
            let stack = match row.stack {
                0 => last.get(&alike).copied().unwrap_or(0),
                stack => {
                    last.insert(alike, stack);
                    stack
                }
            };
            let line = known
                .entry((row.process, stack))
                .or_insert_with(|| lines.of(row.process, stack))
                .clone();
            let of = Use { kind: row.kind, file, operation: row.operation, line };
            members.entry(of.clone()).or_default().insert(row.file);
            sums.entry(of).or_default().add(&row);
        }
        for (of, sum) in &mut sums {
            let names = members.get(of);
            let is_each_named =
                names.is_some_and(|names| names.iter().all(|name| !is_joint(file.name(*name))));
            sum.files = names.map(|names| names.len() as u64).filter(|_| is_each_named);
        }
        let mut sums: Vec<(Use, FileSums)> = sums.into_iter().collect();
        sums.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then_with(|| a.0.cmp(&b.0)));
        RankFiles { sums, is_recorded, unseen: Unseen::of(file) }
    }

    /// The time in calls of an operation on files, pipes or sockets of these kinds, ns.
    pub fn time_ns(&self, is: impl Fn(&Use) -> bool) -> u64 {
        self.sums.iter().filter(|(of, _)| is(of)).map(|(_, sum)| sum.ns).sum()
    }
}

/// Whether the recording names several files so.
fn is_joint(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.starts_with('*'))
}

/// Which files are listed together.
struct Groups<'a> {
    file: &'a TraceFile,
    seen: FxHashSet<NameId>,
    /// Number of files by directory and extension.
    sizes: FxHashMap<String, usize>,
}

impl<'a> Groups<'a> {
    fn new(file: &'a TraceFile) -> Groups<'a> {
        Groups { file, seen: FxHashSet::default(), sizes: FxHashMap::default() }
    }

    fn add(&mut self, name: NameId) {
        if self.seen.insert(name) {
            let text = self.file.name(name);
            let weight = if is_joint(text) { MANY } else { 1 };
            *self.sizes.entry(group(text)).or_default() += weight;
        }
    }

    fn alike(&self, row: &FileCalls) -> Alike {
        (row.process, row.thread, self.shown(row.file, row.kind), row.operation)
    }

    fn shown(&self, name: NameId, kind: FileKind) -> String {
        let text = self.file.name(name);
        if kind != FileKind::File {
            return text.to_owned();
        }
        let group = group(text);
        match self.sizes.get(&group) {
            Some(size) if *size >= MANY => group,
            _ => text.to_owned(),
        }
    }
}

/// The name of all files of a directory with one extension.
fn group(path: &str) -> String {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let slash = if path.contains('/') { "/" } else { "" };
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => format!("{directory}{slash}*.{extension}"),
        _ => format!("{directory}{slash}*"),
    }
}
