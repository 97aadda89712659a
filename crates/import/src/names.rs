//! Recognizes files by their names.

use std::borrow::Cow;
use std::path::Path;

/// Endings of names of traces.
pub(crate) const TRACES: &[&str] = &[".json", ".json.gz", ".json.zst"];
/// Endings of names of memory snapshots.
pub(crate) const SNAPSHOTS: &[&str] =
    &[".pickle", ".pkl", ".pickle.gz", ".pkl.gz", ".pickle.zst", ".pkl.zst"];

/// Whether a file is named like a trace or a snapshot.
pub(crate) fn is_trace_or_snapshot(path: &Path) -> bool {
    has_name(path, TRACES) || has_name(path, SNAPSHOTS)
}

/// Whether a name has one of these endings, in any case.
pub(crate) fn has_name(path: &Path, endings: &[&str]) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
    name.is_some_and(|name| endings.iter().any(|ending| name.ends_with(ending)))
}

/// The last part of a path, as text.
pub(crate) fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}
