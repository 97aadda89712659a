//! Whether the files of a run are what they were: names, sizes, times.

use std::ffi::OsStr;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustc_hash::FxHasher;
use tprof_trace::is_info_name;

/// Deepest directory of a run that is looked into: logs lie in `compile/HOST/FILE`.
const DEPTH: usize = 3;

/// State of a run's files: two stamps are equal if nothing was written in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// Returns the stamp of all files of a run. A file that cannot be read counts as absent.
    pub fn of(run: &Path) -> Stamp {
        let mut hasher = FxHasher::default();
        add(run, DEPTH, &mut hasher);
        Stamp(hasher.finish())
    }

    /// As [`Self::of`]; `None` of a directory without any file of a run, of which only the names
    /// are read: it may be a user's, with all that one has.
    pub fn of_run(directory: &Path) -> Option<Stamp> {
        let mut entries = fs::read_dir(directory).ok()?.flatten();
        entries.any(|entry| is_of_a_run(&entry.file_name())).then(|| Stamp::of(directory))
    }
}

/// Whether a file of this name makes a directory a run.
fn is_of_a_run(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.ends_with(".tprof") || is_info_name(name))
}

fn add(directory: &Path, depth: usize, hasher: &mut FxHasher) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut entries: Vec<_> = entries.flatten().map(|entry| (entry.file_name(), entry)).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, entry) in entries {
        // An export in the making.
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
