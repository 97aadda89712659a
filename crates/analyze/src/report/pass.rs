//! Makes several reports of one run at once. Each file is opened and decoded once, and all analyses
//! of a rank are done before the next rank is read.
//!
//! Ranks are read on all cores. If a run has fewer ranks than cores, the other cores work on the
//! analyses, which are independent of each other.
//!
//! Each report names all damage that any report of the same pass met in a file. So a reader need
//! not know which table a figure comes from.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use tprof_document::{
    Body, Document, DocumentKind, Machine, OptionMatches, Options, RankContext, StartedAnalysis,
    UnjoinedAnalysis, Window,
};
use tprof_facts::compile::RunLogs;
use tprof_facts::cycles::{self, Cycle};
use tprof_facts::thinned::{self, ThinnedPart};
use tprof_facts::units::duration;
use tprof_facts::{Zero, operators, steps};
use tprof_findings::{Findings, RankFindings};
use tprof_metrics::recording;
use tprof_rank::base::parallel;
use tprof_rank::base::reading::Reading;
use tprof_rank::run::completeness::{Completeness, FileCompleteness, unclosed};
use tprof_rank::run::info::{Run, run_of};
use tprof_rank::run::step_cost::StepCost;
use tprof_rank::run::unit_costs::Prices;
use tprof_rank::{Needs, RankTrace};
use tprof_trace::run::{BlindSpot, EVERYTHING};
use tprof_trace::{Problem, RankFile, RunDir, SymbolSource, TraceError, TraceFile};

use super::after_end::WorkAfterEnd;
use super::error::AnalyzeError;
use super::lost_rows;
use crate::report::summary::{Kind, RankSummary, Report, rank_summary, report_of};

/// If only a part of the run's time was requested, the note on the summary and the report on memory
/// ends with this.
const OF_WHOLE_RUN: &str =
    "processes, their ends, the cgroup, losses and overhead are of the whole run";

/// The reports to make.
#[derive(Default)]
pub struct ReportRequest<'a> {
    /// The summary, the report on memory, or both.
    pub reports: &'a [Kind],
    /// Kinds of documents, from [`crate::KINDS`].
    pub kinds: &'a [&'a DocumentKind],
}

/// The reports, in the order in which they were requested.
#[derive(Clone, Debug)]
pub struct Reports {
    /// The summary, the report on memory, or both.
    pub reports: Vec<Report>,
    /// The documents of the reports.
    pub documents: Vec<Document>,
    /// Cost of recording per step, of the rank that recording slowed most, if a report judges
    /// steps.
    pub step: Option<StepCost>,
}

