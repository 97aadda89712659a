//! Defines the request for an export, and its result.

use std::path::PathBuf;

use tprof_facts::thinned::{self, ThinnedPart};
use tprof_facts::{labels, operators, steps};
use tprof_trace::{DamageList, Problem, RankFile, RunDir, SymbolSource};

use crate::error::ExportError;
use crate::slice::{OpenRank, Selection, Slice};

/// Options of an export: which data to write, and where.
#[derive(Clone, Default)]
pub struct Options<'a> {
    /// File or directory; each format has its own default. `-` is stdout.
    pub output: Option<PathBuf>,
    /// For formats with one file per rank: whether `output` is the file of the only rank, whatever
    /// its name is.
    pub output_is_file: bool,
    /// Whether to replace existing files.
    pub force: bool,
    /// Part of the run to export.
    pub slice: Slice,
    /// Largest size of an output file, in bytes.
    pub max_bytes: Option<u64>,
    /// The baseline, for formats that compare two runs.
    pub against: Option<&'a RunDir>,
    /// The quantity that a stack's number counts. The default is time if there are CPU samples,
    /// otherwise bytes.
    pub weight: Option<Weight>,
    /// Whether to write JSON instead of a page, for formats that have both.
    pub json: bool,
    /// For formats that are tables: number of ranks that share one file of each table. `None` for
    /// one file per rank.
    pub files_of_ranks: Option<usize>,
    /// For formats that are data sets of tables: the tables to write. `None` for all.
    pub tables: Option<&'a [&'a str]>,
    /// Name of the run in tables; `None` for the name of its directory.
    pub run_name: Option<&'a str>,
    /// Looks up names for addresses that the recorder could not name.
    pub symbols: Option<&'a dyn SymbolSource>,
}

impl Options<'_> {
    /// Whether a table was requested.
    pub fn wants(&self, table: &str) -> bool {
        self.tables.is_none_or(|tables| tables.contains(&table))
    }

    /// Returns an error if a size limit was requested for a format that cannot be cut.
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
    /// Further notes for people who read the output.
    pub notes: Vec<String>,
    /// Number of written ranks whose operators were recorded only for a part of the time, by
    /// `--operators auto`.
    pub operators_ended: u64,
    /// What the opened files recorded less of from some moment on.
    pub thinned: Vec<thinned::OfRank>,
    /// Whether the output contains inferred steps, or inferred steps selected its content.
    pub steps_inferred: bool,
    /// Name of each opened file, with the parts that could not be read.
    pub unread: Vec<(String, DamageList)>,
}

impl Written {
    /// Opens a file to export from. Adds a note for each part that cannot be read, and a note if
    /// inferred steps select the slice.
    pub fn open<'a>(
        &mut self,
        selection: &Selection<'a>,
        file: &'a RankFile,
    ) -> Result<OpenRank<'a>, ExportError> {
        let part = selection.open(file)?;
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        self.unread.push((name.into_owned(), part.trace.unread().clone()));
        self.steps_inferred |= part.by_inferred_steps;
        self.thinned.push(thinned::OfRank::new(&labels::rank(file), &part.trace));
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
        let by_budget = self.thinned.last().is_some_and(thinned::OfRank::lacks_operators);
        self.operators_ended += u64::from(!by_budget && operators::ended(&part.trace));
        Ok(part)
    }

    /// Adds the result of exporting other ranks.
    pub fn add(&mut self, other: Written) {
        self.paths.extend(other.paths);
        self.events += other.events;
        self.left_out += other.left_out;
        self.notes.extend(other.notes);
        self.operators_ended += other.operators_ended;
        self.thinned.extend(other.thinned);
        self.steps_inferred |= other.steps_inferred;
        self.unread.extend(other.unread);
    }

    /// Returns all notes for people who read the output, each note once.
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
        let thinned = thinned::notes(&self.thinned, &|part| part != ThinnedPart::Rest);
        let ended = operators::note(self.operators_ended);
        for note in all.chain(ended).chain(thinned).chain(inferred) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes.into_iter()
    }
}

/// What the number of a stack counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Requested bytes of allocations.
    Bytes,
    /// Number of allocations. A `realloc` counts as one.
    Count,
    /// Time on a core, nanoseconds, from CPU samples.
    Cpu,
    /// Time off a core, waiting or ready, nanoseconds.
    Wait,
    /// Samples of GPU instructions, below kernels.
    Stalls,
}

impl Weight {
    /// Whether the unit is about allocations.
    pub(crate) fn is_of_memory(self) -> bool {
        matches!(self, Weight::Bytes | Weight::Count)
    }

    /// Describes the quantity that the unit counts.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Weight::Bytes => "allocated bytes",
            Weight::Count => "allocations",
            Weight::Cpu => "nanoseconds on a core",
            Weight::Wait => "nanoseconds off a core",
            Weight::Stalls => "samples of GPU instructions",
        }
    }
}
