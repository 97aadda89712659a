//! Reads tables of a run as a whole: the run, its ranks, and the sums for each rank that reports
//! print.
//!
//! These tables serve queries about thousands of ranks. They have some hundred rows for each rank,
//! while the tables of a rank have millions.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use tprof_analyze::{KINDS, ReportRequest, make_reports};
use tprof_document::{Cell as Reported, Document, Options, Unit, Value};
use tprof_facts::Zero;
use tprof_rank::base::parallel;
use tprof_trace::live::is_collector_alive;
use tprof_trace::run::{RankInfo, RunInfo};
use tprof_trace::{RankFile, RunDir, SymbolSource, TraceFile};

use crate::cell::{Cell, Type};
use crate::column::ColumnAbout;
use crate::row_source::{RowSource, instance_of};

/// Names of the tables, with descriptions of their rows.
pub const RUN_TABLES: [(&str, &str); 15] = [
    ("runs", "runs"),
    ("ranks", "files of ranks: where and when each ran, and how complete its file is"),
    (
        "rank_summary",
        "time of each device of a rank: compute, communication, copies, idle (`tprof report breakdown`)",
    ),
    ("rank_steps", "steps of each rank, beside their median (`tprof report steps`)"),
    ("rank_step_devices", "time of devices by step (`tprof report steps`)"),
    ("rank_kernels", "kernels and copies of each rank by name (`tprof report kernels`)"),
    ("rank_launches", "calls that start work, by function (`tprof report launches`)"),
    ("rank_collectives", "collectives of each rank by size (`tprof report comm`)"),
    (
        "rank_arrivals",
        "how late each rank came to collectives, by durations only (`tprof report stragglers`)",
    ),
    ("rank_late_steps", "the same by step"),
    ("rank_idle", "idle time of each stream by cause (`tprof report idle`)"),
    ("rank_overlap", "communication hidden by compute (`tprof report overlap`)"),
    ("rank_memory", "device memory of each rank by allocator (`tprof report device-memory`)"),
    (
        "rank_changes",
        "where figures of `history` left their own past; of ranks that changed together the first (`tprof report history`)",
    ),
    ("findings", "what to fix, the largest gain first (`tprof report findings`)"),
];

/// Tables that come from reports. Each entry is the name of the table here, the kind of report, and
/// the key of the table in the report's JSON.
const REPORTED: [(&str, &str, &str); 13] = [
    ("rank_summary", "breakdown", "breakdown"),
    ("rank_steps", "steps", "steps"),
    ("rank_step_devices", "steps", "device_time_by_step"),
    ("rank_kernels", "kernels", "by_rank"),
    ("rank_launches", "launches", "launches"),
    ("rank_collectives", "comm", "comm_by_rank"),
    ("rank_arrivals", "stragglers", "late_arrivals"),
    ("rank_late_steps", "stragglers", "late_by_step"),
    ("rank_idle", "idle", "idle"),
    ("rank_overlap", "overlap", "overlap"),
    ("rank_memory", "device-memory", "pools"),
    ("rank_changes", "history", "changes"),
    ("findings", "findings", "findings"),
];

/// The note of an export of a part of a run. Such an export leaves out these tables, because their
/// sums are about the whole run.
pub(crate) const NO_SUMS: &str = "the tables of the run as a whole (runs, ranks, rank_…, findings) are \
                                  written only without --rank, --steps, --cycle and times";

/// A value of a [`RunTable`].
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedCell {
    /// The value is unknown or does not apply.
    Null,
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// An owned text.
    Text(String),
}

impl OwnedCell {
    /// Returns the value as a borrowed cell.
    pub fn cell(&self) -> Cell<'_> {
        match self {
            OwnedCell::Null => Cell::Null,
            OwnedCell::Int(value) => Cell::Int(*value),
            OwnedCell::Float(value) => Cell::Float(*value),
            OwnedCell::Bool(value) => Cell::Bool(*value),
            OwnedCell::Text(text) => Cell::Text(text),
        }
    }

    fn text(text: &str) -> OwnedCell {
        if text.is_empty() { OwnedCell::Null } else { OwnedCell::Text(text.to_owned()) }
    }

    fn opt(value: Option<impl Into<u64>>) -> OwnedCell {
        value.map_or(OwnedCell::Null, |value| OwnedCell::Int(value.into() as i64))
    }
}

/// A table of a run, with all of its rows.
#[derive(Clone, Debug)]
pub struct RunTable {
    /// Name of the table.
    pub name: &'static str,
    /// The rows. Each row has a value for every column.
    pub rows: Vec<Vec<OwnedCell>>,
}

