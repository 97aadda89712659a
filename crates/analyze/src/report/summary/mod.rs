//! Makes the summary of a run and the report on memory.

pub mod gpu;

use std::path::Path;

use serde::Serialize;
use tprof_document::{Options, REPORT_VERSION, RankContext};
use tprof_facts::Zero;
use tprof_findings::RankFindings;
use tprof_findings::lines::{self, Line};
use tprof_metrics::gpu::report_gpu::{self, SampledGpu};
use tprof_metrics::memory::killed::Death;
use tprof_metrics::memory::timeline::{Cgroup, Timeline};
use tprof_metrics::memory::{HostMemory, rank_memory};
use tprof_metrics::recording;
use tprof_rank::base::has_schema::HasSchema;
use tprof_rank::base::object::object;
use tprof_rank::base::parallel;
use tprof_rank::base::reading::Reading;
use tprof_rank::run::completeness::{Completeness, FileCompleteness, unclosed};
use tprof_rank::run::info::{Run, run_of};
use tprof_rank::run::overhead::Overhead;
use tprof_rank::run::processes::{self, ProcessRow};
use tprof_rank::run::step_cost::StepCost;
use tprof_rank::{Needs, RankTrace};
use tprof_trace::{RunDir, TraceFile};

use gpu::Gpu;

/// The reason why the report on memory has no figures of devices.
const NOT_IN_MEMORY: &str = "the summary has it";
const NO_STEPS_READ: &str = "steps were not read";

/// Number of sites per rank in a summary.
const SUMMARY_SITES: usize = 5;

/// The kind of a report that is not a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The summary: wall time, processes, ranks, completeness, overhead, and memory in brief.
    Summary,
    /// The full report on memory.
    Memory,
}

impl HasSchema for Kind {
    fn schema() -> serde_json::Value {
        serde_json::json!({ "enum": [Kind::Summary, Kind::Memory] })
    }
}

/// The entry of one rank file.
#[derive(Clone, Debug)]
pub struct Rank {
    /// The rank's number; `None` for a launcher.
    pub rank: Option<u32>,
    /// The displayed name of the rank: `rank 3`, `rank 3, restart 1`, `launcher on HOST`.
    pub label: String,
    /// Name of the file.
    pub file: String,
    /// Number of its processes.
    pub processes: usize,
    /// Number of program images in the file: a process has one more for each `exec`.
    pub images: usize,
    /// Allocations and live bytes of the heap.
    pub host_memory: HostMemory,
    /// Resident, mapped and heap bytes over time.
    pub timeline: Timeline,
    /// The activity of its devices; only the summary has it.
    pub gpu: Reading<Gpu>,
}
object! { Rank {
    plain rank, plain label, plain file, plain processes, plain images, plain host_memory, plain timeline,
    reading gpu,
} }

/// The summary, or the report on memory.
#[derive(Clone, Debug)]
pub struct Report {
    /// Version of the report's JSON, [`REPORT_VERSION`].
    pub version: u32,
    /// Version of the tprof that made the report.
    pub tprof: &'static str,
    /// The kind of the report.
    pub kind: Kind,
    /// The run: command, hosts, state.
    pub run: Run,
    /// Problems with files that could not be read, in sentences.
    pub problems: Vec<String>,
    /// Other notes for the reader, in sentences. The caller, which has the symbols, adds a note on
    /// symbols that could not be found.
    pub notes: Vec<String>,
    /// How complete the recording is.
    pub completeness: Completeness,
    /// The cost of recording.
    pub overhead: Overhead,
    /// Number of processes that were recorded.
    pub process_count: usize,
    /// Every program image of the run.
    pub processes: Vec<ProcessRow>,
    /// Memory of the run's cgroup.
    pub cgroup: Cgroup,
    /// Processes that a signal ended.
    pub killed: Vec<Death>,
    /// The first findings; only a summary has them.
    pub findings: Reading<Vec<Line>>,
    /// GPUs as they were sampled from outside the job; only a summary has them.
    pub gpus: Reading<Vec<SampledGpu>>,
    /// The ranks, one for each file.
    pub ranks: Vec<Rank>,
}
object! { Report {
    plain version, plain tprof, plain kind, plain run, plain problems, plain notes,
    plain completeness,
    plain overhead, plain process_count, plain processes, plain cgroup, plain killed, reading findings, reading gpus, plain ranks,
} }

/// One file's part of the summary and the report on memory.
#[derive(Clone, Debug)]
pub(crate) struct RankSummary {
    rank: Rank,
    processes: Vec<ProcessRow>,
    seen: FileCompleteness,
    last_ns: u64,
    cgroup: Cgroup,
    deaths: Vec<Death>,
    sigkills: u64,
    findings: Option<RankFindings>,
    devices: Option<(RankContext, report_gpu::FileSamples)>,
    /// Cost of recording per step.
    pub(crate) cost: Reading<StepCost>,
    /// Problems with the parts of its file that could not be read.
    pub(crate) problems: Vec<String>,
}

/// Returns the tables that a summary reads of a rank.
pub(crate) fn needs(trace: &TraceFile, at: &RankContext) -> Needs {
    if lines::can_be_judged(trace, at) { Needs::ALL } else { Needs::WORK }
}

