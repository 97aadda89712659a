//! A run as a whole: the report that every command prints from.

pub mod gpu;

use std::path::{Path, PathBuf};

use serde::Serialize;
use tprof_trace::run::RunInfo;
use tprof_trace::{RankFile, RunDir, SymbolSource, TraceError, TraceFile};

use crate::base::clock::Clock;
use crate::base::parallel;
use crate::base::reading::{Reading, object};
use crate::base::units;
use crate::document::{Named, Options, RankAt};
use crate::findings::lines::{self, Line};
use crate::findings::{self, RankFindings};
use crate::gpu::utilization::{self, Sampled};
use crate::memory::killed::Death;
use crate::memory::timeline::{Cgroup, Timeline};
use crate::memory::{HostMemory, rank_memory};
use crate::rank::{Needs, RankTrace};
use crate::report::pass::{Wanted, read_together};
use crate::run::completeness::{Completeness, Seen};
use crate::run::overhead::Overhead;
use crate::run::processes::{self, ProcessRow};
use gpu::Gpu;

/// Version of the JSON that reports print.
pub const REPORT_VERSION: u32 = 1;

/// Why the report on memory has no figures of devices.
const NOT_IN_MEMORY: &str = "the summary has it";

/// Sites per rank in a summary.
const SUMMARY_SITES: usize = 5;

/// Which report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Wall time, processes, ranks, completeness, overhead, memory in short.
    Summary,
    /// Memory in full.
    Memory,
}

/// What was run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Run directory, or the one file that was opened.
    pub path: PathBuf,
    /// Command line; empty if attached by hand.
    pub command: Vec<String>,
    /// Hosts.
    pub hosts: Vec<String>,
    /// `finished`, `running` or `cut off`.
    pub state: &'static str,
    /// When it began, nanoseconds since 1970.
    pub start_unix_ns: Reading<u64>,
    /// From the beginning to the end of the last process.
    pub wall_ns: Reading<u64>,
    /// Version of tprof that recorded or imported it.
    pub recorded_by: String,
    /// Traces of others that it was imported from; empty if tprof recorded it.
    pub imported: Vec<String>,
}
object! { Run {
    plain path, plain command, plain hosts, plain state, reading start_unix_ns, reading wall_ns,
    plain recorded_by, plain imported,
} }

/// One rank file.
#[derive(Clone, Debug)]
pub struct Rank {
    /// Rank; `None` for a launcher.
    pub rank: Option<u32>,
    /// Name of the row: `rank 3`, `rank 3.1`, `launcher HOST`.
    pub label: String,
    /// File name.
    pub file: String,
    /// Processes in it.
    pub processes: usize,
    /// Program images in it: a process has one more for each `exec`.
    pub images: usize,
    /// Its heap.
    pub host_memory: HostMemory,
    /// RSS, mapped and heap over time.
    pub timeline: Timeline,
    /// What its devices did; only the summary has it.
    pub gpu: Reading<Gpu>,
}
object! { Rank {
    plain rank, plain label, plain file, plain processes, plain images, plain host_memory, plain timeline,
    reading gpu,
} }

/// A report.
#[derive(Clone, Debug)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// Version of tprof that made it.
    pub tprof: &'static str,
    /// Which report.
    pub kind: Kind,
    /// What was run.
    pub run: Run,
    /// What could not be read, in sentences.
    pub problems: Vec<String>,
    /// What else a reader should know, in sentences; whoever gave the symbols adds
    /// what of them could not be found.
    pub notes: Vec<String>,
    /// What was recorded and what was not.
    pub completeness: Completeness,
    /// What recording cost.
    pub overhead: Overhead,
    /// How many processes were seen.
    pub process_count: usize,
    /// Every program image.
    pub processes: Vec<ProcessRow>,
    /// Memory of the run's cgroup.
    pub cgroup: Cgroup,
    /// Processes that a signal ended.
    pub killed: Vec<Death>,
    /// The first findings; a summary has them.
    pub findings: Reading<Vec<Line>>,
    /// GPUs as they were sampled from outside the job; a summary has them.
    pub gpus: Reading<Vec<Sampled>>,
    /// One row per rank file.
    pub ranks: Vec<Rank>,
}
object! { Report {
    plain version, plain tprof, plain kind, plain run, plain problems, plain notes,
    plain completeness,
    plain overhead, plain process_count, plain processes, plain cgroup, plain killed, reading findings, reading gpus, plain ranks,
} }

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    /// The run, or its only file, cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The run has no such rank.
    #[error("there is no rank {rank} in `{}`", path.display())]
    NoRank {
        /// The rank that was asked for.
        rank: u32,
        /// Where.
        path: PathBuf,
        /// The ranks that are there.
        there: Vec<u32>,
    },
    /// An option names something that the run has not.
    #[error("{} `{}` chooses none of the run's {}", .0.option, .0.text, .0.what)]
    Nothing(Named),
}

