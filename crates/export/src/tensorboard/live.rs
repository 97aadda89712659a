//! Writes a log directory that grows while the job runs.
//!
//! While the job runs, only settled data is appended, which cannot change later. The rest is
//! appended when the run has ended.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tprof_facts::labels;
use tprof_trace::RunDir;

use super::analysis::{RankFigures, RunAnalysis};
use super::event_times::start_s;
use super::events::EventFile;
use super::progress::{Extent, Progress};
use super::rank::{MissingData, RankLog};
use super::{file_name, log_texts, note_how_to_open, note_omitted};
use crate::{ExportError, OpenRank, Options, Selection, Slice, Written, chrome, paths};

/// Data younger than this may still change, because threads deliver their events with a delay.
const UNSETTLED_NS: u64 = 5_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// The log directory of a run in progress.
#[derive(Debug)]
pub struct LiveLog {
    run: PathBuf,
    directory: PathBuf,
    /// For each rank's name, its event file and what the file contains.
    ranks: BTreeMap<String, (PathBuf, Progress)>,
}

impl LiveLog {
    /// Prepares `RUN/tensorboard`; `None` if the directory exists already. It is created when there
    /// is something to write.
    pub fn of(run: &Path) -> Option<LiveLog> {
        let directory = run.join("tensorboard");
        let is_there = directory.symlink_metadata().is_ok();
        let run = run.to_owned();
        (!is_there).then(|| LiveLog { run, directory, ranks: BTreeMap::new() })
    }

    /// Appends the data that has settled since the last call.
    pub fn append(&mut self) -> Result<(), ExportError> {
        let run = RunDir::open(&self.run)?;
        let slice = Slice::default();
        let mut selection = match Selection::new(&run, &slice, None) {
            Err(ExportError::NoFile) => return Ok(()),
            selection => selection?,
        };
        selection.files.retain(|file| file.rank.is_some());
        let names = paths::names(&selection.files);
        for (file, name) in selection.files.iter().zip(&names) {
            let mut part = selection.open(file)?;
            let Some((_, last_ns)) = part.trace.extent_ns() else { continue };
            let settled_ns = part.since_start(last_ns).saturating_sub(UNSETTLED_NS);
            // Append only whole seconds, because each second has one reading, which must be final.
            part.window.to_ns = part.clock.file_ns(settled_ns / SECOND_NS * SECOND_NS);
            self.write(&selection, &part, name, Extent::SoFar, &RankFigures::default())?;
        }
        Ok(())
    }

    /// Completes the log with the missing data and the traces, once the run has ended.
    pub fn finish(
        mut self,
        run: &RunDir,
        options: &Options<'_>,
        analysed: &RunAnalysis,
    ) -> Result<Written, ExportError> {
        if self.directory.symlink_metadata().is_err() {
            return super::export(run, options, analysed);
        }
        let mut selection = Selection::new(run, &options.slice, options.symbols)?;
        selection.files.retain(|file| file.rank.is_some());
        let names = paths::names(&selection.files);
        let inside = |name: &String| self.directory.join(format!("{name}.pt.trace.json.gz"));
        let files: Vec<_> = names.iter().map(inside).collect();
        let mut written = chrome::write_all(&selection, &files, options)?;
        for (file, name) in selection.files.iter().zip(&names) {
            let part = written.open(&selection, file)?;
            let none = RankFigures::default();
            let figures = analysed.ranks.get(&labels::rank(file)).unwrap_or(&none);
            let added = self.write(&selection, &part, name, Extent::Rest, figures)?;
            written.steps_inferred |= added.steps_inferred;
            note_omitted(file, &added.omitted, &mut written);
        }
        if !analysed.texts.is_empty() {
            log_texts(&selection, &self.directory, analysed)?;
        }
        note_how_to_open(&self.directory, &mut written);
        written.paths = vec![self.directory];
        Ok(written)
    }

    /// Appends to the event file of a rank.
    fn write(
        &mut self,
        selection: &Selection<'_>,
        part: &OpenRank<'_>,
        name: &str,
        extent: Extent,
        figures: &RankFigures,
    ) -> Result<Added, ExportError> {
        let (path, progress) = match self.ranks.remove(name) {
            Some((path, progress)) => (path, Some(progress)),
            None => (self.directory.join(name).join(file_name(selection, part.file)), None),
        };
        let written = write(selection, part, &path, progress, extent, figures);
        match written {
            Ok((added, progress)) => {
                self.ranks.insert(name.to_owned(), (path, progress));
                Ok(added)
            }
            Err(source) => {
                // The file may end in a partial record, so remove it. The next attempt writes it
                // from the beginning.
                let _ = fs::remove_file(&path);
                Err(ExportError::Write { path, source })
            }
        }
    }
}

/// Result of an append.
struct Added {
    omitted: MissingData,
    steps_inferred: bool,
}

/// Appends to an event file, or creates it.
fn write(
    selection: &Selection<'_>,
    part: &OpenRank<'_>,
    path: &Path,
    progress: Option<Progress>,
    extent: Extent,
    figures: &RankFigures,
) -> io::Result<(Added, Progress)> {
    let parent = path.parent().unwrap_or(Path::new(""));
    DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    let to = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let to = BufWriter::new(to);
    let file = match progress {
        Some(progress) => EventFile::resume(to, progress),
        None => EventFile::begin(to, start_s(part, selection.zero))?,
    };
    let log = RankLog::new(part, selection.zero, extent, file);
    let steps_inferred = log.steps_inferred;
    let (file, omitted) = log.write(figures)?;
    let added = Added { omitted, steps_inferred };
    let (mut to, progress) = file.finish();
    to.flush()?;
    Ok((added, progress))
}
