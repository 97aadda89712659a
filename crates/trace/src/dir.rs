//! Opens a run directory as a whole: its files, and the ranks that the files belong to.

use crate::clock_line::ClockLine;
use crate::compile_log::COMPILE_DIRECTORY;
use crate::error::{Problem, TraceError};
use crate::file::TraceHeader;
use crate::info_file::{InfoFile, is_info_name, unwritten_marker};
use crate::plain_file::read_plain;
use crate::reader::TraceFile;
use crate::run::{RUN_VERSION, RunInfo};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A run: its rank files, its `run.json`, and the problems that occurred while reading them.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    files: Vec<RankFile>,
    infos: Vec<RunInfo>,
    problems: Vec<Problem>,
    clock_lines: HashMap<PathBuf, ClockLine>,
}

/// A trace file of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankFile {
    /// Path of the file.
    pub path: PathBuf,
    /// The file's owner, from the file's name.
    pub label: RankLabel,
    /// The rank that the file counts as. Normally this is the label's rank. If no file of the run
    /// has a rank, a file without one counts as rank 0. `None` for launchers.
    pub rank: Option<u32>,
    /// Number of ranks that the file's launcher started; `None` if it didn't say.
    pub world_size: Option<u32>,
}

/// The owner of a trace file. In sorted order, ranks come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankLabel {
    /// `rank-3.tprof`, or `rank-3.1.tprof` if that name was taken: the rank, and which start of the
    /// rank it is.
    Rank(u32, Start),
    /// `launcher-HOST.tprof`, or `launcher-HOST.1.tprof` if that name was taken: processes of a
    /// host that belong to no rank. The values are the host, and which of the host's files this
    /// is, from 1.
    Launcher(String, u32),
    /// `process-HOST-PID.tprof`: the file was opened before the rank was known, and never got a
    /// rank.
    Process(String),
}

/// Which start of a rank a file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    /// The first start of the first launch.
    First,
    /// The first start by another launch that shares the run; the second launch has number 2.
    Launch(u32),
    /// An elastic launcher had started the rank this many times before.
    Restart(u32),
}

impl Start {
    /// Converts the number in a file's name. Without a `run.json`, a further file counts as a
    /// restart.
    fn of_number(number: u32) -> Start {
        if number == 0 { Start::First } else { Start::Restart(number) }
    }
}

/// A log of `torch.compile` in a run; see [`crate::compile_log`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileLogFile {
    /// Path of the log.
    pub path: PathBuf,
    /// The process that wrote it.
    pub owner: CompileLogOwner,
}

/// The owner of a `torch.compile` log, from the log's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileLogOwner {
    /// `compile/host-HOST/`: a process on this host wrote the log, and the run recorded it.
    Host(String),
    /// `compile/rank-N/`: the log belongs to this rank of an import.
    Rank(u32),
}

impl RankLabel {
    /// Returns the owner that a file's name contains; `None` if tprof doesn't make such names.
    pub fn of_name(name: &str) -> Option<RankLabel> {
        let stem = name.strip_suffix(".tprof")?;
        if let Some(numbers) = stem.strip_prefix("rank-") {
            let (rank, number) = numbers.split_once('.').unwrap_or((numbers, "0"));
            let start = Start::of_number(number.parse().ok()?);
            return Some(RankLabel::Rank(rank.parse().ok()?, start));
        }
        if let Some(host) = stem.strip_prefix("launcher-") {
            return Some(RankLabel::Launcher(host.to_owned(), 1));
        }
        stem.strip_prefix("process-").map(|rest| RankLabel::Process(rest.to_owned()))
    }

    /// Returns the owner of a file that a person renamed, from the file's header.
    pub fn of_header(name: &str, header: &TraceHeader) -> RankLabel {
        match header.rank {
            Some(rank) => RankLabel::Rank(rank, Start::of_number(header.instance)),
            None => RankLabel::Process(name.strip_suffix(".tprof").unwrap_or(name).to_owned()),
        }
    }
}

impl RankFile {
    /// Sets the start, host and rank of each file of a run, and sorts the files: ranks in order,
    /// then launchers, then files without a rank. The caller must have set each label from the file's name.
    pub fn settle(files: &mut [RankFile], infos: &[RunInfo]) {
        RankFile::name_starts(files, infos);
        RankFile::name_hosts(files, infos);
        RankFile::size_worlds(files, infos);
        files.sort_by(|a, b| (&a.label, &a.path).cmp(&(&b.label, &b.path)));
        let ranked = files.iter().any(|file| matches!(file.label, RankLabel::Rank(..)));
        for file in files {
            file.rank = match file.label {
                RankLabel::Rank(rank, _) => Some(rank),
                RankLabel::Process(_) if !ranked => Some(0),
                _ => None,
            };
        }
    }