/// One file, as the summary and the report on memory see it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    rank: Rank,
    processes: Vec<ProcessRow>,
    seen: Seen,
    last_ns: u64,
    cgroup: Cgroup,
    deaths: Vec<Death>,
    sigkills: u64,
    findings: Option<RankFindings>,
    devices: Option<(RankAt, utilization::Part)>,
    /// What of its memory, and of the file itself, could not be read.
    problems: Vec<String>,
    /// What of the tables could not be read that the summary alone reads.
    of_devices: Vec<String>,
}

/// Base name of a path.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Reads a run, or one rank of it.
pub fn report(path: &Path, kind: Kind, rank: Option<u32>) -> Result<Report, AnalyzeError> {
    report_with(path, kind, rank, None)
}

/// As [`report`]; addresses that the recorder left without a name are looked up
/// in `symbols`.
pub fn report_with(
    path: &Path,
    kind: Kind,
    rank: Option<u32>,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Report, AnalyzeError> {
    let wanted = Wanted { reports: &[kind], kinds: &[] };
    let options = Options { rank, ..Options::default() };
    Ok(read_together(path, &wanted, &options, symbols)?.reports.remove(0))
}

pub(crate) fn pick<'a>(
    dir: &'a RunDir,
    path: &Path,
    rank: Option<u32>,
) -> Result<Vec<&'a RankFile>, AnalyzeError> {
    let Some(rank) = rank else { return Ok(dir.files().iter().collect()) };
    let files: Vec<&RankFile> = dir.files().iter().filter(|file| file.rank == Some(rank)).collect();
    if files.is_empty() {
        let mut there: Vec<u32> = dir.files().iter().filter_map(|file| file.rank).collect();
        there.dedup();
        return Err(AnalyzeError::NoRank { rank, path: path.to_path_buf(), there });
    }
    Ok(files)
}

/// Tables that a summary reads of a rank.
pub(crate) fn needs(trace: &TraceFile, at: &RankAt) -> Needs {
    if findings::lines::are_worth_it(trace, at) { Needs::ALL } else { Needs::WORK }
}

/// What the summary and the report on memory, or one of them, take of a rank.
pub(crate) fn part_of(rank: &RankTrace<'_>, at: &RankAt, dir: &RunDir, reports: &[Kind]) -> Part {
    let trace = rank.file;
    let name = &at.file;
    let memory = rank_memory(trace, at.clock);
    let summed_up = reports.contains(&Kind::Summary);
    let mut host_memory = memory.host_memory;
    let found = if summed_up { rank.problems_in(Needs::WORK) } else { Vec::new() };
    let (gpu, findings) = match summed_up {
        true => {
            let findings = || findings::lines::of_rank(rank, at);
            parallel::both(rank.cores, || gpu::of_rank(rank), findings)
        }
        false => (Reading::missing(NOT_IN_MEMORY), None),
    };
    let problem = |p: &tprof_trace::Problem| format!("{name}: {} (at byte {})", p.what, p.offset);
    let mut problems: Vec<String> =
        trace.problems().iter().chain(&memory.problems).map(problem).collect();
    if let Some(problem) = unclosed(trace, name, dir) {
        if host_memory.recording == "exact" && host_memory.at_least.is_none() {
            host_memory.at_least = Some("the end of the file is missing".to_owned());
        }
        problems.push(problem);
    }
    let processes = processes::of_file(trace, name, at.rank, at.clock);
    Part {
        seen: Seen::of(trace),
        last_ns: at.clock.since_start(memory.end_ns),
        problems,
        of_devices: found.iter().map(problem).collect(),
        cgroup: memory.cgroup,
        deaths: memory.deaths,
        sigkills: memory.sigkills,
        findings,
        devices: summed_up.then(|| (at.clone(), utilization::of_file(trace))),
        rank: Rank {
            rank: at.rank,
            label: at.label.clone(),
            processes: processes::count(&processes),
            images: processes.len(),
            file: name.clone(),
            host_memory,
            timeline: memory.timeline,
            gpu,
        },
        processes,
    }
}