/// Tables of a run, with the problems that occurred while reading them.
#[derive(Clone, Debug, Default)]
pub struct RunTables {
    /// The requested tables.
    pub tables: Vec<RunTable>,
    /// Problems with files that could not be read, as sentences.
    pub problems: Vec<String>,
}

/// Returns the columns of a table of the run as a whole.
pub fn run_columns(name: &str) -> Vec<ColumnAbout> {
    match name {
        "runs" => RUNS.to_vec(),
        "ranks" => RANKS.to_vec(),
        _ => reported_columns(name),
    }
}

const fn column(name: &'static str, kind: Type, about: &'static str) -> ColumnAbout {
    ColumnAbout { name, kind, about }
}

const RUN: ColumnAbout = column("run", Type::Text, "name of the run's directory");
const WHO: [ColumnAbout; 4] = [
    RUN,
    column("rank", Type::Id, "rank; null for processes of no rank"),
    column(
        "instance",
        Type::Id,
        "which file of the rank: 0, or higher after a restart or of a second launch",
    ),
    column("host", Type::Text, "host; null where an imported trace does not name it"),
];

const RUNS: [ColumnAbout; 13] = [
    RUN,
    column("command", Type::Text, "command line; null of an import, and if attached by hand"),
    column("commit", Type::Text, "commit of the working tree that it was started in"),
    column("hosts", Type::Text, "hosts, by commas"),
    column("ranks", Type::Int, "ranks with a file"),
    column("world_size", Type::Int, "ranks that the launcher started, if it gave that"),
    column(
        "start_unix_ns",
        Type::Int,
        "when it began, nanoseconds since 1970: the zero of all other times",
    ),
    column("duration_ns", Type::Int, "how long it took; null if it was cut off or goes on"),
    column("finished", Type::Bool, "whether every collector finished in good order"),
    column("imported", Type::Bool, "whether another tool recorded it"),
    column("recorded", Type::Int, "events that were recorded"),
    column("lost", Type::Int, "events that are known to be lost"),
    column("tprof", Type::Text, "version of tprof that recorded or imported it"),
];

const RANKS: [ColumnAbout; 15] = [
    WHO[0],
    WHO[1],
    WHO[2],
    WHO[3],
    column("file", Type::Text, "name of its file"),
    column(
        "label",
        Type::Text,
        "as reports call it: `rank 3`, `rank 3, restart 1`, `launcher on HOST`",
    ),
    column("world_size", Type::Int, "ranks that its launcher started, if it gave that"),
    column("restarts", Type::Int, "how often an elastic launcher had started it before"),
    column("start_unix_ns", Type::Int, "when its recording began, nanoseconds since 1970"),
    column("first_ns", Type::Int, "its first moment, nanoseconds since the run began"),
    column("last_ns", Type::Int, "its last moment"),
    column("whole", Type::Bool, "whether its file was closed and could be read whole"),
    column("recorded", Type::Int, "events in it"),
    column(
        "lost",
        Type::Int,
        "events that are known to be lost; where some losses have no number, at least",
    ),
    column("bytes", Type::Int, "size of its file"),
];

/// The columns of each table that comes from a report. They are computed once.
static REPORTED_COLUMNS: LazyLock<FxHashMap<&str, Vec<ColumnAbout>>> = LazyLock::new(|| {
    let columns = REPORTED.iter().map(|(name, kind, key)| {
        let kind = KINDS.iter().find(|of| of.name == *kind);
        let tables = kind.map(|kind| kind.tables()).unwrap_or_default();
        let columns = tables.into_iter().find(|table| table.key == *key);
        let columns = columns.map(|table| table.columns).unwrap_or_default();
        let of_rank = columns.iter().any(|column| column.key == "rank");
        let first = if of_rank { &WHO[..] } else { &WHO[..1] };
        let others = columns.iter().filter(|of| of.key != "rank").map(|of| ColumnAbout {
            name: of.key,
            kind: kind_of(of.unit),
            about: of.heading,
        });
        (*name, first.iter().copied().chain(others).collect())
    });
    columns.collect()
});

fn reported_columns(name: &str) -> Vec<ColumnAbout> {
    REPORTED_COLUMNS.get(name).cloned().unwrap_or_default()
}

fn kind_of(unit: Unit) -> Type {
    match unit {
        Unit::Text | Unit::Name => Type::Text,
        Unit::Id | Unit::Count | Unit::Duration | Unit::Time | Unit::Bytes => Type::Int,
        Unit::BytesPerSecond | Unit::Share | Unit::Number => Type::Float,
        Unit::Flag => Type::Bool,
    }
}

