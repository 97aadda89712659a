//! Directories that commands make: one, in a directory that is there, so that a slip
//! in a path makes no tree of them.

use std::io;
use std::path::Path;

use crate::terminal::errors::Failure;
use crate::terminal::quote;

/// Makes a directory that is not there yet.
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

/// Refuses a path in a directory that does not exist.
pub fn check_parent(path: &Path) -> Result<(), Failure> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) if !parent.is_dir() => Err(no_directory(path, parent)),
        _ => Ok(()),
    }
}

/// The directory in which something would lie is not there.
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
