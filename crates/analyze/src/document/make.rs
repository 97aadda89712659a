//! From a run's files to a document: rank by rank, on all cores.

use std::path::Path;

use tprof_trace::{Problem, RankFile, RunDir, SymbolSource, TraceError, TraceFile};

use super::{Document, Table};
use crate::clock::Clock;
use crate::completeness::{Completeness, Seen};
use crate::ranks;
use crate::summary::{AnalyzeError, Run, Zero, file_name, pick, run_of, unclosed};

/// What a person asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only this rank.
    pub rank: Option<u32>,
    /// As Holistic Trace Analysis reads a trace: see [`crate::rank::RankTrace::load_as`].
    pub hta: bool,
    /// Only operators whose name contains this, where a report is about operators.
    pub operator: Option<String>,
    /// Only within this range, where a report can be cut: text that its name contains,
    /// and `:N` for the Nth such range from 0.
    pub within: Option<String>,
    /// Long tables too that a person does not see ([`super::View::Data`]).
    pub data: bool,
}

/// Makes a document of a run directory or one of its files; addresses without a
/// name are looked up in the symbols.
pub type Make = fn(&Path, &Options, Option<&dyn SymbolSource>) -> Result<Document, AnalyzeError>;

/// A kind of report.
pub struct DocumentKind {
    /// Name, as typed.
    pub name: &'static str,
    /// What it shows, in a few words for `--help`.
    pub about: &'static str,
    /// Makes it.
    pub make: Make,
}

/// Which rank file is being analysed.
#[derive(Clone, Debug)]
pub struct RankAt {
    /// Rank; `None` for a launcher.
    pub rank: Option<u32>,
    /// Name of its rows: `rank 3`, `rank 3.1`, `launcher HOST`.
    pub label: String,
    /// File name.
    pub file: String,
    /// Its times as times since the run began.
    pub clock: Clock,
}

/// What an analysis made of a run.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The tables, the one that answers the question first.
    pub tables: Vec<Table>,
    /// What a reader should know, in sentences without a full stop.
    pub notes: Vec<String>,
}

/// An analysis: what it takes from each rank, and what it makes of all of them.
pub trait Analysis: Sync {
    /// Name, as typed.
    const KIND: &'static str;
    /// What is kept of a rank. Small: there may be thousands.
    type Part: Send;

    /// Reads a rank. What of its tables cannot be read goes to `problems`.
    fn rank(
        &self,
        trace: &TraceFile,
        at: &RankAt,
        options: &Options,
        problems: &mut Vec<Problem>,
    ) -> Self::Part;

    /// Joins the ranks, which come in their order.
    fn join(&self, parts: Vec<(RankAt, Self::Part)>, options: &Options) -> Body;
}

struct Read<P> {
    at: RankAt,
    part: P,
    seen: Seen,
    problems: Vec<String>,
    last_ns: u64,
}

/// Makes a document of a run directory or one of its files.
pub fn make<A: Analysis>(
    analysis: &A,
    path: &Path,
    options: &Options,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Document, AnalyzeError> {
    let read = make_parts(analysis, path, options, symbols)?;
    let Body { tables, notes } = analysis.join(read.parts, options);
    let Parts { run, completeness, problems, .. } = read;
    Ok(Document { kind: A::KIND, run, completeness, problems, notes, tables })
}

/// What an analysis took from the ranks of a run, not yet joined.
pub(crate) struct Parts<P> {
    pub run: Run,
    pub completeness: Completeness,
    pub problems: Vec<String>,
    pub parts: Vec<(RankAt, P)>,
}

/// Reads the ranks of a run directory, or one of its files.
pub(crate) fn make_parts<A: Analysis>(
    analysis: &A,
    path: &Path,
    options: &Options,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Parts<A::Part>, AnalyzeError> {
    let dir = RunDir::open(path)?;
    let files = pick(&dir, path, options.rank)?;
    let zero = Zero::of(&dir);
    let mut problems: Vec<String> = dir.problems().iter().map(|p| p.what.clone()).collect();
    let (mut parts, mut seen, mut last_ns) = (Vec::new(), Vec::new(), None);
    let mut failure = None;
    for result in ranks::each(&files, |file| read(analysis, file, &dir, &zero, options, symbols)) {
        match result {
            Ok(mut read) => {
                problems.append(&mut read.problems);
                seen.push(read.seen);
                last_ns = last_ns.max(Some(read.last_ns));
                parts.push((read.at, read.part));
            }
            Err(error) => {
                problems.push(error.to_string());
                failure = Some(error);
            }
        }
    }
    match failure {
        Some(error) if parts.is_empty() => return Err(error.into()),
        _ => {}
    }
    let infos = dir.infos();
    let finished = !infos.is_empty() && infos.iter().all(|info| info.finished);
    let whole = finished && problems.is_empty();
    let in_part = options.rank.is_some() || path.is_file();
    Ok(Parts {
        run: run_of(path, infos, finished, last_ns, &zero),
        completeness: Completeness::of(infos, finished && !in_part, whole, seen),
        problems,
        parts,
    })
}

fn read<A: Analysis>(
    analysis: &A,
    file: &&RankFile,
    dir: &RunDir,
    zero: &Zero,
    options: &Options,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Read<A::Part>, TraceError> {
    let name = file_name(&file.path);
    let mut trace = TraceFile::open(&file.path)?;
    if let Some(symbols) = symbols {
        trace.name_missing(symbols);
    }
    let clock = zero.clock(&trace, dir, &name);
    let at = RankAt { rank: file.rank, label: file.label.to_string(), file: name, clock };
    let mut found = Vec::new();
    let part = analysis.rank(&trace, &at, options, &mut found);
    let problem = |p: &Problem| format!("{}: {} (at byte {})", at.file, p.what, p.offset);
    let mut problems: Vec<String> = trace.problems().iter().chain(&found).map(problem).collect();
    problems.extend(unclosed(&trace, &at.file, dir));
    let last_ns = clock.since_start(trace.last_ns());
    Ok(Read { seen: Seen::of(&trace), at, part, problems, last_ns })
}
