//! Reads the wall time of driving threads from the tables of `tprof report host`.

use std::path::Path;

use tprof_analyze::{AnalyzeError, KINDS, ReportRequest, make_reports};
use tprof_document::{Cell, Document, Options as ReportOptions, TableRow, TimeSelection};
use tprof_export::{Options, Selection, Slice};
use tprof_trace::live::is_collector_alive;
use tprof_trace::{RankFile, RunDir, SymbolSource};

/// Wall time of one part of a rank's driving thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostTime {
    /// Number of the rank.
    pub rank: u32,
    /// `judged`, `step` or `start_up`.
    pub section: &'static str,
    /// Number of the step, if the row is about a step.
    pub step: Option<u64>,
    /// Key of the part, as in `report host --json`.
    pub part: String,
    /// Wall time of the part, nanoseconds.
    pub wall_ns: u64,
    /// Half the width of the 95 % interval, nanoseconds.
    pub error_ns: Option<u64>,
    /// The function with most of the time; empty if none is known.
    pub function: String,
    /// File of the function; empty if unknown.
    pub file: String,
    /// Line in the file.
    pub line: Option<u64>,
}

/// Reads the times of all ranks in the slice of a run. Also returns the problems with files that
/// could not be read. If the run has no samples, the list of times is empty.
///
/// # Errors
///
/// Returns the same errors as [`make_reports`].
pub(crate) fn read(
    path: &Path,
    slice: &Slice,
    symbols: Option<&dyn SymbolSource>,
) -> Result<(Vec<HostTime>, Vec<String>), AnalyzeError> {
    let kinds: Vec<_> = KINDS.iter().filter(|kind| kind.name == "host").collect();
    let wanted = ReportRequest { reports: &[], kinds: &kinds };
    let is_running = Some(is_collector_alive as _);
    let Slice { from_ns, to_ns, steps_from, cycle, .. } = *slice;
    let steps = slice.steps.as_ref().map(|steps| steps.ranges().to_vec());
    let cut = TimeSelection { from_ns, to_ns, steps };
    let options = ReportOptions { steps_from, cycle, cut, is_running, ..ReportOptions::default() };
    let made = make_reports(path, &wanted, &options, symbols)?;
    let problems = made.documents.iter().flat_map(|document| document.problems.clone());
    Ok((made.documents.iter().flat_map(all).collect(), problems.collect()))
}

/// Returns all times of a report: the judged time and the start-up time by part, and the time of
/// each step.
fn all(document: &Document) -> Vec<HostTime> {
    let find = |key: &str| document.tables.iter().find(|table| table.key == key);
    let mut times = Vec::new();
    for (key, read) in [
        ("parts", judged as fn(&TableRow<'_>) -> Vec<HostTime>),
        ("start_up", start_up),
        ("steps", step),
    ] {
        let table = find(key);
        let rows = table.into_iter().flat_map(TableRow::all);
        times.extend(rows.flat_map(|row| read(&row)));
    }
    times.retain(|time| time.wall_ns > 0);
    times
}

fn time(row: &TableRow<'_>, section: &'static str, part: &str, key: &str) -> HostTime {
    HostTime {
        rank: row.whole("rank").unwrap_or(0) as u32,
        section,
        part: part.to_owned(),
        wall_ns: row.whole(key).unwrap_or(0),
        ..HostTime::default()
    }
}

fn judged(row: &TableRow<'_>) -> Vec<HostTime> {
    let error_ns = match row.cell("wall_ns") {
        Some(Cell::Estimate { error, .. }) => error.number().map(|error| error as u64),
        _ => None,
    };
    vec![HostTime {
        error_ns,
        function: row.text("function").unwrap_or_default().to_owned(),
        file: row.text("file").unwrap_or_default().to_owned(),
        line: row.whole("line"),
        ..time(row, "judged", row.text("part").unwrap_or_default(), "wall_ns")
    }]
}

fn start_up(row: &TableRow<'_>) -> Vec<HostTime> {
    let running = time(row, "start_up", "running", "running_ns");
    let unknown = time(row, "start_up", "unknown", "unknown_ns");
    let mut waiting = time(row, "start_up", "waiting", "wall_ns");
    // The report's running time includes unknown time, so subtract that from it below.
    waiting.wall_ns = waiting.wall_ns.saturating_sub(running.wall_ns);
    let running = HostTime { wall_ns: running.wall_ns.saturating_sub(unknown.wall_ns), ..running };
    vec![running, waiting, unknown]
}

/// Returns the times of a step. The report has one column for each part of a step.
fn step(row: &TableRow<'_>) -> Vec<HostTime> {
    let step = row.whole("step");
    let parts = row.table.columns.iter().filter_map(|column| column.key.strip_suffix("_ns"));
    let parts = parts.filter(|part| *part != "wall");
    parts.map(|part| HostTime { step, ..time(row, "step", part, &format!("{part}_ns")) }).collect()
}

/// The times of all ranks that are exported.
#[derive(Debug, Default)]
pub(crate) struct HostTimes(Vec<HostTime>);

impl HostTimes {
    /// Reads the times in the slice that is exported. If the run can't be read, the list is empty,
    /// because the export itself then reports the error.
    pub fn of(run: &RunDir, options: &Options<'_>) -> HostTimes {
        HostTimes(read(run.path(), &options.slice, options.symbols).unwrap_or_default().0)
    }

    /// Returns the times of a file's rank. If a rank has several files, only its first file gets
    /// them.
    pub fn of_file(&self, selection: &Selection<'_>, file: &RankFile) -> Vec<HostTime> {
        let first = selection.files.iter().find(|other| other.rank == file.rank);
        let is_first = first.is_some_and(|first| first.path == file.path);
        let of = |time: &&HostTime| is_first && Some(time.rank) == file.rank;
        self.0.iter().filter(of).cloned().collect()
    }
}
