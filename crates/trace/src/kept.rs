//! The files of a trace of which only the last part is kept (`--keep`).
//!
//! What describes the job (names, processes, stacks, symbols) stays in the trace file. What happened
//! lies beside it in segments: files of whole blocks without a header, in a directory that the
//! trace file's header names. The oldest are deleted. At the end of the run the remaining segments
//! are appended to the trace file. So a reader needs the segments only of a run that still lasts,
//! or that was killed.

use crate::plain_file::open_plain;
use crate::scan::Source;
use crate::tables::table;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the mark with which each segment begins, and which says since when everything is in that
/// segment and later ones: 0 in the first. It is of the kind `RecordingOn` and belongs to no
/// process. Readers don't return it.
pub const KEEP_MARK: &str = "--keep";

/// Whether rows of a table describe what happened at a time, and not the job itself. The figures of
/// steps stay although they have times: they are what is left of a job of which the rest was deleted.
pub(crate) fn passes(id: u16) -> bool {
    table::is_large(id) && id != table::HISTORY
        || matches!(
            id,
            table::HEAP_EVENTS
                | table::MAP_EVENTS
                | table::HEAP_TOTALS
                | table::RECORDING_TOTALS
                | table::COUNTERS
                | table::MARKS
        )
}

/// Returns the directory of a file's segments. A hostile header can't name one elsewhere.
pub(crate) fn directory_of(path: &Path, name: &str) -> Option<PathBuf> {
    let is_plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    is_plain.then(|| path.with_file_name(name))
}

/// Returns the path of a segment by its number, from 0.
pub(crate) fn segment(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}"))
}

/// Returns the numbers of the segments in a directory, the oldest first.
pub(crate) fn segments(directory: &Path) -> io::Result<Vec<u64>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let number = |name: &str| name.parse::<u64>().ok().filter(|_| name.len() == 10);
    let mut numbers: Vec<u64> =
        entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Adds the segments in a directory to a source, the oldest first. A segment that the writer deletes
/// at this moment is left out.
pub(crate) fn add_segments(source: &mut Source, directory: &Path) -> io::Result<()> {
    for number in segments(directory)? {
        match open_plain(&segment(directory, number)) {
            Ok(file) => source.append(file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
