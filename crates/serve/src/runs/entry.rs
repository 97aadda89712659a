//! The facts about a run that are known before any of its events is read.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tprof_trace::live::is_collector_alive;
use tprof_trace::run::{Completeness, ProcessInfo, RunInfo};
use tprof_trace::{RunDir, TraceFile, is_info_name, is_trace_file, open_plain};

use super::beneath;

/// Largest `run.json` to read, bytes. A collector's files are smaller: that of 1,024 ranks with 20
/// processes each has 8 MB.
const MAX_INFO_BYTES: u64 = 32 << 20;
/// Largest number of JSON values in a `run.json` to read. The number is limited too, because a
/// value takes at least 32 bytes in memory but as little as two in the file.
const MAX_INFO_VALUES: usize = 1 << 20;
/// `run.json` files up to this total size cannot have [`MAX_INFO_VALUES`] values, so their values
/// are not counted.
const SMALL_INFO_BYTES: u64 = 1 << 20;

/// A run, described by its `run.json` and the names of its files.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Path for other tprof commands.
    pub path: PathBuf,
    /// Command line of the job.
    pub command: Vec<String>,
    /// `running`, `finished`, `cut off` or `damaged`.
    pub state: &'static str,
    /// Why the run is damaged, or which part cannot be read.
    pub why: Option<String>,
    /// Why no file of the run may be read: a link leads out of the run, or an entry is not a file.
    pub refused: Option<String>,
    /// When the run began, ns since 1970.
    pub start_unix_ns: Option<u64>,
    /// Duration of a finished run.
    pub wall_ns: Option<u64>,
    /// Names of the run's hosts.
    pub hosts: Vec<String>,
    /// Number of different ranks.
    pub ranks: usize,
    /// Number of processes, if a collector counted them.
    pub processes: Option<usize>,
    /// Total bytes of the run's files.
    pub bytes: u64,
    /// Number of recorded events.
    pub recorded: u64,
    /// Number of events known to be lost; unknown for a run that cannot be read completely.
    pub lost: Option<u64>,
    /// Whether nothing is missing but what the user left out.
    pub complete: bool,
    /// How the job failed, if it did.
    pub failed: Option<String>,
    /// Commit of the job's working tree.
    pub commit: Option<String>,
}

impl Entry {
    /// Reads a run; `None` if the directory is not a run.
    pub fn read(path: &Path) -> Option<Entry> {
        let listed = match Listed::of(path) {
            Ok(listed) if listed.is_run => listed,
            _ => return None,
        };
        let mut entry = Entry { path: path.to_owned(), bytes: listed.bytes, ..Entry::default() };
        if let Some(why) = listed.refused {
            entry.state = "damaged";
            entry.why = Some(why.clone());
            entry.refused = Some(why);
            return Some(entry);
        }
        match RunDir::open(path) {
            Ok(run) => entry.fill(&run),
            Err(error) => {
                entry.state = "damaged";
                entry.why = Some(error.to_string());
            }
        }
        Some(entry)
    }