/// Makes a rank's part of the summary and of the report on memory.
pub(crate) fn part_of(
    rank: &RankTrace<'_>,
    at: &RankContext,
    dir: &RunDir,
    reports: &[Kind],
    judged: Option<RankFindings>,
) -> RankSummary {
    let trace = rank.file;
    let name = &at.file;
    let memory = rank_memory(trace, at.clock);
    let summed_up = reports.contains(&Kind::Summary);
    let mut host_memory = memory.host_memory;
    let (gpu, findings) = match summed_up {
        true => {
            let judged = judged.filter(|_| lines::can_be_judged(trace, at));
            let findings = || judged.or_else(|| lines::of_rank(rank, at));
            parallel::both(rank.cores, || gpu::of_rank(rank), findings)
        }
        false => (Reading::missing(NOT_IN_MEMORY), None),
    };
    if unclosed(trace, name, dir).is_some()
        && host_memory.recording == "exact"
        && host_memory.at_least.is_none()
    {
        host_memory.at_least = Some("the end of the file is missing".to_owned());
    }
    let processes = processes::of_file(trace, name, at.rank, at.clock);
    // If only a part of the file is read, memory is reported up to the end of that part.
    let end_ns = if trace.part().is_some() { trace.last_ns() } else { memory.end_ns };
    RankSummary {
        seen: FileCompleteness::of(trace),
        last_ns: at.clock.since_start(end_ns),
        problems: Vec::new(),
        cgroup: memory.cgroup,
        deaths: memory.deaths,
        sigkills: memory.sigkills,
        findings,
        cost: Reading::missing(NO_STEPS_READ),
        devices: summed_up.then(|| (at.clone(), report_gpu::of_file(trace))),
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

/// Makes a report from the parts of a run's ranks. A rank that could not be read has the reason
/// instead.
pub(crate) fn report_of(
    dir: &RunDir,
    path: &Path,
    kind: Kind,
    options: &Options,
    read: &[Result<RankSummary, String>],
) -> Report {
    let in_part = options.rank.is_some() || path.is_file();
    let mut problems: Vec<String> = dir.problems().iter().map(|p| p.what.clone()).collect();
    problems.extend(read.iter().filter_map(|part| part.as_ref().err().cloned()));
    let mut parts: Vec<RankSummary> =
        read.iter().filter_map(|part| part.as_ref().ok().cloned()).collect();
    for part in &mut parts {
        problems.append(&mut part.problems);
        if kind == Kind::Summary {
            part.rank.host_memory.sites.truncate(SUMMARY_SITES);
        } else {
            part.rank.gpu = Reading::missing(NOT_IN_MEMORY);
        }
    }
    let infos = dir.infos();
    let finished = !infos.is_empty() && infos.iter().all(|info| info.finished);
    let zero = Zero::of(dir);
    let last_ns = parts.iter().map(|part| part.last_ns).max();
    let run = run_of(path, infos, options.is_running, last_ns, zero);
    let seen = parts.iter_mut().map(|part| std::mem::take(&mut part.seen)).collect();
    let whole = finished && problems.is_empty();
    let completeness = Completeness::of(infos, finished && !in_part, whole, seen);
    let files: Vec<&str> = parts.iter().map(|part| part.rank.file.as_str()).collect();
    let rows = parts.iter().flat_map(|part| part.processes.iter().cloned()).collect();
    let processes = processes::join(infos, rows, in_part.then_some(&files[..]), |info| {
        zero.clock_of_info(info)
    });
    let sigkills = parts.iter().map(|part| part.sigkills).sum();
    let (mut ranks, mut killed, mut judged) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sampled, mut costs) = (Vec::new(), Vec::new());
    let mut cgroup: Option<Cgroup> = None;
    for part in parts {
        ranks.push(part.rank);
        killed.extend(part.deaths);
        judged.extend(part.findings);
        sampled.extend(part.devices);
        costs.push(part.cost);
        cgroup = Some(match cgroup {
            None => part.cgroup,
            Some(so_far) => so_far.or(part.cgroup),
        });
    }
    let cgroup = cgroup.unwrap_or_else(Cgroup::unknown);
    for death in &mut killed {
        death.judge(&cgroup, sigkills);
    }
    let banner = if kind == Kind::Summary { lines::banner(&judged) } else { None };
    Report {
        version: REPORT_VERSION,
        tprof: env!("CARGO_PKG_VERSION"),
        kind,
        run,
        problems,
        notes: banner.into_iter().chain(infos.iter().flat_map(|info| info.notes.clone())).collect(),
        completeness,
        overhead: Overhead { step: step_of(kind, costs), ..Overhead::of(infos) },
        process_count: processes::count(&processes),
        processes,
        cgroup,
        killed,
        gpus: match kind {
            Kind::Summary => report_gpu::sampled(&sampled),
            Kind::Memory => Reading::missing(NOT_IN_MEMORY),
        },
        findings: match kind {
            Kind::Summary => lines::lines(judged),
            Kind::Memory => Reading::missing("the summary and `tprof report findings` have them"),
        },
        ranks,
    }
}

/// Returns the cost of recording per step, of the rank that recording slowed most.
fn step_of(kind: Kind, costs: Vec<Reading<StepCost>>) -> Reading<StepCost> {
    if kind == Kind::Memory {
        return Reading::missing(NOT_IN_MEMORY);
    }
    if let Some(worst) = recording::worst(costs.iter().filter_map(Reading::value)) {
        return Reading::Is(worst.clone());
    }
    // A launcher has no steps.
    let why = costs.into_iter().find(|cost| *cost != Reading::missing(NO_STEPS_READ));
    why.unwrap_or(Reading::missing(NO_STEPS_READ))
}
