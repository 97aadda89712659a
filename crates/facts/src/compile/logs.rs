//! Reads the `torch.compile` logs of one rank, and converts their times to the clock of the rank's
//! file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tprof_trace::compile_log::{
    self, Bounds, CompileId, CompileLog, CompiledFrame, KernelLanguage, LeftOut,
};

/// Largest total size of the logs that are read for a rank, in bytes. A rank has one log for each
/// of its processes.
const MOST_OF_RANK: usize = 256 << 20;

/// Advice on how to get a log, for reports that have none.
pub const NO_LOG: &str = "the run has no log of torch.compile: record one with `tprof run --compile`, or import one that \
                          TORCH_TRACE=DIR wrote: `tprof import DIR -o RUN`";

/// The logs of a rank.
#[derive(Debug, Default)]
pub struct RankCompile {
    /// The readable logs, in order of their paths.
    pub logs: Vec<ReadLog>,
    /// Problems with unreadable logs, and logs of unknown processes, as sentences without a full
    /// stop.
    pub problems: Vec<String>,
}

impl RankCompile {
    /// Reads the logs at these paths, without joining them to a file's clock.
    pub fn of_logs(paths: &[PathBuf]) -> RankCompile {
        RankCompile::of_logs_at(paths, None)
    }

    /// Like [`Self::of_logs`], for a file whose clock is known. `ahead_ns` is that clock minus the
    /// time since 1970.
    pub fn of_logs_at(paths: &[PathBuf], ahead_ns: Option<i128>) -> RankCompile {
        let mut found = RankCompile::default();
        paths.iter().for_each(|path| found.add(path, ahead_ns));
        found
    }

    /// Returns the lines of the user's source, `FILE:LINE`, from which device kernels were
    /// generated, by the kernel's name. If several graphs have a kernel of the same name, its entry
    /// has the lines of all of them.
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

    pub(super) fn add(&mut self, path: &Path, ahead_ns: Option<i128>) {
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
    /// Name of the log's file.
    pub name: String,
    /// The contents of the log.
    pub log: CompileLog,
    /// The rank file's clock minus the time since 1970, ns; `None` if the file has no wall time.
    ahead_ns: Option<i128>,
}

impl ReadLog {
    /// Converts a time of the log to the file's clock; `None` if the two are not joined.
    pub fn time_ns(&self, unix_us: u64) -> Option<u64> {
        u64::try_from(i128::from(unix_us) * 1000 + self.ahead_ns?).ok()
    }

    /// Returns the compilations by their ids, without backward graphs.
    pub fn forwards(&self) -> HashMap<CompileId, &CompiledFrame> {
        let forward = self.log.frames.iter().filter(|frame| !frame.is_backward);
        forward.map(|frame| (frame.id, frame)).collect()
    }

    /// Returns the beginning and end of a compilation. A compilation without an end lasts to the
    /// end of the log.
    pub fn interval_ns(&self, frame: &CompiledFrame) -> Option<(u64, u64)> {
        let start_us = frame.start_unix_us?;
        let end_us = match frame.total_us {
            Some(us) => start_us.saturating_add(us),
            None if frame.is_ended => frame.end_unix_us?.max(start_us),
            None => self.log.extent_unix_us?.1.max(start_us),
        };
        Some((self.time_ns(start_us)?, self.time_ns(end_us)?))
    }
}

/// Describes a problem with a log: damage, or missing parts.
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
        (
            names,
            "name of a file or graph with lines is",
            "names of files and graphs with lines are",
            "left out",
        ),
        (payloads, "payload is", "payloads are", "read up to 16 MiB"),
    ];
    for (count, one, more, what) in left_out.into_iter().filter(|(count, ..)| *count > 0) {
        parts.push(format!("{} {what}", crate::units::counted(count, one, more)));
    }
    (!parts.is_empty()).then(|| format!("`{name}`: {}", parts.join("; ")))
}

pub(super) fn base_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
