//! Prepares the run directory of a collector: creates the directory, joins it if other collectors
//! of the same job record there, or refuses it.

use super::first_info::identity;
use crate::config::{Config, IfExists};
use crate::directory::lock;
use crate::directory::names::RUN_LOCK;
use crate::error::CollectError;
use crate::output::keeping::{SEGMENTS, is_dump, is_segment};
use crate::output::ranks::Rank;
use crate::session::job::{JobId, Relation};
use crate::session::nccl_log;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tprof_os::sys;
use tprof_trace::compile_log::{COMPILE_DIRECTORY, LOG_PREFIX};
use tprof_trace::live::{further_infos, is_collector_alive, is_fresh};
use tprof_trace::run::RunInfo;
use tprof_trace::{InfoFile, is_info_name, is_trace_file, is_unwritten_name};

/// The run directory that a collector records into.
#[derive(Debug)]
pub struct RunPath {
    /// The directory that the user requested, or the next free name after it.
    pub directory: PathBuf,
    /// The reason why it isn't the requested directory; `None` if it is.
    pub renamed: Option<CollectError>,
}

/// Largest number of names that are tried before the run is refused.
const MAX_NAMES: u32 = 10_000;
/// Longest time that a rank waits while another rank of its job prepares the run directory.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// Creates the run directory of a launch, and this collector's info file in it.
///
/// The ranks of one job share a directory, and each rank may record into it once. A rank may join
/// an existing run if both belong to the same job. It may also join if a collector of that run is
/// still recording and their environments don't show different jobs. In all other cases
/// [`IfExists`] decides.
pub fn create(config: &Config) -> Result<(RunPath, PathBuf), CollectError> {
    let mut info = None;
    let path = settle(config, &mut |directory| {
        info = Some(open(directory, config)?);
        Ok(())
    })?;
    info.map(|info| (path, info)).ok_or_else(|| CollectError::RunExists(config.output.clone()))
}

/// Chooses the directory for processes that will be recorded later. Creates nothing, and removes an
/// existing run only with [`IfExists::Force`].
pub fn free(config: &Config) -> Result<RunPath, CollectError> {
    settle(config, &mut |directory| clear_finished_run(directory, config))
}

/// Calls `take` with the requested directory. If that fails because of another run, calls it with
/// the next names until it succeeds.
fn settle(
    config: &Config,
    take: &mut dyn FnMut(&Path) -> Result<(), CollectError>,
) -> Result<RunPath, CollectError> {
    let asked = &config.output;
    let refusal = match take(asked) {
        Ok(()) => return Ok(RunPath { directory: asked.clone(), renamed: None }),
        Err(error) => error,
    };
    if config.if_exists == IfExists::Fail || !refusal.is_run() {
        return Err(refusal);
    }
    let name = asked.file_name().unwrap_or_default();
    for number in 2..MAX_NAMES {
        let mut next = name.to_owned();
        next.push(format!("-{number}"));
        let directory = asked.with_file_name(next);
        match take(&directory) {
            Ok(()) => return Ok(RunPath { directory, renamed: Some(refusal) }),
            Err(error) if error.is_run() => {}
            Err(error) => return Err(error),
        }
    }
    Err(refusal)
}

/// Prepares a run directory for this collector, and returns the path of the collector's info file.
fn open(directory: &Path, config: &Config) -> Result<PathBuf, CollectError> {
    make(directory)?;
    let _turn = RankLock::take(directory, config.if_exists);
    if config.if_exists == IfExists::Join {
        return join(directory, config.redact);
    }
    let rank = Rank::of_process(std::process::id());
    // A second attempt is needed if another rank creates `run.json` between the two steps.
    for _ in 0..2 {
        let found = ExistingRun::read(directory)?;
        if found.names.is_empty() {
            match claim(&directory.join("run.json"), config.redact) {
                Err(CollectError::RunExists(_)) => continue,
                other => return other,
            }
        }
        let force = config.if_exists == IfExists::Force;
        let joined = match rank {
            Some(rank) => found.joined_by(rank, directory, force),
            None => Err(CollectError::RunExists(directory.to_owned())),
        };
        if joined.is_err() && force {
            found.remove(directory, |_| true)?;
        } else {
            joined?;
        }
        return join(directory, config.redact);
    }
    Err(CollectError::RunExists(directory.to_owned()))
}

/// Returns an error if a directory contains a run that this job can't join. With
/// [`IfExists::Force`], a run that is over is removed instead.
fn clear_finished_run(directory: &Path, config: &Config) -> Result<(), CollectError> {
    if !directory.exists() {
        return Ok(());
    }
    if !directory.is_dir() {
        return Err(CollectError::NotADirectory(directory.to_owned()));
    }
    let _turn = RankLock::take(directory, config.if_exists);
    let found = ExistingRun::read(directory)?;
    let rank = Rank::of_process(std::process::id());
    let joins = || rank.is_some_and(|rank| found.joined_by(rank, directory, false).is_ok());
    let is_live = found.begins || found.live(directory).is_some();
    let is_free = found.names.is_empty() || is_live && !found.is_of_another_job();
    match config.if_exists {
        _ if is_free || joins() => Ok(()),
        IfExists::Join => Ok(()),
        IfExists::Force => found.remove(directory, |_| true),
        IfExists::Rename | IfExists::Fail => Err(CollectError::RunExists(directory.to_owned())),
    }
}