/// Reads the named tables of a run; [`RUN_TABLES`] lists the names. Tables that come from reports
/// are read in one pass over each file. If a table cannot be read, it has no rows, and `problems`
/// contains the reason.
pub fn read_run(
    dir: &RunDir,
    run: &str,
    names: &[&str],
    symbols: Option<&dyn SymbolSource>,
) -> RunTables {
    let mut read = RunTables::default();
    let sources = if names.is_empty() { FxHashMap::default() } else { sources(dir, run) };
    for (name, _) in RUN_TABLES.iter().filter(|(name, _)| names.contains(name)) {
        match *name {
            "runs" => read.tables.push(RunTable { name, rows: vec![run_row(dir, run)] }),
            "ranks" => {
                let rows = rank_rows(dir, run, &mut read.problems);
                read.tables.push(RunTable { name, rows });
            }
            _ => {}
        }
    }
    let wanted: Vec<_> = REPORTED.iter().filter(|(name, ..)| names.contains(name)).collect();
    let kinds: Vec<_> =
        KINDS.iter().filter(|kind| wanted.iter().any(|(_, of, _)| kind.name == *of)).collect();
    if kinds.is_empty() {
        return read;
    }
    let options =
        Options { data: true, is_running: Some(is_collector_alive as _), ..Options::default() };
    match make_reports(
        dir.path(),
        &ReportRequest { reports: &[], kinds: &kinds },
        &options,
        symbols,
    ) {
        Ok(made) => {
            // Every report lists the same problems with the same files, so list each problem once.
            let mut problems: Vec<String> =
                made.documents.iter().flat_map(|document| document.problems.clone()).collect();
            problems.sort();
            problems.dedup();
            read.problems.extend(problems);
            for (name, kind, key) in wanted {
                let document = made.documents.iter().find(|document| document.kind == *kind);
                let rows = document.map(|of| reported_rows(of, key, name, run, &sources));
                read.tables.push(RunTable { name, rows: rows.unwrap_or_default() });
            }
        }
        Err(error) => read.problems.push(error.to_string()),
    }
    read
}

/// Returns the source of each file's rows, by the label of the file.
fn sources(dir: &RunDir, run: &str) -> FxHashMap<String, RowSource> {
    let source = |file: &RankFile| {
        let host = TraceFile::read_header(&file.path).map(|header| header.host).unwrap_or_default();
        let source =
            RowSource { run: run.to_owned(), rank: file.rank, instance: instance_of(file), host };
        (file.label.to_string(), source)
    };
    dir.files().iter().map(source).collect()
}

fn run_row(dir: &RunDir, run: &str) -> Vec<OwnedCell> {
    let infos = dir.infos();
    let first = infos.iter().min_by_key(|info| info.start_unix_ns);
    let ranks: Vec<&RankInfo> = infos.iter().flat_map(|info| &info.ranks).collect();
    let mut hosts: Vec<&str> = infos.iter().map(|info| info.host.as_str()).collect();
    hosts.retain(|host| !host.is_empty());
    hosts.sort_unstable();
    hosts.dedup();
    let zero = Zero::of(dir);
    let end = |info: &RunInfo| Some(zero.clock_of_info(info).since_start(info.end_ns?));
    let ends: Option<Vec<u64>> = infos.iter().map(end).collect();
    let finished = !infos.is_empty() && infos.iter().all(|info| info.finished);
    let mut there: Vec<u32> = dir.files().iter().filter_map(|file| file.rank).collect();
    there.dedup();
    let sum = |of: fn(&RunInfo) -> u64| match infos {
        [] => OwnedCell::Null,
        _ => OwnedCell::Int(infos.iter().map(of).sum::<u64>() as i64),
    };
    vec![
        OwnedCell::text(run),
        first.map_or(OwnedCell::Null, |info| OwnedCell::text(&info.command.join(" "))),
        OwnedCell::text(first.and_then(|info| info.commit.as_deref()).unwrap_or_default()),
        OwnedCell::text(&hosts.join(",")),
        OwnedCell::Int(there.len() as i64),
        OwnedCell::opt(ranks.iter().filter_map(|rank| rank.size).max()),
        OwnedCell::opt((zero.unix_ns > 0).then_some(zero.unix_ns)),
        OwnedCell::opt(ends.and_then(|ends| ends.into_iter().max()).filter(|_| finished)),
        if infos.is_empty() { OwnedCell::Null } else { OwnedCell::Bool(finished) },
        first.map_or(OwnedCell::Null, |info| OwnedCell::Bool(info.is_imported())),
        sum(|info| info.completeness.recorded),
        sum(|info| info.completeness.lost),
        OwnedCell::text(first.map_or("", |info| &info.tprof)),
    ]
}

