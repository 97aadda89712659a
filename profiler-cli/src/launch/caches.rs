//! Paths of the user's caches.

use std::path::PathBuf;

/// Returns tprof's directory in the user's cache; `None` without a home directory.
pub fn own() -> Option<PathBuf> {
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("tprof"))
}

/// Returns the directory in which unwind tables and symbols are cached between runs.
pub fn tables() -> Option<PathBuf> {
    own().map(|own| own.join("tables"))
}

/// Returns the directory that a variable names; `None` if it isn't an absolute path.
pub fn absolute(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}