/// What is to be said of a file without an end. Of a run that was cut off or
/// still lasts, its state says that.
pub(crate) fn unclosed(trace: &TraceFile, name: &str, dir: &RunDir) -> Option<String> {
    if trace.is_closed() {
        return None;
    }
    let end = units::bytes(trace.bytes());
    let of_it = |info: &&RunInfo| info.files.iter().any(|file| file == name);
    match dir.infos().iter().find(of_it) {
        Some(info) if info.finished => {
            Some(format!("{name}: was not closed: what was recorded after {end} is missing"))
        }
        Some(_) => None,
        None if dir.infos().iter().any(|info| !info.finished) => None,
        None => Some(format!(
            "{name}: was not closed: it was cut off after {end}, or is still being written"
        )),
    }
}

/// Joins the ranks of a run; those that could not be read say why.
pub(crate) fn report_of(
    dir: &RunDir,
    path: &Path,
    kind: Kind,
    options: &Options,
    read: &[Result<Part, String>],
) -> Report {
    let in_part = options.rank.is_some() || path.is_file();
    let mut problems: Vec<String> = dir.problems().iter().map(|p| p.what.clone()).collect();
    problems.extend(read.iter().filter_map(|part| part.as_ref().err().cloned()));
    let mut parts: Vec<Part> = read.iter().filter_map(|part| part.as_ref().ok().cloned()).collect();
    for part in &mut parts {
        problems.append(&mut part.problems);
        if kind == Kind::Summary {
            problems.append(&mut part.of_devices);
            part.rank.host_memory.sites.truncate(SUMMARY_SITES);
        } else {
            part.rank.gpu = Reading::missing(NOT_IN_MEMORY);
        }
    }
    let infos = dir.infos();
    let finished = !infos.is_empty() && infos.iter().all(|info| info.finished);
    let zero = Zero::of(dir);
    let last_ns = parts.iter().map(|part| part.last_ns).max();
    let run = run_of(path, infos, options.is_running, last_ns, &zero);
    let seen = parts.iter_mut().map(|part| std::mem::take(&mut part.seen)).collect();
    let whole = finished && problems.is_empty();
    let completeness = Completeness::of(infos, finished && !in_part, whole, seen);
    let files: Vec<&str> = parts.iter().map(|part| part.rank.file.as_str()).collect();
    let rows = parts.iter().flat_map(|part| part.processes.iter().cloned()).collect();
    let processes =
        processes::join(infos, rows, in_part.then_some(&files[..]), |info| zero.of_info(info));
    let sigkills = parts.iter().map(|part| part.sigkills).sum();
    let (mut ranks, mut killed, mut judged) = (Vec::new(), Vec::new(), Vec::new());
    let mut sampled = Vec::new();
    let mut cgroup: Option<Cgroup> = None;
    for part in parts {
        ranks.push(part.rank);
        killed.extend(part.deaths);
        judged.extend(part.findings);
        sampled.extend(part.devices);
        cgroup = Some(match cgroup {
            None => part.cgroup,
            Some(so_far) => so_far.or(part.cgroup),
        });
    }
    let cgroup = cgroup.unwrap_or_else(Cgroup::unknown);
    for death in &mut killed {
        death.judge(&cgroup, sigkills);
    }
    Report {
        version: REPORT_VERSION,
        tprof: env!("CARGO_PKG_VERSION"),
        kind,
        run,
        problems,
        notes: Vec::new(),
        completeness,
        overhead: Overhead::of(infos),
        process_count: processes::count(&processes),
        processes,
        cgroup,
        killed,
        gpus: match kind {
            Kind::Summary => utilization::sampled(&sampled),
            Kind::Memory => Reading::missing(NOT_IN_MEMORY),
        },
        findings: match kind {
            Kind::Summary => lines::lines(judged),
            Kind::Memory => Reading::missing("the summary and `tprof report findings` have them"),
        },
        ranks,
    }
}

