//! The request for an export, and its result.

use std::path::PathBuf;

use tprof_facts::{operators, steps};
use tprof_trace::{DamageList, Problem, RankFile, RunDir, SymbolSource};

use crate::error::ExportError;
use crate::slice::{OpenRank, Selection, Slice};

/// Options of an export: where to write, and what.
#[derive(Clone, Default)]
pub struct Options<'a> {
    /// File or directory; each format has its own default. `-` is stdout.
    pub output: Option<PathBuf>,
    /// Whether `output` is the file of the only rank, whatever its name, for formats with one file
    /// per rank.
    pub output_is_file: bool,
    /// Whether to replace existing files.
    pub force: bool,
    /// Part of the run to export.
    pub slice: Slice,
    /// Largest size of a file, in bytes.
    pub max_bytes: Option<u64>,
    /// The run to compare with, for formats that compare.
    pub against: Option<&'a RunDir>,
    /// The quantity that a stack's number counts; by default time, if there are CPU samples.
    pub weight: Option<Weight>,
    /// Whether to write JSON instead of a page, for formats that have both.
    pub json: bool,
    /// Number of ranks in one file of each table, for formats that are tables; `None` for one file
    /// per rank.
    pub files_of_ranks: Option<usize>,
    /// Tables to write, for formats that are data sets of tables; `None` for all.
    pub tables: Option<&'a [&'a str]>,
    /// Name of the run in tables; `None` for the name of its directory.
    pub run_name: Option<&'a str>,
    /// Names addresses that the recorder left without a name.
    pub symbols: Option<&'a dyn SymbolSource>,
}

impl Options<'_> {
    /// Whether a table is wanted.
    pub fn wants(&self, table: &str) -> bool {
        self.tables.is_none_or(|tables| tables.contains(&table))
    }

    /// Refuses a size limit for a format that cannot be cut.
    pub fn without_max_bytes(&self, format: &'static str) -> Result<(), ExportError> {
        match self.max_bytes {
            Some(_) => Err(ExportError::NoMaxSize { format }),
            None => Ok(()),
        }
    }
}

/// Result of an export.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Paths that were written; empty if the output went to stdout.
    pub paths: Vec<PathBuf>,
    /// Number of rows of the trace that were written.
    pub events: u64,
    /// Number of rows that lie outside the slice, or did not fit.
    pub left_out: u64,
    /// Further notes for the reader of the output.
    pub notes: Vec<String>,
    /// Number of written ranks whose operators were recorded only for a part of the time.
    pub operators_ended: u64,
    /// Whether the output contains inferred steps, or was selected by them.
    pub steps_inferred: bool,
    /// Names of opened files, and what could not be read in each.
    pub unread: Vec<(String, DamageList)>,
}

impl Written {
    /// Opens a file to export from. Parts that cannot be read become notes, and so does a slice by
    /// inferred steps.
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

    /// Does the same as [`Self::open`] for an export of spans: it also counts the rank if its
    /// operators were recorded only for a part of the time.
    pub fn open_spans<'a>(
        &mut self,
        selection: &Selection<'a>,
        file: &'a RankFile,
    ) -> Result<OpenRank<'a>, ExportError> {
        let part = self.open(selection, file)?;
        self.operators_ended += u64::from(operators::ended(&part.trace));
        Ok(part)
    }

    /// Adds the result of other ranks.
    pub fn add(&mut self, other: Written) {
        self.paths.extend(other.paths);
        self.events += other.events;
        self.left_out += other.left_out;
        self.notes.extend(other.notes);
        self.operators_ended += other.operators_ended;
        self.steps_inferred |= other.steps_inferred;
        self.unread.extend(other.unread);
    }

    /// Returns all notes for the reader of the output, each once.
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

/// Unit of the number behind a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Requested bytes of allocations.
    Bytes,
    /// Number of allocations; a realloc is one.
    Count,
    /// Time on a core, nanoseconds, from CPU samples.
    Cpu,
    /// Time off a core, waiting or ready, nanoseconds.
    Wait,
}

impl Weight {
    /// Whether the unit counts allocations. All other units come from CPU samples.
    pub(crate) fn is_of_memory(self) -> bool {
        matches!(self, Weight::Bytes | Weight::Count)
    }

    /// Describes the counted quantity.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Weight::Bytes => "allocated bytes",
            Weight::Count => "allocations",
            Weight::Cpu => "nanoseconds on a core",
            Weight::Wait => "nanoseconds off a core",
        }
    }
}