    /// Sets the start of each rank's file from the collectors' info files. The number in a file's
    /// name doesn't tell the start: it is the first number whose name was free.
    fn name_starts(files: &mut [RankFile], infos: &[RunInfo]) {
        let known = infos.iter().flat_map(|info| &info.ranks);
        let restarts: HashMap<&str, u32> =
            known.map(|rank| (rank.file.as_str(), rank.restarts)).collect();
        let mut launches: HashMap<(u32, u32), u32> = HashMap::new();
        // Sort the files by the numbers in their names.
        files.sort_by(|a, b| (&a.label, &a.path).cmp(&(&b.label, &b.path)));
        for file in files.iter_mut() {
            let RankLabel::Rank(rank, start) = &mut file.label else { continue };
            let name = file.path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let Some(restarts) = restarts.get(name) else { continue };
            let launch = launches.entry((*rank, *restarts)).or_default();
            *launch += 1;
            *start = match (*restarts, *launch) {
                (0, 1) => Start::First,
                (0, launch) => Start::Launch(launch),
                (restarts, _) => Start::Restart(restarts),
            };
        }
    }

    /// Sets for each file the number of ranks that its launcher started.
    fn size_worlds(files: &mut [RankFile], infos: &[RunInfo]) {
        let known = infos.iter().flat_map(|info| &info.ranks);
        let sizes: HashMap<&str, u32> =
            known.filter_map(|rank| Some((rank.file.as_str(), rank.size?))).collect();
        for file in files {
            let name = file.path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            file.world_size = sizes.get(name).copied();
        }
    }

    /// Separates the number in a launcher's file name from the host's name, which may contain dots.
    fn name_hosts(files: &mut [RankFile], infos: &[RunInfo]) {
        let hosts: HashSet<&str> = infos.iter().map(|info| info.host.as_str()).collect();
        for file in files.iter_mut() {
            let RankLabel::Launcher(host, number) = &mut file.label else { continue };
            let parts = host.rsplit_once('.').filter(|_| !hosts.contains(host.as_str()));
            let parts = parts.and_then(|(name, n)| Some((name.to_owned(), n.parse::<u32>().ok()?)));
            if let Some((name, n)) = parts.filter(|(name, _)| hosts.contains(name.as_str())) {
                (*host, *number) = (name, n.saturating_add(1));
            }
        }
    }
}

impl std::fmt::Display for RankLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RankLabel::Rank(rank, Start::First) => write!(f, "rank {rank}"),
            RankLabel::Rank(rank, Start::Launch(n)) => write!(f, "rank {rank}, launch {n}"),
            RankLabel::Rank(rank, Start::Restart(n)) => write!(f, "rank {rank}, restart {n}"),
            RankLabel::Launcher(host, 1) => write!(f, "launcher on {host}"),
            RankLabel::Launcher(host, n) => write!(f, "launcher {n} on {host}"),
            RankLabel::Process(process) => write!(f, "process {process}"),
        }
    }
}

impl RunDir {
    /// Opens a run directory, or one trace file as a run.
    ///
    /// A missing or damaged `run.json` (if the run was killed) is a problem but not an error, as
    /// long as there is a trace file.
    pub fn open(path: &Path) -> Result<RunDir, TraceError> {
        let metadata = fs::metadata(path).map_err(|source| io(path, "open", source))?;
        let mut run = RunDir {
            path: path.to_path_buf(),
            files: Vec::new(),
            infos: Vec::new(),
            problems: Vec::new(),
            clock_lines: HashMap::new(),
        };
        if metadata.is_dir() {
            run.read_directory()?;
        } else {
            run.read_file()?;
        }
        RankFile::settle(&mut run.files, &run.infos);
        Ok(run)
    }

    fn read_directory(&mut self) -> Result<(), TraceError> {
        let path = self.path.clone();
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(|source| io(&path, "read", source))? {
            names.push(entry.map_err(|source| io(&path, "read", source))?.file_name());
        }
        if names.is_empty() {
            return Err(TraceError::NoRun { path, why: "the directory is empty".to_owned() });
        }
        names.sort();
        for name in names.iter().filter_map(|name| name.to_str()) {
            let file = path.join(name);
            if name.ends_with(".tprof") {
                self.add(file);
            } else if is_info_name(name) {
                self.info(&file);
            }
        }
        if self.files.is_empty() && self.infos.is_empty() {
            let why = match self.problems.first() {
                Some(problem) => format!("it holds no trace file, and {}", problem.what),
                None => "the directory holds neither a trace file (`*.tprof`) nor a `run.json`"
                    .to_owned(),
            };
            return Err(TraceError::NoRun { path, why });
        }
        self.name_missing_files();
        if self.infos.is_empty() && self.problems.is_empty() {
            self.problem(
                "there is no `run.json`: the run was cut off before it was written".to_owned(),
            );
        }
        Ok(())
    }

    /// Reports missing files as problems. A collector that has ended wrote each file that its info
    /// file names, so such a file was removed later.
    fn name_missing_files(&mut self) {
        let is_there = |name: &str| self.files.iter().any(|file| file.path.ends_with(name));
        let ended = self.infos.iter().filter(|info| info.finished);
        let missing: Vec<String> = ended
            .flat_map(|info| &info.files)
            .filter(|name| !is_there(name))
            .map(|name| format!("`{}` is missing", self.path.join(name).display()))
            .collect();
        missing.into_iter().for_each(|what| self.problem(what));
    }

