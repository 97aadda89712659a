//! Which files of a run directory tprof wrote.

use std::path::{Path, PathBuf};

/// Files that tprof writes into a run directory, by their whole names.
const NAMES: [&str; 10] = [
    "run.json",
    "report.html",
    "timeline.html",
    "flame.html",
    "flame.json",
    "stacks.folded",
    "tables.json.gz",
    "trace.pftrace.gz",
    "trace.pb.gz",
    "trace.speedscope.json",
];
/// Directories that exports write, and the ends of their files' names.
const DIRECTORIES: [(&str, &[&str]); 3] = [
    ("csv", &[".csv"]),
    ("parquet", &[".parquet", "_tprof.json"]),
    ("tensorboard", &[".pt.trace.json.gz"]),
];

/// The entries of a run directory.
#[derive(Debug, Default)]
pub struct Contents {
    /// Files that tprof wrote, those of its exports included, with their sizes.
    pub files: Vec<(PathBuf, u64)>,
    /// Directories of exports, empty once their files are gone.
    pub directories: Vec<PathBuf>,
    /// What is not tprof's.
    pub others: Vec<PathBuf>,
}

impl Contents {
    /// Of a run directory; of one that cannot be read, nothing.
    pub fn of(run: &Path) -> Contents {
        let mut contents = Contents::default();
        for entry in std::fs::read_dir(run).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(about) = entry.path().symlink_metadata() else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            if about.is_file() && is_own(&name) {
                contents.files.push((path, about.len()));
                continue;
            }
            match DIRECTORIES.iter().find(|(directory, _)| about.is_dir() && *directory == name) {
                Some((_, ends)) => contents.add_export(path, ends),
                None => contents.others.push(path),
            }
        }
        contents
    }

    /// A directory of an export; one with any other file in it is not tprof's.
    fn add_export(&mut self, directory: PathBuf, ends: &[&str]) {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let is_own = ends.iter().any(|end| name.to_string_lossy().ends_with(end));
            match path.symlink_metadata() {
                Ok(about) if about.is_file() && is_own => files.push((path, about.len())),
                _ => {
                    self.others.push(directory);
                    return;
                }
            }
        }
        self.files.extend(files);
        self.directories.push(directory);
    }

    /// Bytes of tprof's files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Whether a file's name is one that tprof gives.
fn is_own(name: &str) -> bool {
    let of_a_rank = ["rank-", "launcher-", "process-"].iter().any(|start| name.starts_with(start));
    let is_trace = name.ends_with(".tprof");
    let is_info = name.starts_with("run-") && name.ends_with(".json");
    // Exports of one rank each: `rank-0.trace.json.gz`.
    let is_export = of_a_rank && name.contains(".trace.json");
    NAMES.contains(&name) || is_trace || is_info || is_export
}
