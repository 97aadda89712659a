//! The history of the prompt, in the user's state directory and readable by the user only.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Number of statements to keep.
pub const MOST: usize = 1000;

/// Returns `$XDG_STATE_HOME/tprof/sql_history`, or the file below `~/.local/state`; `None` without
/// a home.
pub fn file() -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(absolute);
    let home = || std::env::var_os("HOME").map(PathBuf::from).filter(absolute);
    let state = state.or_else(|| Some(home()?.join(".local/state")))?;
    Some(state.join("tprof/sql_history"))
}

/// Creates the file and its directory if they are missing, readable by nobody else.
pub fn make(file: &Path) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(file).map(drop)
}
