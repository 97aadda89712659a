//! TensorBoard: a log directory that its PyTorch profiler plugin loads.
//!
//! `DIR/rank-0.pt.trace.json.gz` for each rank: what [`crate::chrome`] writes, by
//! the name that the plugin searches.

use tprof_trace::RunDir;

use crate::output::OutputDir;
use crate::{ExportError, Options, Selection, Written, chrome, paths};

/// Writes a directory: `DIR/tensorboard`, or what the options name.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    let mut selection = Selection::new(run, &options.slice, options.symbols)?;
    // The plugin takes every file for a worker.
    selection.files.retain(|file| file.rank.is_some());
    let path = options.output.clone().unwrap_or_else(|| paths::beside(run).join("tensorboard"));
    OutputDir::check(&path, options.force, "tensorboard")?;
    paths::parent(&path)?;
    let output = OutputDir::create(&path)?;
    let names = paths::names(&selection.files);
    let inside = |name: &String| output.unfinished().join(format!("{name}.pt.trace.json.gz"));
    let files: Vec<_> = names.iter().map(inside).collect();
    let mut written =
        chrome::write_all(&selection, &files, options).map_err(|error| match error {
            // The name that users have for it.
            ExportError::Write { source, .. } => ExportError::Write { path: path.clone(), source },
            other => other,
        })?;
    written.notes.push(format!("tensorboard --logdir {}", path.display()));
    written.paths = vec![output.keep()?];
    Ok(written)
}
