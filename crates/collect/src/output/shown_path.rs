//! How paths are shown in a trace whose directories may not be kept.

use std::path::Path;

/// Returns what follows the last slash of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns a path as the trace shows it; with `redact`, only the name of the file.
pub fn shown_path(path: &Path, redact: bool) -> String {
    match path.file_name() {
        Some(name) if redact => name.to_string_lossy().into_owned(),
        _ => path.to_string_lossy().into_owned(),
    }
}
