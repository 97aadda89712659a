//! Exports a log directory for TensorBoard, with event files, and with traces for TensorBoard's
//! PyTorch profiler plugin.
//!
//! [`crate::chrome`] writes `DIR/rank-0.pt.trace.json.gz` for each rank, under the name that the
//! plugin looks for. The workers of one run must be in the same directory.
//! `DIR/rank-0/events.out.tfevents.…` contains the rank's curves, histograms and model graph. Each
//! rank has its own directory, because TensorBoard takes each directory for a run. The event file
//! in `DIR` itself contains texts about the whole run.

mod analysis;
mod event_times;
mod events;
mod graph;
mod histogram;
mod live;
mod peaks;
mod program_histograms;
mod progress;
mod rank;
mod record;
mod series;
mod throughput;

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use tprof_facts::labels;
use tprof_facts::units::counted;
use tprof_trace::{RankFile, RunDir, TraceFile};

use crate::output::{Output, OutputDir};
use crate::{ExportError, Options, Selection, Written, chrome, paths};

pub use analysis::{CounterKey, Figure, RankFigures, RunAnalysis, StepCounter, StepFigures};
use event_times::start_s;
use events::{EventFile, EventTime, Tag};
pub use live::LiveLog;
use progress::Extent;
use rank::{MissingData, RankLog};

/// A note about the page of the archived plugin `torch-tb-profiler`, which loads a library from the
/// network, and about the parts of TensorBoard that work without it.
const PLUGIN: &str = "without a network the PyTorch profiler plugin (torch-tb-profiler, archived) shows empty pages: \
                      it loads Google Charts from www.gstatic.com; curves, histograms, the graph and texts need \
                      neither the plugin nor a network";

/// Writes a log directory: `tensorboard` in the run's default directory for exports, or the
/// directory that the options name.
pub fn export(
    run: &RunDir,
    options: &Options<'_>,
    analysed: &RunAnalysis,
) -> Result<Written, ExportError> {
    let mut selection = Selection::new(run, &options.slice, options.symbols)?;
    // The plugin takes every trace for a worker, so leave out files without a rank.
    selection.files.retain(|file| file.rank.is_some());
    let path =
        options.output.clone().unwrap_or_else(|| paths::default_directory(run).join("tensorboard"));
    OutputDir::check(&path, options.force, "tensorboard")?;
    paths::parent(&path)?;
    let output = OutputDir::create(&path)?;
    let names = paths::names(&selection.files);
    let inside = |name: &String| output.unfinished().join(format!("{name}.pt.trace.json.gz"));
    let files: Vec<_> = names.iter().map(inside).collect();
    let write = || -> Result<Written, ExportError> {
        let mut written = chrome::write_all(&selection, &files, options)?;
        for (file, name) in selection.files.iter().zip(&names) {
            let directory = output.unfinished().join(name);
            log_rank(&selection, file, &directory, analysed, &mut written)?;
        }
        if !analysed.texts.is_empty() {
            log_texts(&selection, output.unfinished(), analysed)?;
        }
        Ok(written)
    };
    let mut written = write().map_err(|error| match error {
        // While the directory is written, it has a temporary name. Report the final name, which
        // users know.
        ExportError::Write { source, .. } => ExportError::Write { path: path.clone(), source },
        other => other,
    })?;
    note_how_to_open(&path, &mut written);
    written.paths = vec![output.keep()?];
    Ok(written)
}

/// Adds notes on how to view the output, and on what needs a network. An export prints them last.
fn note_how_to_open(path: &Path, written: &mut Written) {
    written.notes.push(format!("tensorboard --logdir {}", path.display()));
    written.notes.push(PLUGIN.to_owned());
}

/// Writes the event file of a rank, in the rank's own directory.
fn log_rank(
    selection: &Selection<'_>,
    file: &RankFile,
    directory: &Path,
    analysed: &RunAnalysis,
    written: &mut Written,
) -> Result<(), ExportError> {
    let part = written.open(selection, file)?;
    let path = directory.join(file_name(selection, file));
    let failed = |source| ExportError::Write { path: path.clone(), source };
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700).create(directory).map_err(failed)?;
    let output = Output::create(&path)?;
    let write = || -> io::Result<_> {
        let begun = EventFile::begin(output, start_s(&part, selection.zero))?;
        let log = RankLog::new(&part, selection.zero, Extent::Whole, begun);
        let inferred = log.steps_inferred;
        let none = RankFigures::default();
        let figures = analysed.ranks.get(&labels::rank(file)).unwrap_or(&none);
        Ok((log.write(figures)?, inferred))
    };
    let ((log, omitted), inferred) = write().map_err(failed)?;
    written.steps_inferred |= inferred;
    note_omitted(file, &omitted, written);
    log.finish().0.keep()?;
    Ok(())
}

/// Adds notes on the data that the event file of a rank leaves out.
fn note_omitted(file: &RankFile, omitted: &MissingData, written: &mut Written) {
    let label = &file.label;
    let mut note = |text: String| written.notes.push(format!("{label}: {text}"));
    let MissingData { wide, own, nodes } = omitted;
    if *wide > 0 {
        note(format!(
            "TensorBoard's 32-bit numbers cannot express {wide} values, which were left out"
        ));
    }
    for (name, count) in &own.not_finite {
        let values = counted(*count, "value is", "values are");
        note(format!("{values} not in the histograms `{name}`: not a number, or infinite"));
    }
    if own.damaged > 0 {
        let damaged = counted(own.damaged, "histogram was", "histograms were");
        note(format!("{damaged} left out: the record is damaged"));
    }
    if *nodes > 0 {
        let nodes = counted(*nodes, "node was", "nodes were");
        note(format!("{nodes} left out of the graph, which has 20,000"));
    }
}

/// Writes the event file with the texts about the whole run.
fn log_texts(
    selection: &Selection<'_>,
    directory: &Path,
    analysed: &RunAnalysis,
) -> Result<(), ExportError> {
    let Some(first) = selection.files.first() else { return Ok(()) };
    let path = directory.join(file_name(selection, first));
    let failed = |source| ExportError::Write { path: path.clone(), source };
    let output = Output::create(&path)?;
    let write = || -> io::Result<_> {
        let at = EventTime { step: 0, wall_s: selection.zero.unix_ns as f64 / 1e9 };
        let mut log = EventFile::begin(output, at.wall_s)?;
        for (name, markdown) in &analysed.texts {
            let about = format!("tprof report {name} --markdown");
            log.text(&Tag { name: name.clone(), about }, at, markdown)?;
        }
        Ok(log.finish().0)
    };
    write().map_err(failed)?.keep()?;
    Ok(())
}

/// Names an event file by time and host, as TensorFlow and PyTorch do.
fn file_name(selection: &Selection<'_>, file: &RankFile) -> String {
    let host = TraceFile::read_header(&file.path).map(|header| header.host).unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let host: String = host.chars().filter(|c| is_plain(*c)).take(64).collect();
    let host = if host.is_empty() { "tprof" } else { &host };
    format!("events.out.tfevents.{:010}.{host}.tprof", selection.zero.unix_ns / 1_000_000_000)
}
