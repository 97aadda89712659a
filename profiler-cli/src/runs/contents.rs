//! Finds out which files of a run directory were written by tprof.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::kineto::{HOME, is_window};
use tprof_collect::{control, keeping};
use tprof_trace::compile_log::COMPILE_DIRECTORY;
use tprof_trace::live::is_fresh;
use tprof_trace::run::RUN_VERSION;
use tprof_trace::{
    InfoFile, RankLabel, is_info_name, is_trace_file, is_unwritten_name, open_plain,
};

/// Names of the files that exports write into a run directory, and of the notes that users write in
/// `tprof serve`.
const NAMES: [&str; 10] = [
    "tprof-notes.json",
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
/// Marker that a Parquet export writes next to its tables.
const PARQUET_MARKER: &str = "_tprof.json";

/// The entries of a run directory.
#[derive(Debug, Default)]
pub struct RunContents {
    /// Files that tprof wrote, including exports, with their sizes.
    pub files: Vec<(PathBuf, u64)>,
    /// Directories of exports, which will be empty when their files are removed; inner directories
    /// come first.
    pub directories: Vec<PathBuf>,
    /// Files that tprof did not write.
    pub others: Vec<PathBuf>,
    /// A file that this build cannot read, and that a collector may be writing.
    pub unread: Option<PathBuf>,
}

impl RunContents {
    /// Lists the contents of a run directory.
    ///
    /// If a path cannot be read, returns it with the error.
    pub fn of(run: &Path) -> Result<RunContents, (PathBuf, io::Error)> {
        let mut contents = RunContents::default();
        for (path, name, about) in entries(run)? {
            if about.is_dir() {
                contents.add_directory(path, &name)?;
            } else if about.is_file() && contents.is_own(&path, &name)? {
                contents.files.push((path, about.len()));
            } else {
                contents.others.push(path);
            }
        }
        Ok(contents)
    }

    /// Whether tprof wrote a file. The name decides. If a user could have chosen the same name, the
    /// content must match too.
    fn is_own(&mut self, path: &Path, name: &str) -> Result<bool, (PathBuf, io::Error)> {
        if name.ends_with(".tprof") {
            return is_trace_file(path).map_err(|error| (path.to_owned(), error));
        }
        if is_unwritten_name(name) {
            return Ok(true);
        }
        if is_info_name(name) {
            let file = InfoFile::read(path);
            let is_read = match &file {
                InfoFile::Run(info) => info.version <= RUN_VERSION,
                InfoFile::Foreign => true,
                InfoFile::Newer(_) | InfoFile::Empty | InfoFile::Damaged(_) => false,
            };
            if !is_read && is_fresh(path) {
                self.unread = Some(path.to_owned());
            }
            return Ok(file.is_own());
        }
        for kind in ["snapshot", "hang", "slow-step"] {
            let numbered = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-'));
            if let Some(number) = numbered.and_then(|rest| rest.strip_suffix(".json"))
                && number.parse::<u32>().is_ok()
            {
                return is_of_kind(path, kind).map_err(|error| (path.to_owned(), error));
            }
        }
        let of_a_file = name.strip_suffix(".trace.json.gz").is_some_and(is_stem);
        Ok(NAMES.contains(&name) || of_a_file)
    }

    /// Adds a directory. It counts as tprof's only if tprof wrote everything in it.
    fn add_directory(&mut self, path: PathBuf, name: &str) -> Result<(), (PathBuf, io::Error)> {
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        let is_own = match name {
            "csv" => files_in(&path, &mut files, |name| is_of(name, ".csv", is_table))?,
            "tensorboard" => tensorboard(&path, &mut files, &mut directories)?,
            "parquet" if path.join(PARQUET_MARKER).is_file() => {
                parquet(&path, &mut files, &mut directories)?
            }
            name if keeping::is_dump(name) => {
                let within = RunContents::of(&path)?;
                self.unread = self.unread.take().or(within.unread);
                (files, directories) = (within.files, within.directories);
                within.others.is_empty()
            }
            name if name.starts_with(keeping::SEGMENTS) => {
                files_in(&path, &mut files, keeping::is_segment)?
            }
            // The windows of PyTorch's profiler are a run within the run.
            HOME => {
                let mut within = RunContents::of(&path)?;
                self.unread = self.unread.take().or(within.unread);
                // Traces that arrived after their collector had died were never imported, but count
                // as tprof's files.
                let late = within.others.extract_if(.., |path| {
                    path.file_name().is_some_and(|name| is_window(&name.to_string_lossy()))
                });
                let late: Vec<_> = late.collect();
                files = within.files;
                for path in late {
                    let about = path.metadata().map_err(|error| (path.clone(), error))?;
                    files.push((path, about.len()));
                }
                directories = within.directories;
                within.others.is_empty()
            }
            COMPILE_DIRECTORY => compile_logs(&path, &mut files, &mut directories)?,
            control::ASKED => files_in(&path, &mut files, control::is_of_request)?,
            _ => false,
        };
        // If a launcher or a command was killed, empty directories are left.
        let may_be_empty = matches!(name, COMPILE_DIRECTORY | control::ASKED)
            || keeping::is_dump(name)
            || name.starts_with(keeping::SEGMENTS);
        if is_own && (!files.is_empty() || may_be_empty) {
            self.files.extend(files);
            self.directories.extend(directories);
            self.directories.push(path);
        } else {
            self.others.push(path);
        }
        Ok(())
    }

    /// Returns the total size of tprof's files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// An entry of a directory: path, name and metadata. The metadata of a link is that of the link
/// itself.
type Entry = (PathBuf, String, std::fs::Metadata);

fn entries(directory: &Path) -> Result<Vec<Entry>, (PathBuf, io::Error)> {
    let failed = |error| (directory.to_owned(), error);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // An entry that was deleted since the directory was listed is skipped.
        let Ok(about) = entry.path().symlink_metadata() else { continue };
        entries.push((entry.path(), entry.file_name().to_string_lossy().into_owned(), about));
    }
    Ok(entries)
}

/// Whether a file has an answer of this kind: by `tprof ctl snapshot`, or about a hang or a slow step. The first
/// bytes decide.
fn is_of_kind(path: &Path, kind: &str) -> io::Result<bool> {
    let mut first = Vec::new();
    open_plain(path)?.take(256).read_to_end(&mut first)?;
    Ok(String::from_utf8_lossy(&first).contains(&format!("\"kind\": \"{kind}\"")))
}

/// Collects the files of a directory. Returns whether all of its entries are such files.
fn files_in(
    directory: &Path,
    files: &mut Vec<(PathBuf, u64)>,
    is_own: impl Fn(&str) -> bool,
) -> Result<bool, (PathBuf, io::Error)> {
    for (path, name, about) in entries(directory)? {
        if !about.is_file() || !is_own(&name) {
            return Ok(false);
        }
        files.push((path, about.len()));
    }
    Ok(true)
}

/// Collects logs of `torch.compile`, in a directory per host or rank. Returns whether the directory
/// has no other entries.
fn compile_logs(
    directory: &Path,
    files: &mut Vec<(PathBuf, u64)>,
    directories: &mut Vec<PathBuf>,
) -> Result<bool, (PathBuf, io::Error)> {
    let is_log = |name: &str| name.ends_with(".log") || name.ends_with(".log.zst");
    for (path, name, about) in entries(directory)? {
        let is_owner = name.starts_with("host-") || name.starts_with("rank-");
        if !about.is_dir() || !is_owner || !files_in(&path, files, is_log)? {
            return Ok(false);
        }
        directories.push(path);
    }
    Ok(true)
}

/// Collects an export for TensorBoard: traces, and a directory of curves per rank. Returns whether
/// the directory has no other entries.
fn tensorboard(
    directory: &Path,
    files: &mut Vec<(PathBuf, u64)>,
    directories: &mut Vec<PathBuf>,
) -> Result<bool, (PathBuf, io::Error)> {
    for (path, name, about) in entries(directory)? {
        if about.is_file() && (is_of(&name, ".pt.trace.json.gz", is_stem) || is_curves(&name)) {
            files.push((path, about.len()));
        } else if about.is_dir() && is_stem(&name) && files_in(&path, files, is_curves)? {
            directories.push(path);
        } else {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a file of curves was written by tprof; the names of the job's own event files have other
/// endings.
fn is_curves(name: &str) -> bool {
    is_of(name, ".tprof", |stem| stem.starts_with("events.out.tfevents."))
}

/// Collects a Parquet export, `TABLE/rank=N/FILE.parquet` or `TABLE/FILE.parquet`. Returns whether
/// the directory has no other entries.
fn parquet(
    directory: &Path,
    files: &mut Vec<(PathBuf, u64)>,
    directories: &mut Vec<PathBuf>,
) -> Result<bool, (PathBuf, io::Error)> {
    for (table, name, about) in entries(directory)? {
        if about.is_file() && name == PARQUET_MARKER {
            files.push((table, about.len()));
            continue;
        }
        if !about.is_dir() || !is_table(&name) {
            return Ok(false);
        }
        for (rank, name, about) in entries(&table)? {
            if about.is_file() && name.ends_with(".parquet") {
                files.push((rank, about.len()));
                continue;
            }
            let is_rank = about.is_dir() && name.starts_with("rank=");
            if !is_rank || !files_in(&rank, files, |name| is_of(name, ".parquet", is_stem))? {
                return Ok(false);
            }
            directories.push(rank);
        }
        directories.push(table);
    }
    Ok(true)
}

fn is_of(name: &str, end: &str, is_stem: impl Fn(&str) -> bool) -> bool {
    name.strip_suffix(end).is_some_and(is_stem)
}

fn is_table(name: &str) -> bool {
    tprof_tables::is_table(name)
}

/// Whether exports derive this name from a file of a run: `rank-3`, `rank-3.1`, `rank-3-launch-2`.
fn is_stem(name: &str) -> bool {
    let launch = name.rsplit_once("-launch-").filter(|(_, number)| number.parse::<u32>().is_ok());
    let stem = launch.map_or(name, |(stem, _)| stem);
    RankLabel::of_name(&format!("{stem}.tprof")).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_files_with_similar_names_are_not_tprofs() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        for name in ["csv", "parquet", "parquet/spans", "tensorboard"] {
            std::fs::create_dir(run.join(name)).unwrap();
        }
        let users = [
            "csv/dataset.csv",
            "parquet/spans/part-0.parquet",
            "tensorboard/mine.pt.trace.json.gz",
            "tensorboard/events.out.tfevents.1795488291.host",
            "rank-table.trace.json.txt",
            "rank-table.trace.json.gz",
            "run-config.json",
            "own.tprof",
            "lock",
        ];
        for name in users {
            std::fs::write(run.join(name), r#"{"lr": 0.1}"#).unwrap();
        }
        let contents = RunContents::of(run).unwrap();
        assert!(contents.files.is_empty(), "{contents:?}");
        assert!(contents.directories.is_empty() && contents.unread.is_none(), "{contents:?}");
        std::fs::create_dir(run.join(HOME)).unwrap();
        for (name, is_own) in [("window_7.json", true), ("results.json", false)] {
            std::fs::write(run.join(HOME).join(name), "{}").unwrap();
            let contents = RunContents::of(run).unwrap();
            assert_eq!(contents.directories == [run.join(HOME)], is_own, "{contents:?}");
            assert_eq!(contents.files.len(), usize::from(is_own), "{contents:?}");
        }
        let of_exports = [("rank-3-launch-2", true), ("rank-3.1", true), ("rank-table", false)];
        for (name, is_own) in of_exports {
            assert_eq!(is_stem(name), is_own, "{name}");
        }
    }
}