/// Joins a run directory, and creates the directory if needed. Returns the path of a new info file
/// for this collector.
pub fn join(directory: &Path, redact: bool) -> Result<PathBuf, CollectError> {
    make(directory)?;
    match claim(&directory.join("run.json"), redact) {
        Err(CollectError::RunExists(_)) => {}
        other => return other,
    }
    for name in further_infos(&sys::host_name(), std::process::id()).take(MAX_NAMES as usize) {
        match claim(&directory.join(name), redact) {
            Err(CollectError::RunExists(_)) => {}
            other => return other,
        }
    }
    Err(CollectError::RunExists(directory.to_owned()))
}

/// Removes the files that [`create`] has created, if the run doesn't begin after all.
pub fn withdraw(directory: &Path, info: &Path) {
    let _ = fs::remove_file(info);
    let _ = fs::remove_dir(directory);
}

/// Makes the other ranks of a job wait while one prepares the directory with [`IfExists::Force`].
/// Otherwise a second rank might remove what the first has just created. The other modes remove
/// nothing and claim names by hard links, so even a thousand ranks need not wait for each other.
struct RankLock {
    held: Option<(PathBuf, fs::File)>,
}

impl RankLock {
    /// Waits for the lock. A lock must not stop a job, so this returns without it if the file
    /// system has no locks, or if another process holds it for longer than [`TURN_WAIT`].
    fn take(directory: &Path, if_exists: IfExists) -> RankLock {
        if if_exists != IfExists::Force {
            return RankLock { held: None };
        }
        let by = Instant::now() + TURN_WAIT;
        loop {
            match lock::lock(directory, RUN_LOCK) {
                Ok(Some(file)) => return RankLock { held: Some((directory.join(RUN_LOCK), file)) },
                Ok(None) if Instant::now() < by => std::thread::sleep(Duration::from_millis(2)),
                Ok(None) | Err(_) => return RankLock { held: None },
            }
        }
    }
}

impl Drop for RankLock {
    fn drop(&mut self) {
        // The file is removed while it is locked. A rank that has opened it finds out that the name
        // is gone, and creates a new file.
        if let Some((path, file)) = &self.held
            && file.metadata().is_ok_and(|about| about.len() == 0)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// The files of the run in a directory. Without a run there are none.
struct ExistingRun {
    /// Names of the files that collectors wrote.
    names: Vec<String>,
    /// The content of the collectors' info files.
    infos: Vec<RunInfo>,
    /// Whether a collector has just begun, so that its info file can't be read yet.
    begins: bool,
}

impl ExistingRun {
    fn read(directory: &Path) -> Result<ExistingRun, CollectError> {
        let mut found = ExistingRun { names: Vec::new(), infos: Vec::new(), begins: false };
        for name in run_files(directory)? {
            let path = directory.join(&name);
            if is_unwritten_name(&name) {
                found.names.push(name);
                continue;
            }
            if !is_info_name(&name) {
                if is_trace_file(&path).unwrap_or(true) {
                    found.names.push(name);
                }
                continue;
            }
            let file = InfoFile::read(&path);
            if file.is_own() {
                found.names.push(name);
            }
            match file {
                InfoFile::Run(info) => found.infos.push(*info),
                InfoFile::Empty | InfoFile::Newer(_) => found.begins |= is_fresh(&path),
                InfoFile::Damaged(_) | InfoFile::Foreign => {}
            }
        }
        Ok(found)
    }

    fn is_of_another_job(&self) -> bool {
        let own = JobId::own();
        self.infos.iter().any(|info| own.relation(info) == Relation::Other)
    }

    /// Returns a collector that is still recording into this run, if any is.
    fn live(&self, directory: &Path) -> Option<&RunInfo> {
        self.infos.iter().find(|info| is_collector_alive(info, directory))
    }

    /// Checks whether a rank may record into this run, and fails if it may not. If the run already
    /// has files of this rank, they are removed with `force`.
    fn joined_by(&self, rank: Rank, directory: &Path, force: bool) -> Result<(), CollectError> {
        let own = JobId::own();
        let relations: Vec<_> = self.infos.iter().map(|info| own.relation(info)).collect();
        let live = self.live(directory).is_some() || self.begins;
        if relations.contains(&Relation::Other) || !live && !relations.contains(&Relation::Same) {
            return Err(CollectError::OtherJob {
                path: directory.to_owned(),
                known: relations.contains(&Relation::Other),
            });
        }
        let is_own = |name: &str| is_of_rank(name, rank.number);
        // The names of the files don't tell which ranks the run has: the collector of a launcher
        // names its files after the ranks that the launcher started, whose numbers may be the same.
        let named = Some(rank.named());
        match self.infos.iter().any(|info| info.own_rank == named) {
            true if own.is_restarted() && relations.contains(&Relation::Same) => Ok(()),
            true if force => self.remove(directory, is_own),
            true => Err(CollectError::RunExists(directory.to_owned())),
            false => Ok(()),
        }
    }

    /// Removes the files whose names pass `which`, unless a collector is still writing one of them.
    fn remove(&self, directory: &Path, which: impl Fn(&str) -> bool) -> Result<(), CollectError> {
        let names: Vec<_> = self.names.iter().filter(|name| which(name)).collect();
        let writes = |info: &&RunInfo| {
            names.len() == self.names.len() || info.files.iter().any(|file| names.contains(&file))
        };
        let live =
            self.infos.iter().filter(|info| is_collector_alive(info, directory)).find(writes);
        if let Some(info) = live {
            let (path, pid) = (directory.to_owned(), info.collector_pid);
            return Err(CollectError::RunIsLive { path, pid });
        }
        let is_whole = names.len() == self.names.len();
        let mut logs = Vec::new();
        if is_whole {
            logs = compile_logs(directory);
            logs.extend(nccl_log::logs(directory));
        }
        if is_whole {
            remove_kept(directory);
        }
        for path in names.into_iter().map(|name| directory.join(name)).chain(logs) {
            match fs::remove_file(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                other => other.map_err(|source| CollectError::Unwritable { path, source })?,
            }
        }
        Ok(())
    }
}

/// Removes what a run with `--keep` has written besides its files: dumps, and the segments of one that
/// was killed. What else lies in these directories stays.
fn remove_kept(directory: &Path) {
    let within = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let is_kept = |name: &str| is_dump(name) || name.starts_with(SEGMENTS);
    let kept = within(directory).filter(|entry| is_kept(&entry.file_name().to_string_lossy()));
    for path in kept.map(|entry| entry.path()) {
        for entry in within(&path) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_own = name.ends_with(".tprof") || name.ends_with(".json") || is_segment(&name);
            if is_own {
                let _ = fs::remove_file(entry.path());
            }
        }
        let _ = fs::remove_dir(path);
    }
}

/// Returns the paths of the logs that PyTorch wrote for `torch.compile`. No info file lists them.
fn compile_logs(directory: &Path) -> Vec<PathBuf> {
    let within = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let of_owners = within(&directory.join(COMPILE_DIRECTORY)).flat_map(|of| within(&of.path()));
    let is_log = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(LOG_PREFIX) && (name.ends_with(".log") || name.ends_with(".log.zst"))
    };
    of_owners.map(|entry| entry.path()).filter(is_log).collect()
}

