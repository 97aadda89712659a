//! Writes a run directory from input files: one `.tprof` file per trace, and a `run.json`.

use crate::builder::{Builder, Built};
use crate::compiled::{self, LogOptions};
use crate::content;
use crate::document::walk;
use crate::error::ImportError;
use crate::implausible::Implausible;
use crate::imported_file::{ImportedFile, unix_ns};
use crate::inputs::{Input, Inputs, is_foreign_directory};
use crate::losses::{Loss, LossReason, Tally};
use crate::names::is_trace_or_snapshot;
use crate::output::Output;
use crate::pickle;
use crate::rank;
use crate::snapshot::{self, SnapshotError};
use crate::top_level::property;
use crate::window::Window;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tprof_trace::compile_log::COMPILE_DIRECTORY;
use tprof_trace::run::{LossInfo, Overhead, ProcessInfo, RUN_VERSION, RunInfo};
use tprof_trace::{Recorded, TraceHeader, TraceWriter, info_text};

/// Default limit of the JSON in one file. More text than this would be a gzip bomb, not a trace.
const DEFAULT_MAX_INPUT: u64 = 64 << 30;

/// Largest memory snapshot. Unlike a trace, it is in memory as a whole.
const MAX_SNAPSHOT: u64 = 2 << 30;

/// Options of an import.
#[derive(Clone, Debug)]
pub struct Options {
    /// Largest decompressed size of JSON in one file, in bytes.
    pub max_input_bytes: u64,
    /// Version of tprof, which is stored in the run.
    pub tprof: String,
    /// Nanoseconds that are subtracted from times in JSON: the time since 1970 at which the wanted
    /// clock was 0. With 0, times stay as written.
    pub offset_ns: i64,
    /// Counts what has been read so far.
    pub progress: Progress,
}

impl Options {
    /// Default options for a version of tprof.
    pub fn new(tprof: &str) -> Options {
        Options {
            max_input_bytes: DEFAULT_MAX_INPUT,
            tprof: tprof.to_owned(),
            offset_ns: 0,
            progress: Progress::default(),
        }
    }
}

/// Progress of an import, shared with the progress line.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    read: Arc<AtomicU64>,
    total: Arc<AtomicU64>,
}