fn rank_rows(dir: &RunDir, run: &str, problems: &mut Vec<String>) -> Vec<Vec<OwnedCell>> {
    let zero = Zero::of(dir);
    let infos: FxHashMap<&str, &RankInfo> = dir
        .infos()
        .iter()
        .flat_map(|info| info.ranks.iter().map(|rank| (rank.file.as_str(), rank)))
        .collect();
    let row = |file: &RankFile| {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let info = infos.get(name.as_str());
        let mut row = vec![
            OwnedCell::text(run),
            OwnedCell::opt(file.rank),
            OwnedCell::Int(instance_of(file).into()),
            OwnedCell::Null,
            OwnedCell::text(&name),
            OwnedCell::text(&file.label.to_string()),
            OwnedCell::opt(info.and_then(|info| info.size)),
            OwnedCell::opt(info.map(|info| info.restarts)),
        ];
        let trace = match TraceFile::open(&file.path) {
            Ok(trace) => trace,
            Err(error) => {
                row.resize(RANKS.len(), OwnedCell::Null);
                row[11] = OwnedCell::Bool(false);
                return (row, Some(error.to_string()));
            }
        };
        let (header, clock) = (trace.header(), zero.clock(&trace, dir));
        row[3] = OwnedCell::text(&header.host);
        let extent = trace.extent_ns();
        let at = |time_ns: u64| clock.signed_since_start(time_ns);
        row.extend([
            OwnedCell::opt((header.start_unix_ns > 0).then_some(header.start_unix_ns)),
            extent.map_or(OwnedCell::Null, |(first, _)| OwnedCell::Int(at(first))),
            extent.map_or(OwnedCell::Null, |(_, last)| OwnedCell::Int(at(last))),
            OwnedCell::Bool(trace.is_closed() && trace.problems().is_empty()),
            OwnedCell::Int(trace.recorded().events as i64),
            OwnedCell::Int(trace.losses().len() as i64),
            OwnedCell::Int(trace.bytes() as i64),
        ]);
        (row, None)
    };
    let files: Vec<&RankFile> = dir.files().iter().collect();
    let rows = parallel::each(&files, |file| row(file));
    let (rows, failed): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    problems.extend(failed.into_iter().flatten());
    rows
}

fn reported_rows(
    document: &Document,
    key: &str,
    name: &str,
    run: &str,
    sources: &FxHashMap<String, RowSource>,
) -> Vec<Vec<OwnedCell>> {
    let Some(table) = document.tables.iter().find(|table| table.key == key) else {
        return Vec::new();
    };
    let columns = reported_columns(name);
    let of_rank = table.columns.iter().position(|column| column.key == "rank");
    let row = |cells: &Vec<Reported>| {
        let mut row = vec![OwnedCell::text(run)];
        if let Some(at) = of_rank {
            let label = match cells[at].value() {
                Some(Value::Text(label)) => label.clone(),
                Some(Value::Unsigned(rank)) => format!("rank {rank}"),
                _ => String::new(),
            };
            let source = sources.get(&label);
            row.push(OwnedCell::opt(source.and_then(|source| source.rank)));
            row.push(OwnedCell::opt(source.map(|source| source.instance)));
            row.push(OwnedCell::text(source.map_or("", |source| &source.host)));
        }
        for column in &columns[row.len()..] {
            let at = table.columns.iter().position(|of| of.key == column.name);
            row.push(at.map_or(OwnedCell::Null, |at| owned(&cells[at], column.kind)));
        }
        row
    };
    table.rows.iter().map(row).collect()
}

/// Converts a value of a report, measured or estimated, to the type of a column.
fn owned(cell: &Reported, kind: Type) -> OwnedCell {
    match (cell.value(), kind) {
        (Some(Value::Text(text)), Type::Text) => OwnedCell::text(text),
        (Some(Value::Unsigned(value)), Type::Int | Type::Id) => OwnedCell::Int(*value as i64),
        (Some(Value::Signed(value)), Type::Int | Type::Id) => OwnedCell::Int(*value),
        (Some(Value::Float(value)), Type::Int | Type::Id) => OwnedCell::Int(value.round() as i64),
        (Some(Value::Flag(value)), Type::Bool) => OwnedCell::Bool(*value),
        (Some(value), Type::Float) => value.number().map_or(OwnedCell::Null, OwnedCell::Float),
        (Some(Value::Unsigned(value)), Type::Text) => OwnedCell::Text(value.to_string()),
        _ => OwnedCell::Null,
    }
}