fn make(directory: &Path) -> Result<(), CollectError> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Ok(()) => Ok(()),
        Err(_) if directory.exists() && !directory.is_dir() => {
            Err(CollectError::NotADirectory(directory.to_owned()))
        }
        Err(source) => Err(CollectError::Unwritable { path: directory.to_owned(), source }),
    }
}

/// Creates an info file that must not exist yet. If it succeeds, this process owns the name. The
/// file appears together with its content, so that a rank that starts now can compare the jobs.
fn claim(path: &Path, redact: bool) -> Result<PathBuf, CollectError> {
    let taken = |path: &Path| CollectError::RunExists(path.to_owned());
    let unwritable = |source| CollectError::Unwritable { path: path.to_owned(), source };
    let text = serde_json::to_vec(&identity(redact)).unwrap_or_default();
    match link_new(path, &text) {
        Ok(()) => Ok(path.to_owned()),
        Err(LinkError::Taken) => Err(taken(path)),
        // The file system may not support hard links.
        Err(LinkError::Failed) => match create_new(path) {
            Ok(mut file) => {
                file.write_all(&text).map_err(unwritable)?;
                Ok(path.to_owned())
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(taken(path)),
            Err(source) => Err(unwritable(source)),
        },
    }
}

/// The reason why a file was not linked to its name.
enum LinkError {
    /// The name is taken.
    Taken,
    /// Any other error.
    Failed,
}

/// Writes a file under a temporary name and links it to `path`, so that it appears whole.
fn link_new(path: &Path, text: &[u8]) -> Result<(), LinkError> {
    // The temporary name must be random. Several hosts may have the same pid, and several
    // containers the same host name and pid.
    let fresh =
        path.with_extension(format!("json.{:016x}", RandomState::new().build_hasher().finish()));
    let Ok(mut file) = create_new(&fresh) else { return Err(LinkError::Failed) };
    let linked = file.write_all(text).map_err(|_| LinkError::Failed).and_then(|()| {
        fs::hard_link(&fresh, path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => LinkError::Taken,
            _ => LinkError::Failed,
        })
    });
    let _ = fs::remove_file(&fresh);
    linked
}

fn create_new(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Returns the names in a directory that look like files of a run.
fn run_files(directory: &Path) -> Result<Vec<String>, CollectError> {
    let unreadable = |source| CollectError::Unwritable { path: directory.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
        if is_info_name(&name) || is_unwritten_name(&name) || name.ends_with(".tprof") {
            names.push(name);
        }
    }
    Ok(names)
}

fn is_of_rank(name: &str, rank: u32) -> bool {
    let stem = format!("rank-{rank}.");
    name.starts_with(&stem) && name.ends_with("tprof")
}
