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
use tprof_rank::run::job_overhead::Overhead;
use tprof_rank::run::processes::{self, ProcessRow};
use tprof_rank::run::step_cost::StepCost;
use tprof_rank::{Needs, RankTrace};
use tprof_trace::{RunDir, TraceFile};

use gpu::Gpu;

/// The reason for figures that the report on memory leaves out.
const ONLY_IN_SUMMARY: &str = "the summary has it";
/// The reason why the cost of recording per step is missing, if nothing reads steps.
const NO_STEPS_READ: &str = "steps were not read";

/// Most sites (call stacks of allocations) per rank in a summary.
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

/// The entry of one rank file in the report.
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

/// The data of one rank file for the summary and the report on memory.
#[derive(Clone, Debug)]
pub(crate) struct RankSummary {
    rank: Rank,
    processes: Vec<ProcessRow>,
    completeness: FileCompleteness,
    /// Time of the last row that was read, ns since the run began.
    last_ns: u64,
    /// Memory of the cgroup, as far as this file has it.
    cgroup: Cgroup,
    /// Processes that a signal ended.
    deaths: Vec<Death>,
    /// Number of processes that SIGKILL ended.
    sigkills: u64,
    /// `None` in a report on memory, and for a file that can't be judged, such as a launcher's.
    findings: Option<RankFindings>,
    /// GPUs as they were sampled from outside the job; `None` in a report on memory.
    sampled_gpus: Option<(RankContext, report_gpu::FileSamples)>,
    /// Cost of recording per step, or the reason why it is unknown.
    pub(crate) cost: Reading<StepCost>,
    /// Problems with the parts of its file that could not be read.
    pub(crate) problems: Vec<String>,
}

/// Returns the tables that a summary reads of a rank.
pub(crate) fn needs(trace: &TraceFile, context: &RankContext) -> Needs {
    if lines::can_be_judged(trace, context) { Needs::ALL } else { Needs::WORK }
}

/// Sums up a rank for the summary and the report on memory, or one of them. `judged` are the rank's
/// findings if they have been made already.
pub(crate) fn rank_summary(
    rank: &RankTrace<'_>,
    context: &RankContext,
    dir: &RunDir,
    reports: &[Kind],
    judged: Option<RankFindings>,
) -> RankSummary {
    let trace = rank.file;
    let name = &context.file;
    let memory = rank_memory(trace, context.clock);
    let has_summary = reports.contains(&Kind::Summary);
    let mut host_memory = memory.host_memory;
    let (gpu, findings) = match has_summary {
        true => {
            let judged = judged.filter(|_| lines::can_be_judged(trace, context));
            let findings = || judged.or_else(|| lines::of_rank(rank, context));
            parallel::both(rank.cores, || gpu::of_rank(rank), findings)
        }
        false => (Reading::missing(ONLY_IN_SUMMARY), None),
    };
    if unclosed(trace, name, dir).is_some()
        && host_memory.recording == "exact"
        && host_memory.at_least.is_none()
    {
        host_memory.at_least = Some("the end of the file is missing".to_owned());
    }
    let processes = processes::of_file(trace, name, context.rank, context.clock);
    // If only a part of the file is read, memory is reported up to the end of that part.
    let end_ns = if trace.part().is_some() { trace.last_ns() } else { memory.end_ns };
    RankSummary {
        completeness: FileCompleteness::of(trace),
        last_ns: context.clock.since_start(end_ns),
        problems: Vec::new(),
        cgroup: memory.cgroup,
        deaths: memory.deaths,
        sigkills: memory.sigkills,
        findings,
        cost: Reading::missing(NO_STEPS_READ),
        sampled_gpus: has_summary.then(|| (context.clone(), report_gpu::of_file(trace))),
        rank: Rank {
            rank: context.rank,
            label: context.label.clone(),
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

/// Makes the summary or the report on memory from what was read of each file of a run. A file that
/// could not be read has the reason instead.
pub(crate) fn report_of(
    dir: &RunDir,
    path: &Path,
    kind: Kind,
    options: &Options,
    summaries: &[Result<RankSummary, String>],
) -> Report {
    let is_single_rank = options.rank.is_some() || path.is_file();
    let mut problems: Vec<String> = dir.problems().iter().map(|p| p.what.clone()).collect();
    problems.extend(summaries.iter().filter_map(|of| of.as_ref().err().cloned()));
    let mut summaries: Vec<RankSummary> =
        summaries.iter().filter_map(|of| of.as_ref().ok().cloned()).collect();
    for summary in &mut summaries {
        problems.append(&mut summary.problems);
        if kind == Kind::Summary {
            summary.rank.host_memory.sites.truncate(SUMMARY_SITES);
        } else {
            summary.rank.gpu = Reading::missing(ONLY_IN_SUMMARY);
        }
    }
    let infos = dir.infos();
    let finished = !infos.is_empty() && infos.iter().all(|info| info.finished);
    let zero = Zero::of(dir);
    let last_ns = summaries.iter().map(|summary| summary.last_ns).max();
    let run = run_of(path, infos, options.is_running, last_ns, zero);
    let file_completeness =
        summaries.iter_mut().map(|summary| std::mem::take(&mut summary.completeness)).collect();
    let whole = finished && problems.is_empty();
    let completeness =
        Completeness::of(infos, finished && !is_single_rank, whole, file_completeness);
    let files: Vec<&str> = summaries.iter().map(|summary| summary.rank.file.as_str()).collect();
    let rows = summaries.iter().flat_map(|summary| summary.processes.iter().cloned()).collect();
    let processes = processes::join(infos, rows, is_single_rank.then_some(&files[..]), |info| {
        zero.clock_of_info(info)
    });
    let sigkills = summaries.iter().map(|summary| summary.sigkills).sum();
    let (mut ranks, mut killed, mut judged) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sampled, mut costs) = (Vec::new(), Vec::new());
    let mut cgroup: Option<Cgroup> = None;
    for summary in summaries {
        ranks.push(summary.rank);
        killed.extend(summary.deaths);
        judged.extend(summary.findings);
        sampled.extend(summary.sampled_gpus);
        costs.push(summary.cost);
        cgroup = Some(match cgroup {
            None => summary.cgroup,
            Some(so_far) => so_far.or(summary.cgroup),
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
        overhead: Overhead { step: worst_step_cost(kind, costs), ..Overhead::of(infos) },
        process_count: processes::count(&processes),
        processes,
        cgroup,
        killed,
        gpus: match kind {
            Kind::Summary => report_gpu::sampled(&sampled),
            Kind::Memory => Reading::missing(ONLY_IN_SUMMARY),
        },
        findings: match kind {
            Kind::Summary => lines::lines(judged),
            Kind::Memory => Reading::missing("the summary and `tprof report findings` have them"),
        },
        ranks,
    }
}

/// Returns the cost of recording per step, of the rank that recording slowed most. If no rank has a
/// cost, returns the reason of a rank that has steps.
fn worst_step_cost(kind: Kind, costs: Vec<Reading<StepCost>>) -> Reading<StepCost> {
    if kind == Kind::Memory {
        return Reading::missing(ONLY_IN_SUMMARY);
    }
    if let Some(worst) = recording::worst(costs.iter().filter_map(Reading::value)) {
        return Reading::Is(worst.clone());
    }
    // A launcher has no steps.
    let why = costs.into_iter().find(|cost| *cost != Reading::missing(NO_STEPS_READ));
    why.unwrap_or(Reading::missing(NO_STEPS_READ))
}
