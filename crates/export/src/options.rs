//! What an export is asked for, and what it did.

use std::path::PathBuf;

use tprof_facts::{operators, steps};
use tprof_trace::{DamageList, Problem, RankFile, RunDir, SymbolSource};

use crate::error::ExportError;
use crate::slice::{OpenRank, Selection, Slice};

/// Where to write, and what.
#[derive(Clone, Default)]
pub struct Options<'a> {
    /// File or directory; each format has its own default. `-` is stdout.
    pub output: Option<PathBuf>,
    /// `output` is the file of the only rank, whatever its name, for formats of one file for each rank.
    pub output_is_file: bool,
    /// Replace what is there.
    pub force: bool,
    /// Which part of the run.
    pub slice: Slice,
    /// Most bytes of a file.
    pub max_bytes: Option<u64>,
    /// The run to compare with, for formats that compare.
    pub against: Option<&'a RunDir>,
    /// What a stack's number counts; by default time, where CPU samples were taken.
    pub weight: Option<Weight>,
    /// JSON in place of a page, for formats that have both.
    pub json: bool,
    /// So many ranks in one file of each table, for formats that are tables; none: each rank apart.
    pub files_of_ranks: Option<usize>,
    /// Only these tables, for formats that are data sets of tables; none: all.
    pub tables: Option<&'a [&'a str]>,
    /// Name of the run in tables; none: that of its directory.
    pub run_name: Option<&'a str>,
    /// Names addresses that the recorder left without one.
    pub symbols: Option<&'a dyn SymbolSource>,
}

impl Options<'_> {
    /// Whether a table is wanted.
    pub fn wants(&self, table: &str) -> bool {
        self.tables.is_none_or(|tables| tables.contains(&table))
    }

    /// Refuses a size for a format that cannot be cut.
    pub fn without_max_bytes(&self, format: &'static str) -> Result<(), ExportError> {
        match self.max_bytes {
            Some(_) => Err(ExportError::NoMaxSize { format }),
            None => Ok(()),
        }
    }
}

/// What an export did.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// What is there now; empty if it went to stdout.
    pub paths: Vec<PathBuf>,
    /// Rows of the trace that were written.
    pub events: u64,
    /// Rows that lie outside the slice, or did not fit.
    pub left_out: u64,
    /// What else a reader of the output should know.
    pub notes: Vec<String>,
    /// Ranks of which operators were written that were recorded for a part of the time only.
    pub operators_ended: u64,
    /// Whether steps of a rank that were written or chose what was are inferred.
    pub steps_inferred: bool,
    /// Of each file that was opened, its name, and what of it could not be read.
    pub unread: Vec<(String, DamageList)>,
}

impl Written {
    /// Opens a file to write something of it: what of it cannot be read becomes a note, and that a part is
    /// chosen by an estimate.
    pub fn open<'a>(
        &mut self,
        selection: &Selection<'a>,
        file: &'a RankFile,
    ) -> Result<OpenRank<'a>, ExportError> {
        let part = selection.open(file)?;
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        self.unread.push((name.into_owned(), part.trace.unread().clone()));
        self.steps_inferred |= part.by_inferred_steps;
        Ok(part)
    }

    /// As [`Self::open`], of which spans will be written: counts ranks with a part of their operators.
    pub fn open_spans<'a>(
        &mut self,
        selection: &Selection<'a>,
        file: &'a RankFile,
    ) -> Result<OpenRank<'a>, ExportError> {
        let part = self.open(selection, file)?;
        self.operators_ended += u64::from(operators::ended(&part.trace));
        Ok(part)
    }

    /// Adds what was done of other ranks.
    pub fn add(&mut self, other: Written) {
        self.paths.extend(other.paths);
        self.events += other.events;
        self.left_out += other.left_out;
        self.notes.extend(other.notes);
        self.operators_ended += other.operators_ended;
        self.steps_inferred |= other.steps_inferred;
        self.unread.extend(other.unread);
    }

    /// All that a reader of the output should know, each once.
    pub fn all_notes(&self) -> impl Iterator<Item = String> + use<> {
        let inferred = self.steps_inferred.then(|| steps::INFERRED.to_owned());
        let unread = self.unread.iter().flat_map(|(name, unread)| {
            let sentence = move |problem: Problem| {
                format!("{name}: {} (at byte {})", problem.what, problem.offset)
            };
            unread.problems().into_iter().map(sentence)
        });
        let all = self.notes.iter().cloned().chain(unread);
        let mut notes: Vec<String> = Vec::new();
        for note in all.chain(operators::note(self.operators_ended)).chain(inferred) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes.into_iter()
    }
}

/// What the number behind a stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Requested bytes.
    Bytes,
    /// Allocations; a realloc is one.
    Count,
    /// Time on a core, nanoseconds, from CPU samples.
    Cpu,
    /// Time off a core, waiting or ready, nanoseconds.
    Wait,
}

impl Weight {
    /// Whether it counts allocations; otherwise CPU samples.
    pub(crate) fn is_of_memory(self) -> bool {
        matches!(self, Weight::Bytes | Weight::Count)
    }

    /// What it counts.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Weight::Bytes => "allocated bytes",
            Weight::Count => "allocations",
            Weight::Cpu => "nanoseconds on a core",
            Weight::Wait => "nanoseconds off a core",
        }
    }
}
