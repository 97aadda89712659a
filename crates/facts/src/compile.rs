//! Logs of `torch.compile` in a run, by rank and on the clock of its file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tprof_trace::compile_log::{
    self, Bounds, CompileId, CompileLog, CompiledFrame, KernelLanguage, LOG_PREFIX, LeftOut,
};
use tprof_trace::run::RunInfo;
use tprof_trace::{CompileLogFile, CompileLogOwner, RankFile, RunDir, TraceFile};

/// How to get such a log, for reports that have none.
pub const NO_LOG: &str = "the run has no log of torch.compile: record one with `tprof run --compile`, or import one that \
                          TORCH_TRACE=DIR wrote: `tprof import DIR -o RUN`";

/// What is kept of all logs of a rank: a rank has a log for each of its processes.
const MOST_OF_RANK: usize = 256 << 20;

/// The logs of a rank.
#[derive(Debug, Default)]
pub struct RankCompile {
    /// Those that could be read, in order of their paths.
    pub logs: Vec<ReadLog>,
    /// What could not be read, or is of an unknown process, in sentences without a full stop.
    pub problems: Vec<String>,
}

impl RankCompile {
    /// Of logs by their paths, which no file's clock is joined to.
    pub fn of_logs(paths: &[PathBuf]) -> RankCompile {
        RankCompile::of_logs_at(paths, None)
    }

    /// As [`Self::of_logs`], where a file's clock is known: itself less the time since 1970, ns.
    pub fn of_logs_at(paths: &[PathBuf], ahead_ns: Option<i128>) -> RankCompile {
        let mut found = RankCompile::default();
        paths.iter().for_each(|path| found.add(path, ahead_ns));
        found
    }

    /// Lines of the user's source, `FILE:LINE`, that kernels on devices were generated from, by the
    /// kernel's name. Graphs that have a kernel of one name share it.
    pub fn kernel_sources(&self) -> HashMap<&str, Vec<&str>> {
        let mut found: HashMap<&str, Vec<&str>> = HashMap::new();
        let code = self.logs.iter().flat_map(|read| &read.log.code);
        for kernel in code.filter_map(|code| code.kernels.as_ref()).flatten() {
            if kernel.language != KernelLanguage::Triton || kernel.sources.is_empty() {
                continue;
            }
            let lines = found.entry(&kernel.name).or_default();
            for line in &kernel.sources {
                if !lines.contains(&line.as_str()) {
                    lines.push(line);
                }
            }
        }
        found
    }

    fn add(&mut self, path: &Path, ahead_ns: Option<i128>) {
        let name = base_name(path);
        let taken: usize = self.logs.iter().map(|read| read.log.kept_bytes).sum();
        let bounds = Bounds::default();
        let kept = bounds.kept.min(MOST_OF_RANK.saturating_sub(taken));
        match compile_log::open(path, Bounds { kept, ..bounds }) {
            Ok(log) => {
                self.problems.extend(problem_of(&log, &name));
                self.logs.push(ReadLog { name, log, ahead_ns });
            }
            Err(error) => self.problems.push(format!("`{name}` cannot be read: {error}")),
        }
    }
}

/// A log that was read.
#[derive(Debug)]
pub struct ReadLog {
    /// Its file's name.
    pub name: String,
    /// What it says.
    pub log: CompileLog,
    /// The rank file's clock less the time since 1970, ns; none where the file has no wall time.
    ahead_ns: Option<i128>,
}

impl ReadLog {
    /// A time of the log on the file's clock; none where nothing joins them.
    pub fn time_ns(&self, unix_us: u64) -> Option<u64> {
        u64::try_from(i128::from(unix_us) * 1000 + self.ahead_ns?).ok()
    }

    /// The compilation of each number, without backward graphs.
    pub fn forwards(&self) -> HashMap<CompileId, &CompiledFrame> {
        let forward = self.log.frames.iter().filter(|frame| !frame.is_backward);
        forward.map(|frame| (frame.id, frame)).collect()
    }

    /// When a compilation began and ended. One without an end lasts to the end of the log.
    pub fn interval_ns(&self, frame: &CompiledFrame) -> Option<(u64, u64)> {
        let start_us = frame.start_unix_us?;
        let end_us = match frame.total_us {
            Some(us) => start_us.saturating_add(us),
            None => self.log.extent_unix_us?.1.max(start_us),
        };
        Some((self.time_ns(start_us)?, self.time_ns(end_us)?))
    }
}