    fn fill(&mut self, run: &RunDir) {
        let infos = run.infos();
        let is_finished = !infos.is_empty() && infos.iter().all(|info| info.finished);
        let is_live = infos.iter().any(|info| is_collector_alive(info, run.path()));
        self.state = match (is_finished, is_live) {
            (true, _) => "finished",
            (false, true) => "running",
            (false, false) => "cut off",
        };
        self.why = run.unreadable();
        self.command = infos.first().map(|info| info.command.clone()).unwrap_or_default();
        let starts = infos.iter().map(|info| info.start_unix_ns).filter(|ns| *ns > 0);
        self.start_unix_ns = starts.min().or_else(|| {
            let headers = run.files().iter().filter_map(|f| TraceFile::read_header(&f.path).ok());
            headers.map(|header| header.start_unix_ns).filter(|ns| *ns > 0).min()
        });
        let walls =
            infos.iter().filter_map(|info| Some(info.end_ns?.saturating_sub(info.start_ns)));
        self.wall_ns = walls.max().filter(|_| is_finished);
        self.hosts = infos.iter().map(|info| info.host.clone()).collect();
        self.hosts.sort();
        self.hosts.dedup();
        let mut ranks: Vec<u32> = run.files().iter().filter_map(|file| file.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        self.ranks = ranks.len();
        self.processes =
            (!infos.is_empty()).then(|| infos.iter().map(RunInfo::process_count).sum());
        let of = || infos.iter().map(|info| &info.completeness);
        self.recorded = of().map(|of| of.recorded).sum();
        self.lost = self.why.is_none().then(|| of().map(|of| of.lost).sum());
        self.complete = is_finished && self.why.is_none() && of().all(Completeness::is_as_asked);
        self.failed = infos.iter().find_map(failure);
        self.commit = infos.iter().find_map(|info| info.commit.clone());
    }
}

/// Describes how the launched program ended, if it failed.
fn failure(info: &RunInfo) -> Option<String> {
    let pids: Vec<u32> = info.processes.iter().map(|one| one.pid).collect();
    let is_first = |one: &&ProcessInfo| !pids.contains(&one.parent) && one.ended_by != "exec";
    let launched = info.processes.iter().filter(is_first).min_by_key(|one| one.start_ns)?;
    match (launched.exit_status, launched.signal) {
        (Some(status), _) if status != 0 => Some(format!("exit {status}")),
        (_, Some(signal)) => Some(match nix::sys::signal::Signal::try_from(signal) {
            Ok(signal) => signal.as_str().to_owned(),
            Err(_) => format!("signal {signal}"),
        }),
        _ => None,
    }
}

/// The entries of a directory.
struct Listed {
    is_run: bool,
    bytes: u64,
    /// Why no file of the run is read.
    refused: Option<String>,
}

impl Listed {
    fn of(path: &Path) -> io::Result<Listed> {
        let mut listed = Listed { is_run: false, bytes: 0, refused: None };
        let mut beneath = None;
        let mut infos = Infos::default();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            let shown = name.to_string_lossy();
            let is_info = is_info_name(&shown);
            let is_trace = shown.ends_with(".tprof");
            let about = entry.metadata()?;
            if about.is_file() {
                listed.bytes += about.len();
            }
            if !is_info && !is_trace {
                continue;
            }
            if about.is_symlink() {
                if beneath.is_none() {
                    beneath = Some(beneath::directory(path)?);
                }
                let Some(directory) = &beneath else { continue };
                if let Err(error) = beneath::open(directory, Path::new(&name)) {
                    let why = format!("`{shown}` is a link that is not followed: {error}");
                    listed.refused = Some(why);
                    listed.is_run = true;
                    continue;
                }
            } else if !about.is_file() {
                listed.refused = Some(format!("`{shown}` is not a file"));
                continue;
            }
            if is_info {
                infos.add(entry.path())?;
            }
            // The file's content decides, because a user's files may have the same endings.
            listed.is_run |= is_info || is_trace_file(&entry.path()).unwrap_or(true);
        }
        listed.refused = listed.refused.or(infos.refused());
        Ok(listed)
    }
}

/// The `run.json` files of a run.
#[derive(Default)]
struct Infos {
    paths: Vec<PathBuf>,
    bytes: u64,
}

impl Infos {
    fn add(&mut self, path: PathBuf) -> io::Result<()> {
        self.bytes += fs::metadata(&path)?.len();
        self.paths.push(path);
        Ok(())
    }

    /// Returns an error message if the files are too large to be read.
    fn refused(&self) -> Option<String> {
        if self.bytes > MAX_INFO_BYTES {
            return Some(format!("its run.json is too large: {} bytes", self.bytes));
        }
        if self.bytes <= SMALL_INFO_BYTES {
            return None;
        }
        let counted: io::Result<usize> = self.paths.iter().map(|path| most_values(path)).sum();
        match counted {
            Ok(values) if values <= MAX_INFO_VALUES => None,
            Ok(values) => Some(format!("its run.json is too large: up to {values} values")),
            Err(error) => Some(format!("its run.json cannot be read: {error}")),
        }
    }
}

/// Returns an upper bound of the number of values in a JSON text without parsing it. Counts
/// separators and opening brackets, even within texts.
fn most_values(path: &Path) -> io::Result<usize> {
    let mut file = open_plain(path)?.take(MAX_INFO_BYTES);
    let mut piece = [0; 64 << 10];
    let mut values = 1;
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(values),
            count => {
                let of_value = |byte: &&u8| matches!(byte, b',' | b'[' | b'{');
                values += piece[..count].iter().filter(of_value).count();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::run::RUN_VERSION;
    use tprof_trace::{TraceHeader, TraceWriter, info_text};

    #[test]
    fn losses_of_a_run_without_run_json_are_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let info = RunInfo {
            version: RUN_VERSION,
            finished: true,
            files: vec!["rank-0.tprof".to_owned()],
            ..RunInfo::default()
        };
        fs::write(directory.path().join("run.json"), info_text(&info).unwrap()).unwrap();
        let file = directory.path().join("rank-0.tprof");
        let read = || {
            let entry = Entry::read(directory.path()).unwrap();
            assert_eq!(entry.complete, entry.lost == Some(0), "{entry:?}");
            assert_eq!(entry.complete, entry.why.is_none(), "{entry:?}");
            entry.complete
        };
        assert!(!read(), "it is missing");
        fs::write(&file, "").unwrap();
        assert!(!read(), "it is empty");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(!read(), "it is a directory");
        fs::remove_dir(&file).unwrap();
        TraceWriter::create(&file, &TraceHeader::default()).unwrap();
        assert!(read());
    }
}
