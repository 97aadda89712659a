//! Where this user's caches are.

use std::path::PathBuf;

/// tprof's own folder in the user's cache; `None` without a home.
pub fn own() -> Option<PathBuf> {
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("tprof"))
}

/// Where unwind tables and symbols are kept between runs.
pub fn tables() -> Option<PathBuf> {
    own().map(|own| own.join("tables"))
}

/// The directory that a variable names, if its path is absolute.
pub fn absolute(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}