impl Progress {
    /// Returns the number of bytes read so far, and of all files.
    pub fn bytes(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

/// Result of an import.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// The trace files that were written, each with the input file that it was made from.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// Number of rows written, including marks, counters and arrows.
    pub rows: u64,
    /// Number of rows that count as recorded events and samples.
    pub recorded: Recorded,
    /// Events and parts of events that were not stored, by kind. A count of 0 means an unknown
    /// number.
    pub losses: Vec<LossInfo>,
    /// Number of events that were not kept.
    pub lost: u64,
    /// Further notes for people, in sentences.
    pub notes: Vec<String>,
}

/// Whether a path should be imported: a directory that contains traces and is not a run, or a file
/// that tprof did not write.
pub fn is_foreign(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    if !metadata.is_dir() {
        return path.file_name().is_some_and(|name| name != "run.json")
            && (is_trace_or_snapshot(path) || content::of_file(path).is_some());
    }
    is_foreign_directory(path)
}

/// Imports files into a directory that is empty or does not exist.
///
/// Files are read in parallel, one per core. If one import fails, everything that was written is
/// removed. A file that was only found in a directory is skipped if it is not a trace.
pub fn import(
    paths: &[PathBuf],
    directory: &Path,
    options: &Options,
) -> Result<Imported, ImportError> {
    let Inputs { files, logs, notes } = Inputs::of(paths)?;
    let sizes = files.iter().filter_map(|input| fs::metadata(&input.path).ok());
    options.progress.total.store(sizes.map(|data| data.len()).sum(), Ordering::Relaxed);
    let failed = |source| ImportError::Io { path: directory.to_owned(), what: "create", source };
    let existed = directory.exists();
    fs::create_dir_all(directory).map_err(failed)?;
    let mut result = into(&files, &logs, paths, directory, options);
    if let Ok(imported) = &mut result {
        imported.notes.splice(0..0, notes);
    }
    if result.is_err() && !existed {
        // Ignore an error of removing the directory, because the original error matters more.
        let _ = fs::remove_dir(directory);
    }
    result
}

fn into(
    inputs: &[Input],
    logs: &[PathBuf],
    paths: &[PathBuf],
    directory: &Path,
    options: &Options,
) -> Result<Imported, ImportError> {
    let work = |index: usize| {
        let partial = directory.join(format!("import-{index}.partial"));
        let part = one(&inputs[index].path, &partial, options);
        if part.is_err() {
            let _ = fs::remove_file(&partial);
        }
        part
    };
    let mut imported = Imported::default();
    let mut parts = Vec::new();
    let mut failure = None;
    let is_alone = inputs.len() == 1 && logs.is_empty();
    for (input, result) in inputs.iter().zip(each(inputs.len(), work)) {
        match result {
            Ok(part) => parts.push(part),
            Err(error) if input.found && !is_alone && is_passed_over(&error, input) => {
                imported.notes.push(format!("skipped: {error}"));
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    if parts.is_empty() && logs.is_empty() && failure.is_none() {
        let (within, unread) = (Vec::new(), Vec::new());
        failure = Some(ImportError::NoTraces { path: paths[0].clone(), within, unread });
    }
    assign_ranks(&mut parts, &mut imported);
    if failure.is_none() {
        let options = LogOptions {
            max_input_bytes: options.max_input_bytes,
            offset_ns: options.offset_ns,
            tprof: &options.tprof,
        };
        failure = compiled::add(logs, &mut parts, directory, options, &mut imported.notes).err();
    }
    if let Some(error) = failure {
        for part in parts {
            // Ignore a file that cannot be removed, because the original error matters more.
            let _ = fs::remove_file(part.partial);
        }
        if !logs.is_empty() {
            let _ = fs::remove_dir_all(directory.join(COMPILE_DIRECTORY));
        }
        return Err(error);
    }
    name_and_write(parts, directory, options, &mut imported)?;
    Ok(imported)
}

/// Whether the import of a directory continues without a file that failed with this error.
fn is_passed_over(error: &ImportError, input: &Input) -> bool {
    match error {
        ImportError::NotATrace { .. } | ImportError::NotASnapshot { .. } => true,
        // An error about the output must end the import.
        ImportError::Io { path, .. } => *path == input.path,
        _ => false,
    }
}

/// Applies `work` to 0..count on all cores. Returns the results in order.
fn each<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get).min(count);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let result = work(index);
            // The lock is poisoned only if a worker panicked. The scope then panics too.
            if let Ok(mut done) = done.lock() {
                done.insert(index, result);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..cores {
            // If no thread can be started, this thread does all the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    done.into_inner().unwrap_or_default().into_values().collect()
}

/// An imported file whose last block isn't written yet.
struct Filled {
    output: Output,
    processes: Vec<ProcessInfo>,
    extent: Option<(u64, u64)>,
    rank: Option<u32>,
    read: serde_json::Value,
    notes: Vec<String>,
}

/// Imports one file.
fn one(source: &Path, partial: &Path, options: &Options) -> Result<ImportedFile, ImportError> {
    let read = Arc::clone(&options.progress.read);
    let mut window = Window::open(source, options.max_input_bytes, read)?;
    window.more()?;
    let filled = match pickle::is_pickle(window.bytes()) {
        true => {
            let output = Output::new(TraceWriter::create_blank(partial)?);
            of_snapshot(source, &mut window, output, options)?
        }
        false => of_json(source, window, partial, options)?,
    };
    let Filled { mut output, processes, extent, rank, read, notes } = filled;
    property("tprof.import", &read.to_string(), &mut output);
    let start_ns = extent.map_or(0, |extent| extent.0);
    output.writer.flush()?;
    let recorded = output.writer.recorded();
    let losses = output.tally.losses();
    let (rows, cut) = (output.tally.kept, output.tally.cut_at().is_some());
    output.writer.finish_as(&TraceHeader {
        rank,
        provisional: rank.is_none(),
        start_ns,
        start_unix_ns: unix_ns(start_ns, options.offset_ns),
        tprof: options.tprof.clone(),
        ..TraceHeader::default()
    })?;
    Ok(ImportedFile {
        source: source.to_owned(),
        partial: partial.to_owned(),
        rank,
        extent,
        processes,
        rows,
        recorded,
        lost: losses.iter().filter(|loss| loss.is_event).map(|loss| loss.count).sum(),
        losses: losses.into_iter().filter(|loss| loss.matters).map(Loss::into_info).collect(),
        cut,
        read,
        notes,
    })
}

/// Imports Chrome or Kineto JSON. If something in it is implausible, a second pass leaves that out.
fn of_json(
    source: &Path,
    mut window: Window,
    partial: &Path,
    options: &Options,
) -> Result<Filled, ImportError> {
    let mut builder = read_json(&mut window, partial, Implausible::default(), options)?;
    if let Some(implausible) = builder.passes.found() {
        drop(builder);
        if !source.is_file() {
            return Err(ImportError::NotTwice { path: source.to_owned() });
        }
        let failed = |source| ImportError::Io { path: partial.to_owned(), what: "remove", source };
        fs::remove_file(partial).map_err(failed)?;
        // The first pass has already counted the bytes for the progress line, so this window counts
        // into a number that is dropped.
        window = Window::open(source, options.max_input_bytes, Arc::default())?;
        builder = read_json(&mut window, partial, implausible, options)?;
        // Finish the second pass too, because this counts the remaining overlaps for the notes.
        builder.passes.found();
    }
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let rank = builder.facts.rank().or_else(|| rank::of_name(&name));
    let json_bytes = window.offset();
    let Built { output, processes, extent, kinds, notes } = builder.finish(rank)?;
    let read = json!({
        "file": name,
        "json_bytes": json_bytes,
        "events": kinds,
        "launch_arrows": output.tally.launch_arrows,
        "cut_off": window.cut(),
    });
    Ok(Filled { output, processes, extent, rank, read, notes })
}

fn read_json(
    window: &mut Window,
    partial: &Path,
    implausible: Implausible,
    options: &Options,
) -> Result<Builder, ImportError> {
    let mut builder = Builder::new(TraceWriter::create_blank(partial)?, implausible);
    builder.facts.offset_ns = options.offset_ns;
    walk(window, &mut builder)?;
    count_damage(window, &mut builder.output.tally);
    Ok(builder)
}

/// Counts damage to a compressed file. The text of a damaged file may still look complete.
fn count_damage(window: &Window, tally: &mut Tally) {
    if window.cut().is_some() && tally.cut_at().is_none() {
        match window.is_cut_off() {
            true => tally.count_loss_at(LossReason::CutOff, window.offset()),
            false => tally.count_loss(LossReason::Damaged),
        }
    }
}

/// Reads a memory snapshot of PyTorch.
fn of_snapshot(
    source: &Path,
    window: &mut Window,
    mut output: Output,
    options: &Options,
) -> Result<Filled, ImportError> {
    let limit = options.max_input_bytes.min(MAX_SNAPSHOT);
    let mut pickle = Vec::new();
    loop {
        pickle.extend_from_slice(window.bytes());
        window.consume(window.bytes().len());
        if pickle.len() as u64 > limit {
            return Err(ImportError::TooLarge { path: source.to_owned(), limit });
        }
        if !window.more()? {
            break;
        }
    }
    count_damage(window, &mut output.tally);
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let rank = rank::of_name(&name);
    let snapshot = snapshot::read(&pickle, rank, &mut output).map_err(|error| {
        let path = source.to_owned();
        match error {
            SnapshotError::Pickle(error) => ImportError::NotASnapshot {
                path,
                offset: Some(error.offset as u64),
                why: window.cut().map_or(error.why, str::to_owned),
                is_cut: error.is_cut,
            },
            SnapshotError::Content(why) => {
                ImportError::NotASnapshot { path, offset: None, why, is_cut: false }
            }
            SnapshotError::Import(error) => error,
        }
    })?;
    let read = json!({ "file": name, "pickle_bytes": pickle.len(), "snapshot": snapshot.facts });
    let (processes, extent, notes) = (snapshot.processes, snapshot.extent, snapshot.notes);
    Ok(Filled { output, processes, extent, rank, read, notes })
}

/// Names files by their ranks, and writes `run.json`.
fn name_and_write(
    parts: Vec<ImportedFile>,
    directory: &Path,
    options: &Options,
    imported: &mut Imported,
) -> Result<(), ImportError> {
    let starts = parts.iter().filter_map(|part| part.extent).map(|extent| extent.0);
    let start_ns = starts.min().unwrap_or(0);
    let mut info = RunInfo {
        version: RUN_VERSION,
        tprof: options.tprof.clone(),
        start_ns,
        start_unix_ns: unix_ns(start_ns, options.offset_ns),
        end_ns: parts.iter().filter_map(|part| part.extent).map(|extent| extent.1).max(),
        finished: true,
        overhead: Overhead { estimate: true, ..Overhead::default() },
        ..RunInfo::default()
    };
    let is_single = parts.len() == 1;
    let mut sources = Vec::new();
    let mut losses: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut files_of_rank: BTreeMap<u32, u32> = BTreeMap::new();
    for part in parts {
        let rank = part.rank.unwrap_or(0);
        let files = files_of_rank.entry(rank).or_default();
        let name = match *files {
            0 => format!("rank-{rank}.tprof"),
            instance => format!("rank-{rank}.{instance}.tprof"),
        };
        if *files > 0 {
            imported.notes.push(format!(
                "`{}` is also of rank {rank}: kept as `{name}`, as after a restart",
                part.source.display()
            ));
        }
        *files += 1;
        let path = directory.join(&name);
        fs::rename(&part.partial, &path).map_err(|source| ImportError::Io {
            path: path.clone(),
            what: "create",
            source,
        })?;
        imported.rows += part.rows;
        imported.recorded += part.recorded;
        info.completeness.recorded += part.recorded.events;
        info.completeness.samples += part.recorded.samples;
        info.completeness.lost += part.lost;
        for loss in part.losses {
            *losses.entry((loss.what, loss.why)).or_default() += loss.count;
        }
        let source = part.source.display();
        let several = part.notes.iter().map(|note| match is_single {
            true => note.clone(),
            false => format!("`{source}`: {note}"),
        });
        imported.notes.extend(several);
        if part.cut {
            imported
                .notes
                .push(format!("`{}` is cut off: its end is missing", part.source.display()));
        }
        for process in part.processes {
            let (rank, file) = (Some(rank), Some(name.clone()));
            info.processes.push(ProcessInfo { rank, file, ..process });
        }
        sources.push(json!({ "path": part.source, "file": name, "read": part.read }));
        info.files.push(name);
        imported.files.push((path, part.source));
    }
    let info_of = |((what, why), count)| LossInfo { what, why, count };
    info.completeness.losses = losses.into_iter().map(info_of).collect();
    imported.losses.clone_from(&info.completeness.losses);
    imported.lost = info.completeness.lost;
    info.options = json!({ "imported": sources });
    write_info(&info, directory)
}

/// Assigns the lowest free ranks, in order, to files that name no rank.
fn assign_ranks(parts: &mut [ImportedFile], imported: &mut Imported) {
    let mut taken: BTreeSet<u32> = parts.iter().filter_map(|part| part.rank).collect();
    let alone = parts.len() == 1;
    let mut free = 0;
    for part in parts.iter_mut().filter(|part| part.rank.is_none()) {
        while !taken.insert(free) {
            free += 1;
        }
        part.rank = Some(free);
        if !alone {
            let source = part.source.display();
            imported.notes.push(format!("`{source}` names no rank: taken as rank {free}"));
        }
    }
}

/// Writes `run.json` under another name and renames it, so that a `run.json` is always complete.
fn write_info(info: &RunInfo, directory: &Path) -> Result<(), ImportError> {
    let path = directory.join("run.json");
    let failed = |source| ImportError::Io { path: path.clone(), what: "write", source };
    let partial = directory.join("run.json.partial");
    let text = info_text(info).map_err(|error| failed(error.into()))?;
    fs::write(&partial, text).map_err(failed)?;
    fs::rename(&partial, &path).map_err(failed)
}