/// What was run, by what its collectors wrote and, of one cut off, its last event.
pub(crate) fn run_of(
    path: &Path,
    infos: &[RunInfo],
    is_running: Option<fn(&RunInfo, &Path) -> bool>,
    last_ns: Option<u64>,
    zero: &Zero,
) -> Run {
    let mut hosts: Vec<String> =
        infos.iter().map(|info| info.host.clone()).filter(|host| !host.is_empty()).collect();
    hosts.sort();
    hosts.dedup();
    let directory = match path.is_file() {
        true => path.parent().unwrap_or(path),
        false => path,
    };
    let ended = infos.iter().filter_map(|info| Some(zero.of_info(info).since_start(info.end_ns?)));
    let finished = !infos.is_empty() && infos.iter().all(|info| info.finished);
    let lasts = |info: &RunInfo| is_running.is_some_and(|is_running| is_running(info, directory));
    Run {
        path: path.to_path_buf(),
        command: infos.first().map(|info| info.command.clone()).unwrap_or_default(),
        hosts,
        state: match finished {
            true => "finished",
            false if infos.iter().any(lasts) => "running",
            false => "cut off",
        },
        start_unix_ns: match zero.unix_ns {
            0 => Reading::missing("neither run.json nor a rank file tells"),
            unix_ns => Reading::Is(unix_ns),
        },
        wall_ns: match (ended.max().filter(|_| finished), last_ns) {
            (Some(end), _) | (None, Some(end)) => Reading::Is(end),
            (None, None) => Reading::missing("the run has no end and no rank file"),
        },
        recorded_by: infos.first().map(|info| info.tprof.clone()).unwrap_or_default(),
        imported: infos.iter().flat_map(imported).collect(),
    }
}

/// What a run was imported from.
fn imported(info: &RunInfo) -> Vec<String> {
    let sources = info.options["imported"].as_array().into_iter().flatten();
    sources.filter_map(|source| source["path"].as_str().map(str::to_owned)).collect()
}

/// The run's zero: when its first collector began, by the wall clock.
pub(crate) struct Zero {
    unix_ns: u64,
}

impl Zero {
    pub(crate) fn of(dir: &RunDir) -> Zero {
        let starts = dir.infos().iter().map(|info| info.start_unix_ns).filter(|&ns| ns > 0);
        let of_file =
            |file: &RankFile| Some(TraceFile::read_header(&file.path).ok()?.start_unix_ns);
        let unix_ns = starts.min().or_else(|| dir.files().iter().find_map(of_file));
        Zero { unix_ns: unix_ns.unwrap_or(0) }
    }

    fn of_info(&self, info: &RunInfo) -> Clock {
        self.at(info.start_ns, info.start_unix_ns)
    }

    pub(crate) fn clock(&self, trace: &TraceFile, dir: &RunDir, name: &str) -> Clock {
        let header = trace.header();
        if header.start_unix_ns > 0 {
            return self.at(header.start_ns, header.start_unix_ns);
        }
        let info = dir.infos().iter().find(|info| info.files.iter().any(|file| file == name));
        info.map_or(Clock { start_ns: header.start_ns, late_ns: 0 }, |info| self.of_info(info))
    }

    fn at(&self, start_ns: u64, start_unix_ns: u64) -> Clock {
        Clock { start_ns, late_ns: start_unix_ns.saturating_sub(self.unix_ns) }
    }
}