/// Reads the logs of one of a run's files.
pub fn of_rank(dir: &RunDir, file: &RankFile, trace: &TraceFile) -> RankCompile {
    let mut found = RankCompile::default();
    for log in dir.compile_logs() {
        let owner = owner(dir, &log, trace);
        let is_named = owner.as_ref().is_some_and(|(path, _)| *path == file.path);
        if !is_named {
            continue;
        }
        if owner.is_some_and(|(_, is_guess)| is_guess) {
            found.problems.push(format!(
                "`{}` is of a process that was not recorded: listed under {}",
                base_name(&log.path),
                file.label
            ));
        }
        let header = trace.header();
        let ahead = || i128::from(header.start_ns) - i128::from(header.start_unix_ns);
        found.add(&log.path, (header.start_unix_ns > 0).then(ahead));
    }
    found
}

/// What is wrong with a log, or missing from it.
fn problem_of(log: &CompileLog, name: &str) -> Option<String> {
    let mut parts = Vec::new();
    if log.bytes_not_kept > 0 {
        parts.push(format!("{} were not kept", crate::units::bytes(log.bytes_not_kept)));
    }
    if log.damaged > 0 {
        parts.push(format!(
            "{} damaged",
            crate::units::counted(log.damaged, "line is", "lines are")
        ));
    }
    if log.is_cut {
        parts.push("it ends within a line: its process was killed, or still writes it".to_owned());
    }
    if log.is_read_in_part {
        let read = crate::units::bytes(log.bytes);
        parts.push(format!("it is longer than the {read} that were read of it"));
    }
    let LeftOut { rows, parts: texts, names, payloads } = log.left_out;
    let left_out = [
        (
            rows,
            "event is",
            "events are",
            "left out of compilations, breaks, look-ups, graphs and code",
        ),
        (
            texts,
            "text, operator or kernel is",
            "texts, operators and kernels are",
            "left out of these",
        ),
        (names, "name of a file is", "names of files are", "left out"),
        (payloads, "payload is", "payloads are", "read up to 16 MiB"),
    ];
    for (count, one, more, what) in left_out.into_iter().filter(|(count, ..)| *count > 0) {
        parts.push(format!("{} {what}", crate::units::counted(count, one, more)));
    }
    (!parts.is_empty()).then(|| format!("`{name}`: {}", parts.join("; ")))
}

/// The file whose rank wrote a log, and whether that is a guess.
fn owner(dir: &RunDir, log: &CompileLogFile, trace: &TraceFile) -> Option<(PathBuf, bool)> {
    let of_rank = |rank: u32| dir.files().iter().find(|file| file.rank == Some(rank));
    let host = match &log.of {
        CompileLogOwner::Rank(rank) => {
            return of_rank(*rank).map(|file| (file.path.clone(), false));
        }
        CompileLogOwner::Host(host) => host,
    };
    let infos = || dir.infos().iter().filter(|info| info.host == *host);
    if let Some(pid) = compile_log::process_of(&log.path) {
        let of_info = |info: &RunInfo| {
            let process = info.processes.iter().find(|process| process.pid == pid)?;
            let name = process.file.as_deref()?;
            dir.files().iter().find(|file| base_name(&file.path) == name)
        };
        if let Some(file) = infos().find_map(of_info) {
            return Some((file.path.clone(), false));
        }
        // The run was cut off before its description was written.
        if infos().next().is_none() && trace.processes().iter().any(|process| process.pid == pid) {
            return Some((trace.path().to_path_buf(), false));
        }
    }
    // In a container with process numbers of its own the name may still have the rank.
    if let Some(file) = rank_of_name(&log.path).and_then(of_rank) {
        return Some((file.path.clone(), false));
    }
    let ranked = dir.files().iter().filter(|file| file.rank.is_some());
    let first = ranked.clone().next().or_else(|| dir.files().first())?;
    // Of a single rank it can be of no other.
    Some((first.path.clone(), ranked.count() > 1))
}

/// The rank in a log's name: `dedicated_log_torch_trace_rank_3_x.log`.
pub fn rank_of_name(path: &Path) -> Option<u32> {
    let name = base_name(path);
    let rest = name.strip_prefix(LOG_PREFIX)?.strip_prefix("rank_")?;
    rest.split('_').next()?.parse().ok()
}

fn base_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
