//! Creates directories for commands. Only the last component of a path is created, so that a typo
//! in the path doesn't create a tree of directories.

use std::io;
use std::path::Path;

use tprof_ui::errors::Failure;

use crate::terminal::quote;

/// Creates a directory that does not exist yet.
pub fn make(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    check_parent(path)?;
    std::fs::create_dir(path).map_err(|error: io::Error| {
        Failure::new(format!("cannot create the directory `{}`", path.display()))
            .because(&error, "-o with a writable directory")
    })
}

/// Returns an error if the directory that would contain the path does not exist.
pub fn check_parent(path: &Path) -> Result<(), Failure> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) if !parent.is_dir() => Err(no_directory(path, parent)),
        _ => Ok(()),
    }
}

/// Returns the error for a path whose parent directory does not exist.
pub fn no_directory(path: &Path, parent: &Path) -> Failure {
    let failure = Failure::new(format!("cannot write `{}`", path.display()));
    if parent.exists() {
        return failure
            .cause(format!("`{}` is not a directory", parent.display()))
            .hint("-o with another path");
    }
    failure
        .cause(format!("the directory `{}` does not exist", parent.display()))
        .hint(format!("mkdir -p {}", quote::word(parent.as_os_str())))
}