    fn read_file(&mut self) -> Result<(), TraceError> {
        let path = self.path.clone();
        // Check first whether this is a trace file, so that this error is reported before any
        // other.
        TraceFile::read_header(&path)?;
        let info = path.with_file_name("run.json");
        if info.exists() {
            self.info(&info);
        }
        self.add(path);
        Ok(())
    }

    /// Adds a trace file. If a person renamed it, its header names its owner.
    fn add(&mut self, path: PathBuf) {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let label = RankLabel::of_name(name).unwrap_or_else(|| {
            RankLabel::of_header(name, &TraceFile::read_header(&path).unwrap_or_default())
        });
        self.files.push(RankFile { path, label, rank: None, world_size: None });
    }

    fn info(&mut self, path: &Path) {
        let newer = |version: u64| {
            format!("it has version {version}; this tprof reads versions up to {RUN_VERSION}")
        };
        let why = match InfoFile::read(path) {
            InfoFile::Run(info) if info.version <= RUN_VERSION => {
                if info.is_changed {
                    let path = path.display();
                    self.problem(format!(
                        "`{path}` was changed after tprof wrote it: its checksum is wrong or missing"
                    ));
                }
                let marker = unwritten_marker(path);
                let unwritten = read_plain(&marker).ok().filter(|_| !info.finished);
                let unwritten =
                    unwritten.map(|why| String::from_utf8_lossy(&why).trim().to_owned());
                self.infos.push(RunInfo { unwritten, ..*info });
                return;
            }
            // This is a user's file that happens to be in the run's directory.
            InfoFile::Foreign if path.file_name() != Some(OsStr::new("run.json")) => return,
            InfoFile::Run(info) => newer(info.version.into()),
            InfoFile::Newer(version) => newer(version),
            InfoFile::Empty => "it is empty".to_owned(),
            InfoFile::Damaged(why) => why,
            InfoFile::Foreign => "no tprof wrote it".to_owned(),
        };
        self.problem(format!("`{}` cannot be read: {why}", path.display()));
    }

    fn problem(&mut self, what: String) {
        self.problems.push(Problem { offset: 0, what });
    }

    /// Corrects the times of files, by their paths, so that files of different hosts have times of
    /// one clock. Times count from the beginning of the run on each host's own clock.
    pub fn correct_clocks(&mut self, lines: HashMap<PathBuf, ClockLine>) {
        self.clock_lines = lines;
    }

    /// Returns the correction of a file's times; none by default.
    pub fn clock_line(&self, file: &Path) -> ClockLine {
        self.clock_lines.get(file).copied().unwrap_or_default()
    }

    /// Returns the path of the directory, or of the one file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the trace files: ranks in order, then launchers, then files without a rank.
    pub fn files(&self) -> &[RankFile] {
        &self.files
    }

    /// Returns the logs of `torch.compile`, in the order of their paths. Directories that can't be
    /// listed are left out.
    pub fn compile_logs(&self) -> Vec<CompileLogFile> {
        let base =
            if self.path.is_dir() { &self.path } else { self.path.parent().unwrap_or(&self.path) };
        let mut found = Vec::new();
        for directory in listed(&base.join(COMPILE_DIRECTORY)) {
            let name = directory.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let rank = || name.strip_prefix("rank-")?.parse().ok().map(CompileLogOwner::Rank);
            let host = || Some(CompileLogOwner::Host(name.strip_prefix("host-")?.to_owned()));
            let Some(of) = rank().or_else(host) else { continue };
            let is_log = |path: &PathBuf| {
                let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
                name.ends_with(".log") || name.ends_with(".log.zst")
            };
            let logs = listed(&directory).into_iter().filter(is_log);
            found.extend(logs.map(|path| CompileLogFile { path, owner: of.clone() }));
        }
        found
    }

    /// Returns what the collectors of this run wrote about it: `run.json` and every `run-*.json`.
    pub fn infos(&self) -> &[RunInfo] {
        &self.infos
    }

    /// Returns the problems that occurred while reading.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the reason if a part of the run can't be read, as far as this can be found without
    /// reading rows. A list of runs must not show such a run as whole.
    pub fn unreadable(&self) -> Option<String> {
        // A run that has just begun may have an empty file.
        let may_be_empty = !self.infos.iter().all(|info| info.finished);
        let counts =
            |error: &TraceError| !(may_be_empty && matches!(error, TraceError::Empty { .. }));
        let of_file = |file: &RankFile| TraceFile::read_header(&file.path).err().filter(counts);
        let of_files = || self.files.iter().find_map(of_file).map(|error| error.to_string());
        self.problems.first().map(|problem| problem.what.clone()).or_else(of_files)
    }
}

/// Returns a directory's entries, sorted.
fn listed(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn io(path: &Path, what: &'static str, source: std::io::Error) -> TraceError {
    TraceError::Io { path: path.to_path_buf(), what, source }
}