/// Makes reports of a run directory or one of its files. Addresses that the recorder left without a
/// name are looked up in `symbols`. Each report is the same as if it were made alone, except that
/// it names the damage that any of the reports met.
///
/// Returns an error if no file can be read, if the run has not the requested rank or cycle, or if
/// an option chooses nothing. A file that can't be read beside others is a problem of the reports.
pub fn make_reports(
    path: &Path,
    wanted: &ReportRequest<'_>,
    options: &Options,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Reports, AnalyzeError> {
    let analyses: Vec<Box<dyn StartedAnalysis>> =
        wanted.kinds.iter().map(|kind| (kind.analysis)()).collect();
    let started: Vec<&dyn StartedAnalysis> = analyses.iter().map(|one| &**one).collect();
    let ranks = read_ranks(path, wanted.reports, &started, options, symbols)?;
    if let Some(unmatched) = option_that_matches_nothing(&started) {
        return Err(AnalyzeError::Nothing(unmatched));
    }
    let kinds = analyses.iter().map(|one| one.kind()).collect::<Vec<_>>();
    let bodies = analyses.into_iter().map(|one| one.finish(options));
    let contexts = ranks.contexts.iter().cloned();
    let documents = kinds.into_iter().zip(bodies).zip(contexts).map(|((kind, body), context)| {
        let DocumentContext { completeness, problems, in_part, steps_inferred, .. } = context;
        let Body { mut tables, mut notes } = body;
        notes.extend(note_if_never_on(&completeness));
        lost_rows::explain(&mut tables, &completeness.losses);
        notes.extend(recording::note(kind, &tables, &ranks.costs));
        notes.extend(ranks.scope_text.iter().map(|scope| format!("only {scope}")));
        notes.extend(ranks.unfinished.iter().cloned());
        notes.extend(in_part);
        notes.extend(steps_inferred.then(|| steps::INFERRED.to_owned()));
        Document { kind, run: ranks.run.clone(), completeness, problems, notes, tables }
    });
    let documents = documents.collect();
    let reports = wanted.reports.iter().map(|kind| {
        let mut report = report_of(&ranks.dir, path, *kind, options, &ranks.summaries);
        if ranks.contexts.iter().any(|context| context.steps_inferred) {
            report.notes.push(steps::INFERRED.to_owned());
        }
        let scope = ranks.scope_text.iter().map(|scope| format!("only {scope}; {OF_WHOLE_RUN}"));
        report.notes.extend(scope);
        report.notes.extend(ranks.unfinished.iter().cloned());
        let is_of_heap = |part| part == ThinnedPart::Stacks;
        report.notes.extend(match kind {
            Kind::Memory => thinned::notes(&ranks.thinned, &is_of_heap),
            Kind::Summary => thinned::notes(&ranks.thinned, &|_| true),
        });
        report
    });
    let step = recording::worst(&ranks.costs).cloned();
    Ok(Reports { reports: reports.collect(), documents, step })
}

/// Returns the note on a run in which recording was never on. The reasons that single figures give
/// for missing don't say so.
fn note_if_never_on(completeness: &Completeness) -> Option<String> {
    let is_all = |gap: &&BlindSpot| gap.as_asked && gap.what == EVERYTHING;
    let gap = completeness.blind.iter().find(is_all)?;
    Some(format!(
        "{}, so nothing was recorded, whatever reasons are given below; `tprof ctl start RUN` \
         switches it on while the job runs",
        gap.why
    ))
}

/// Makes the report of one kind of document, as [`make_reports`] does.
pub fn document(
    kind: &DocumentKind,
    path: &Path,
    options: &Options,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Document, AnalyzeError> {
    let wanted = ReportRequest { reports: &[], kinds: &[kind] };
    Ok(make_reports(path, &wanted, options, symbols)?.documents.remove(0))
}

/// Makes the summary or the report on memory of a run directory or one of its files, or of one
/// rank, as [`make_reports`] does.
pub fn report(path: &Path, kind: Kind, rank: Option<u32>) -> Result<Report, AnalyzeError> {
    report_with(path, kind, rank, None)
}

/// Like [`report`]; addresses that the recorder left without a name are looked up in `symbols`.
pub fn report_with(
    path: &Path,
    kind: Kind,
    rank: Option<u32>,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Report, AnalyzeError> {
    let wanted = ReportRequest { reports: &[kind], kinds: &[] };
    let options = Options { rank, ..Options::default() };
    Ok(make_reports(path, &wanted, &options, symbols)?.reports.remove(0))
}

/// Returns an option that chooses nothing in any of the analyses that honour it.
fn option_that_matches_nothing(started: &[&dyn StartedAnalysis]) -> Option<OptionMatches> {
    let all: Vec<OptionMatches> = started.iter().flat_map(|one| one.option_matches()).collect();
    let chooses =
        |option: &str| all.iter().any(|matches| matches.option == option && matches.chosen);
    let unmatched = all.iter().filter(|matches| !chooses(matches.option));
    // If several options choose nothing, report the one with the most names, since its list of
    // names helps most.
    unmatched.max_by_key(|matches| matches.names.len()).cloned()
}

/// Properties of the run that a document reports beside its tables.
#[derive(Clone, Debug)]
pub struct DocumentContext {
    /// How complete the recording of the rows that the document read is.
    pub completeness: Completeness,
    /// Problems with files that could not be read, in sentences.
    pub problems: Vec<String>,
    /// For documents that read operators: the number of ranks whose operators were recorded for
    /// only a part of the time ([`operators::ended`]).
    pub operators_ended: u64,
    /// Notes about data that the document reads and that was recorded for only a part of the time,
    /// because recording it cost too much.
    pub in_part: Vec<String>,
    /// For documents that read steps: whether the steps of any rank are inferred
    /// ([`steps::Steps::are_inferred`]).
    pub steps_inferred: bool,
}

/// A run whose ranks have all been read.
pub struct ReadRun {
    dir: RunDir,
    /// The command, hosts and state of the run.
    pub run: Run,
    /// The cycle or the time that was requested, in words; `None` for the whole run.
    scope_text: Option<String>,
    /// The device work after the end of the requested time, in a sentence for each rank.
    unfinished: Vec<String>,
    /// Cost of recording per step of each rank, as far as it is known.
    costs: Vec<StepCost>,
    /// The changes that `--budget` made to the recording of each rank.
    thinned: Vec<thinned::OfRank>,
    /// The completeness, overhead and other facts that each document states beside its tables. They are
    /// in the order of the analyses.
    pub contexts: Vec<DocumentContext>,
    /// The data for the summary and the report on memory: one entry for each file, which is the reason
    /// if the file could not be read. Empty if neither report was requested.
    summaries: Vec<Result<RankSummary, String>>,
}

/// The properties of a rank that was read. Analyses store their results themselves.
struct ReadRank {
    completeness: FileCompleteness,
    /// Time of the file's last row, ns since the run began.
    last_ns: u64,
    /// Problems with the parts of its file that could not be read.
    problems: Vec<String>,
    /// The data for the summary and the report on memory, if one of them was requested.
    summary: Option<RankSummary>,
    /// Cost of recording per step, if any report judges steps.
    cost: Option<StepCost>,
    /// Whether its operators were recorded for only a part of the time ([`operators::ended`]).
    operators_ended: bool,
    /// The changes that `--budget` made to its recording.
    thinned: thinned::OfRank,
    /// Whether its steps are inferred ([`steps::Steps::are_inferred`]), if any analysis used them.
    steps_inferred: bool,
    /// All cycles of the file, if one of them was requested.
    cycles: Vec<Cycle>,
    /// The part of the run's time that was requested, if any, nanoseconds since the run began.
    window_ns: Option<(u64, u64)>,
    /// The device work after the end of that time, in a sentence.
    unfinished: Option<String>,
}

/// The inputs that the reading of each rank shares.
struct Pass<'a> {
    dir: &'a RunDir,
    /// The beginning of the run, from which times count.
    zero: Zero,
    /// Unit costs of recording, or the reason why they are unknown.
    prices: Result<Prices, &'static str>,
    /// Logs of `torch.compile`, which are read when they are first needed.
    logs: OnceLock<RunLogs>,
    /// The summary, the report on memory, both or neither.
    reports: &'a [Kind],
    /// The analyses that read each rank.
    started: &'a [&'a dyn StartedAnalysis],
    options: &'a Options,
    /// Looks up addresses that the recorder left without a name.
    symbols: Option<&'a dyn SymbolSource>,
    /// Number of threads that one rank may use.
    cores: usize,
}

/// Runs the analyses on every rank of a run. Returns the same errors as [`make_reports`], except
/// that it doesn't check whether options choose something.
pub fn read_ranks(
    path: &Path,
    reports: &[Kind],
    started: &[&dyn StartedAnalysis],
    options: &Options,
    symbols: Option<&dyn SymbolSource>,
) -> Result<ReadRun, AnalyzeError> {
    let dir = RunDir::open(path)?;
    let files: Vec<(usize, &RankFile)> =
        files_of_rank(&dir, path, options.rank)?.into_iter().enumerate().collect();
    let cores = (parallel::cores() / files.len().max(1)).max(1);
    let zero = Zero::of(&dir);
    let logs = OnceLock::new();
    let prices = Prices::of(dir.infos());
    let pass = Pass { dir: &dir, zero, prices, logs, reports, started, options, symbols, cores };
    let (mut costs, mut all_thinned, mut ended_by_auto) = (Vec::new(), Vec::new(), 0);
    let mut problems: Vec<String> = dir.problems().iter().map(|p| p.what.clone()).collect();
    let (mut summaries, mut file_completeness, mut last_ns) = (Vec::new(), Vec::new(), None);
    let (mut failure, mut cycles, mut operators_ended) = (None, Vec::new(), 0);
    let (mut steps_inferred, mut window_ns, mut unfinished) = (false, None, Vec::new());
    for result in parallel::each(&files, |(index, file)| pass.analyze_rank(*index, file)) {
        match result {
            Ok(rank) => {
                problems.extend(rank.problems);
                file_completeness.push(rank.completeness);
                last_ns = last_ns.max(Some(rank.last_ns));
                summaries.extend(rank.summary.map(Ok));
                costs.extend(rank.cost);
                cycles.extend(rank.cycles);
                window_ns = window_ns.or(rank.window_ns);
                unfinished.extend(rank.unfinished);
                operators_ended += u64::from(rank.operators_ended);
                let is_by_auto = rank.operators_ended && !rank.thinned.lacks_operators();
                ended_by_auto += u64::from(is_by_auto);
                all_thinned.push(rank.thinned);
                steps_inferred |= rank.steps_inferred;
            }
            Err(error) => {
                let text = error.to_string();
                problems.push(text.clone());
                summaries.push(Err(text));
                failure = Some(error);
            }
        }
    }
    if let Some(error) = failure.filter(|_| file_completeness.is_empty()) {
        return Err(error.into());
    }
    let cycle = options.cycle.map(|cycle| cycle_name(cycle, &cycles)).transpose()?;
    let scope_text = cycle.or(window_ns.map(|(from, to)| match to {
        u64::MAX => format!("what began after {}", duration(from)),
        to => format!("what began from {} to {}", duration(from), duration(to)),
    }));
    let infos = dir.infos();
    let finished = !infos.is_empty() && infos.iter().all(|info| info.finished);
    let is_single_rank = options.rank.is_some() || path.is_file();
    let whole = finished && problems.is_empty();
    let context = |started: &&dyn StartedAnalysis| {
        let files = file_completeness.clone();
        let completeness = Completeness::of(infos, finished && !is_single_rank, whole, files);
        let needs = started.needs(options);
        let operators_ended = if needs.has_any(Needs::OPERATORS) { operators_ended } else { 0 };
        let steps_inferred = steps_inferred && needs.has(Needs::STEPS);
        let problems = problems.clone();
        let mut in_part = thinned::notes(&all_thinned, &|part| reads(needs, part));
        in_part.extend(operators::note(if operators_ended > 0 { ended_by_auto } else { 0 }));
        DocumentContext { completeness, problems, operators_ended, in_part, steps_inferred }
    };
    let contexts = started.iter().map(context).collect();
    let run = run_of(path, infos, options.is_running, last_ns, pass.zero);
    let thinned = all_thinned;
    Ok(ReadRun { run, scope_text, unfinished, costs, thinned, contexts, summaries, dir })
}

/// Whether a document with these needs reads rows that are missing once a part is thinned.
fn reads(needs: Needs, part: ThinnedPart) -> bool {
    match part {
        ThinnedPart::OperatorsOfAllSteps | ThinnedPart::Operators => {
            needs.has_any(Needs::OPERATORS)
        }
        ThinnedPart::Stacks => needs.has_any(Needs::ALLOCATIONS),
        ThinnedPart::Samples => needs.has_any(Needs::SAMPLES),
        ThinnedPart::Rest => false,
    }
}

/// Returns the name of a cycle. If no rank has it, the error lists the cycles that ranks have.
fn cycle_name(number: u32, cycles: &[Cycle]) -> Result<String, AnalyzeError> {
    if let Some(cycle) = cycles.iter().find(|cycle| cycle.number == number) {
        return Ok(cycle.name.clone());
    }
    let names: BTreeMap<u32, &str> =
        cycles.iter().map(|cycle| (cycle.number, cycle.name.as_str())).collect();
    let available = names.into_values().map(str::to_owned).collect();
    Err(AnalyzeError::NoCycle { cycle: number, available })
}

/// Returns the files of one rank, or all files of a run. If the run has no such rank, the error
/// lists the ranks that it has.
fn files_of_rank<'a>(
    dir: &'a RunDir,
    path: &Path,
    rank: Option<u32>,
) -> Result<Vec<&'a RankFile>, AnalyzeError> {
    let Some(rank) = rank else { return Ok(dir.files().iter().collect()) };
    let files: Vec<&RankFile> = dir.files().iter().filter(|file| file.rank == Some(rank)).collect();
    if files.is_empty() {
        let mut available: Vec<u32> = dir.files().iter().filter_map(|file| file.rank).collect();
        available.dedup();
        return Err(AnalyzeError::NoRank { rank, path: path.to_path_buf(), available });
    }
    Ok(files)
}

