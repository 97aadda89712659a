//! Detects whether the files of a run changed, by a hash of their names, sizes and times.

use std::ffi::OsStr;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustc_hash::FxHasher;
use tprof_trace::is_info_name;

/// Largest depth of a run's directories: logs lie in `compile/HOST/FILE`.
const DEPTH: usize = 3;

/// State of a run's files. Two stamps are equal if nothing was written in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// Returns the stamp of all files of a run. A file that cannot be read counts as absent.
    pub fn of(run: &Path) -> Stamp {
        let mut hasher = FxHasher::default();
        add(run, DEPTH, &mut hasher);
        Stamp(hasher.finish())
    }

    /// Does the same as [`Self::of`], but returns `None` for a directory without any file of a run.
    /// Of such a directory only the names are read, because it may be a large one of the user.
    pub fn of_run(directory: &Path) -> Option<Stamp> {
        let mut entries = fs::read_dir(directory).ok()?.flatten();
        entries.any(|entry| is_of_a_run(&entry.file_name())).then(|| Stamp::of(directory))
    }
}

/// Whether a directory that contains a file of this name is a run.
fn is_of_a_run(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.ends_with(".tprof") || is_info_name(name))
}

fn add(directory: &Path, depth: usize, hasher: &mut FxHasher) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut entries: Vec<_> = entries.flatten().map(|entry| (entry.file_name(), entry)).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, entry) in entries {
        // A name that begins with a dot is that of an unfinished export.
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let Ok(about) = entry.metadata() else { continue };
        name.hash(hasher);
        (about.ino(), about.len(), about.mtime(), about.mtime_nsec()).hash(hasher);
        if about.is_dir() && depth > 1 {
            add(&entry.path(), depth - 1, hasher);
        }
    }
}