/// Limits a file to one of its cycles, and returns all of its cycles. If the file has no such
/// cycle, nothing of it is read.
fn limit_to_cycle(trace: &mut TraceFile, number: u32) -> Vec<Cycle> {
    let cycles = cycles::of(trace);
    let chosen = cycles.iter().find(|cycle| cycle.number == number);
    trace.read_only(chosen.map(|cycle| cycle.part.clone()).unwrap_or_default());
    cycles
}

/// Base name of a path.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

impl Pass<'_> {
    /// Opens the file of a rank, and runs all analyses on it. `index` is the place of the file
    /// among those that the pass reads. Returns an error if the file can't be opened; damage within
    /// it is among the problems of the result.
    fn analyze_rank(&self, index: usize, file: &RankFile) -> Result<ReadRank, TraceError> {
        let name = file_name(&file.path);
        let mut trace = TraceFile::open(&file.path)?;
        if let Some(symbols) = self.symbols {
            trace.name_missing(symbols);
        }
        let clock = self.zero.clock(&trace, self.dir);
        let machine = Machine::of(self.dir.infos());
        let label = file.label.to_string();
        let context = RankContext { rank: file.rank, label, file: name, clock, machine };
        let completeness = FileCompleteness::of(&trace);
        let cycles = match self.options.cycle {
            Some(number) => limit_to_cycle(&mut trace, number),
            None => Vec::new(),
        };
        let mut unfinished = None;
        let window_ns = self.options.window.map(|window| {
            let (from_ns, to_ns) = window.on(clock);
            let mut cut = cycles::between(&trace, from_ns, to_ns);
            if let Window::OfProgram { device_until_ns, .. } = window {
                let after_end = WorkAfterEnd::of(&trace, to_ns, device_until_ns);
                cut.device_until_ns = device_until_ns.filter(|_| !after_end.is_mixed);
                unfinished = after_end.note();
            }
            trace.read_only(cut);
            // `u64::MAX` means that the window has no end.
            let since_start = |ns: u64| if ns == u64::MAX { ns } else { clock.since_start(ns) };
            (since_start(from_ns), since_start(to_ns))
        });
        let (mut summary, mut cost) = (None, None);
        let mut steps_inferred = false;
        // Analyses may need a rank in two forms: as it was recorded, and as Holistic Trace Analysis
        // (HTA) reads it. Only one of the two is in memory at a time.
        for hta in [false, true] {
            let of_form =
                |started: &&dyn StartedAnalysis| (self.options.hta && started.has_hta()) == hta;
            let started: Vec<&dyn StartedAnalysis> =
                self.started.iter().copied().filter(of_form).collect();
            let with_reports = !hta && !self.reports.is_empty();
            if started.is_empty() && !with_reports {
                continue;
            }
            let mut needs = Needs::default();
            for analysis in &started {
                needs = needs | analysis.needs(self.options);
            }
            if with_reports && self.reports.contains(&Kind::Summary) {
                needs = needs | crate::report::summary::needs(&trace, &context);
            }
            let mut rank = RankTrace::load_as(&trace, needs, hta, self.cores);
            rank.steps_from = rank.steps_from.or(self.options.steps_from);
            rank.world_size = file.world_size;
            if needs.has(Needs::COMPILE) {
                let logs = self.logs.get_or_init(|| RunLogs::of(self.dir));
                rank.compile = logs.of_rank(file, &trace);
            }
            let judges_steps =
                |analysis: &&dyn StartedAnalysis| recording::is_judged_by(analysis.kind());
            let needs_cost = with_reports || started.iter().any(judges_steps);
            if !hta && context.rank.is_some() && needs_cost {
                cost = self.recording_cost(&rank, &context);
                rank.recording = cost.as_ref().and_then(|cost| cost.value().cloned());
            }
            parallel::each_on(self.cores, &started, |analysis| {
                analysis.rank(index, &rank, &context, self.options);
            });
            steps_inferred |= rank.has_inferred_steps();
            if with_reports {
                let findings = self.findings(index);
                let mut made = rank_summary(&rank, &context, self.dir, self.reports, findings);
                if let Some(cost) = &cost {
                    made.cost = cost.clone();
                }
                summary = Some(made);
            }
        }
        let problem = |p: Problem| format!("{}: {} (at byte {})", context.file, p.what, p.offset);
        let mut problems: Vec<String> =
            trace.unread().problems().into_iter().map(problem).collect();
        problems.extend(unclosed(&trace, &context.file, self.dir));
        if let Some(summary) = &mut summary {
            summary.problems.clone_from(&problems);
        }
        Ok(ReadRank {
            completeness,
            last_ns: clock.since_start(trace.last_ns()),
            problems,
            summary,
            cost: cost.and_then(|cost| cost.value().cloned()),
            operators_ended: operators::ended(&trace),
            thinned: thinned::OfRank::new(&context.label, &trace),
            steps_inferred,
            cycles,
            window_ns,
            unfinished,
        })
    }

    /// Returns the cost of recording per step of a rank; `None` if steps were not read.
    fn recording_cost(
        &self,
        rank: &RankTrace<'_>,
        context: &RankContext,
    ) -> Option<Reading<StepCost>> {
        let has_steps = rank.needs.has(Needs::STEPS);
        has_steps.then(|| recording::of_rank(rank, &context.label, &self.prices))
    }

    /// Returns the findings of the rank whose file has this place, if the report on findings was
    /// requested and has read the rank.
    fn findings(&self, index: usize) -> Option<RankFindings> {
        self.started.iter().find_map(|&started| {
            let started: &dyn Any = started;
            started.downcast_ref::<UnjoinedAnalysis<Findings>>()?.part(index)?
        })
    }
}
