//! Makes several reports of one run at once. Each file is opened and decoded once, and all analyses
//! of a rank are done before the next rank is read.
//!
//! Ranks are read on all cores. If a run has fewer ranks than cores, the other cores work on the
//! analyses, which are independent of each other.
//!
//! Each report names all damage of a file, even if only another report read the damaged table, so a
//! reader need not know which table a figure comes from.

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
use tprof_facts::units::duration;
use tprof_facts::{Zero, operators, steps};
use tprof_findings::{Findings, RankFindings};
use tprof_metrics::recording;
use tprof_rank::base::parallel;
use tprof_rank::base::reading::Reading;
use tprof_rank::run::completeness::{Completeness, FileCompleteness, unclosed};
use tprof_rank::run::info::{Run, run_of};
use tprof_rank::run::prices::Prices;
use tprof_rank::run::step_cost::StepCost;
use tprof_rank::{Needs, RankTrace};
use tprof_trace::run::{BlindSpot, EVERYTHING};
use tprof_trace::{Problem, RankFile, RunDir, SymbolSource, TraceError, TraceFile};

use super::after_end::WorkAfterEnd;
use super::error::AnalyzeError;
use super::lost_rows;
use crate::report::summary::{Kind, RankSummary, Report, part_of, report_of};

/// If a report covers only a cycle, this note says which figures of the summary and the report on
/// memory are still of the whole run.
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

/// Makes reports of a run directory or one of its files. Addresses without a name are looked up in
/// the symbols. Each report is the same as if it were made alone, except that it names the damage
/// that any of the reports met.
pub fn read_together(
    path: &Path,
    wanted: &ReportRequest<'_>,
    options: &Options,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Reports, AnalyzeError> {
    let analyses: Vec<Box<dyn StartedAnalysis>> =
        wanted.kinds.iter().map(|kind| (kind.analysis)()).collect();
    let started: Vec<&dyn StartedAnalysis> = analyses.iter().map(|one| &**one).collect();
    let read = read_ranks(path, wanted.reports, &started, options, symbols)?;
    if let Some(named) = chooses_nothing(&started) {
        return Err(AnalyzeError::Nothing(named));
    }
    let kinds = analyses.iter().map(|one| one.kind()).collect::<Vec<_>>();
    let bodies = analyses.into_iter().map(|one| one.finish(options));
    let costs = &read.costs;
    let documents = kinds.into_iter().zip(bodies).zip(&read.of_kinds).map(|((kind, body), of)| {
        let Body { mut tables, mut notes } = body;
        notes.extend(never_on(&of.completeness));
        lost_rows::explain(&mut tables, &of.completeness.losses);
        notes.extend(recording::note(kind, &tables, costs));
        notes.extend(read.part.iter().map(|part| format!("only {part}")));
        notes.extend(read.unfinished.iter().cloned());
        let DocumentContext { completeness, problems, operators_ended, steps_inferred } =
            of.clone();
        notes.extend(operators::note(operators_ended));
        notes.extend(steps_inferred.then(|| steps::INFERRED.to_owned()));
        Document { kind, run: read.run.clone(), completeness, problems, notes, tables }
    });
    let documents = documents.collect();
    let reports = wanted.reports.iter().map(|kind| {
        let mut report = report_of(&read.dir, path, *kind, options, &read.parts);
        if read.of_kinds.iter().any(|of| of.steps_inferred) {
            report.notes.push(steps::INFERRED.to_owned());
        }
        report.notes.extend(read.part.iter().map(|part| format!("only {part}; {OF_WHOLE_RUN}")));
        report.notes.extend(read.unfinished.iter().cloned());
        report
    });
    let step = recording::worst(&read.costs).cloned();
    Ok(Reports { reports: reports.collect(), documents, step })
}

/// Returns the note on a run in which recording was never on. The reasons of single figures don't
/// know of that.
fn never_on(completeness: &Completeness) -> Option<String> {
    let is_all = |gap: &&BlindSpot| gap.as_asked && gap.what == EVERYTHING;
    let gap = completeness.blind.iter().find(is_all)?;
    Some(format!(
        "{}, so nothing was recorded, whatever reasons are given below; `tprof ctl start RUN` \
         switches it on while the job runs",
        gap.why
    ))
}

/// Makes a document of a run directory or one of its files; addresses without a name are looked up
/// in the symbols.
pub fn document(
    kind: &DocumentKind,
    path: &Path,
    options: &Options,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Document, AnalyzeError> {
    let wanted = ReportRequest { reports: &[], kinds: &[kind] };
    Ok(read_together(path, &wanted, options, symbols)?.documents.remove(0))
}

/// Reads a run, or one rank of it, and makes a report.
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
    Ok(read_together(path, &wanted, &options, symbols)?.reports.remove(0))
}

/// Returns an option that chooses nothing in all of the analyses that honour it.
fn chooses_nothing(started: &[&dyn StartedAnalysis]) -> Option<OptionMatches> {
    let all: Vec<OptionMatches> = started.iter().flat_map(|one| one.named()).collect();
    let is_chosen =
        |of: &OptionMatches| all.iter().any(|one| one.option == of.option && one.chosen);
    let mut none: Vec<OptionMatches> = all.iter().filter(|one| !is_chosen(one)).cloned().collect();
    // If several options choose nothing, report the one with the most names, since its list of
    // names helps most.
    none.sort_by_key(|one| one.there.len());
    none.pop()
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
    /// For documents that read steps: whether the steps of any rank are inferred
    /// ([`steps::Steps::are_inferred`]).
    pub steps_inferred: bool,
}

/// A run whose ranks have all been read.
pub struct ReadRun {
    dir: RunDir,
    pub run: Run,
    /// The part that was requested, in words.
    part: Option<String>,
    /// The device work after the end of that part, in sentences.
    unfinished: Vec<String>,
    /// Cost of recording per step of each rank, as far as it is known.
    costs: Vec<StepCost>,
    /// The properties for each analysis.
    pub of_kinds: Vec<DocumentContext>,
    /// The ranks' parts of the summary and the report on memory.
    parts: Vec<Result<RankSummary, String>>,
}

/// The properties of a rank that was read. Its analyses store their own results.
struct ReadRank {
    seen: FileCompleteness,
    last_ns: u64,
    /// Problems with the parts of its file that could not be read.
    problems: Vec<String>,
    part: Option<RankSummary>,
    /// Cost of recording per step, if any report judges steps.
    cost: Option<StepCost>,
    /// Whether its operators were recorded for only a part of the time ([`operators::ended`]).
    operators_ended: bool,
    /// Whether its steps are inferred ([`steps::Steps::are_inferred`]), if any analysis used them.
    steps_inferred: bool,
    /// The cycles of the file, if one of them was requested.
    cycles: Vec<Cycle>,
    /// The part of the run's time that was requested, if any, nanoseconds since the run began.
    window_ns: Option<(u64, u64)>,
    /// The device work after the end of that part, in a sentence.
    unfinished: Option<String>,
}

/// The data that all ranks of a run share.
struct Context<'a> {
    dir: &'a RunDir,
    zero: Zero,
    /// Unit costs of recording.
    prices: Result<Prices, &'static str>,
    /// Logs of `torch.compile`, which are read when they are first needed.
    logs: OnceLock<RunLogs>,
    reports: &'a [Kind],
    started: &'a [&'a dyn StartedAnalysis],
    options: &'a Options,
    symbols: Option<&'a dyn SymbolSource>,
    /// Number of threads that one rank may use.
    cores: usize,
}

/// Runs the analyses on every rank of a run.
pub fn read_ranks(
    path: &Path,
    reports: &[Kind],
    started: &[&dyn StartedAnalysis],
    options: &Options,
    symbols: Option<&dyn SymbolSource>,
) -> Result<ReadRun, AnalyzeError> {
    let dir = RunDir::open(path)?;
    let files: Vec<(usize, &RankFile)> =
        pick(&dir, path, options.rank)?.into_iter().enumerate().collect();
    let cores = (parallel::cores() / files.len().max(1)).max(1);
    let zero = Zero::of(&dir);
    let logs = OnceLock::new();
    let prices = Prices::of(dir.infos());
    let context =
        Context { dir: &dir, zero, prices, logs, reports, started, options, symbols, cores };
    let mut costs = Vec::new();
    let mut problems: Vec<String> = dir.problems().iter().map(|p| p.what.clone()).collect();
    let (mut parts, mut seen, mut last_ns) = (Vec::new(), Vec::new(), None);
    let (mut failure, mut any, mut cycles, mut ended) = (None, false, Vec::new(), 0);
    let (mut inferred, mut window_ns, mut unfinished) = (false, None, Vec::new());
    for result in parallel::each(&files, |(place, file)| context.read(*place, file)) {
        match result {
            Ok(read) => {
                any = true;
                problems.extend(read.problems);
                seen.push(read.seen);
                last_ns = last_ns.max(Some(read.last_ns));
                parts.extend(read.part.map(Ok));
                costs.extend(read.cost);
                cycles.extend(read.cycles);
                window_ns = window_ns.or(read.window_ns);
                unfinished.extend(read.unfinished);
                ended += u64::from(read.operators_ended);
                inferred |= read.steps_inferred;
            }
            Err(error) => {
                let text = error.to_string();
                problems.push(text.clone());
                parts.push(Err(text));
                failure = Some(error);
            }
        }
    }
    match failure {
        Some(error) if !any => return Err(error.into()),
        _ => {}
    }
    let cycle = options.cycle.map(|cycle| named(cycle, &cycles)).transpose()?;
    let part = cycle.or(window_ns.map(|(from, to)| match to {
        u64::MAX => format!("what began after {}", duration(from)),
        to => format!("what began from {} to {}", duration(from), duration(to)),
    }));
    let infos = dir.infos();
    let finished = !infos.is_empty() && infos.iter().all(|info| info.finished);
    let in_part = options.rank.is_some() || path.is_file();
    let whole = finished && problems.is_empty();
    let of_kind = |started: &&dyn StartedAnalysis| {
        let completeness = Completeness::of(infos, finished && !in_part, whole, seen.clone());
        let operators_ended =
            if started.needs(options).has_any(Needs::OPERATORS) { ended } else { 0 };
        let steps_inferred = inferred && started.needs(options).has(Needs::STEPS);
        let problems = problems.clone();
        DocumentContext { completeness, problems, operators_ended, steps_inferred }
    };
    let of_kinds = started.iter().map(of_kind).collect();
    let run = run_of(path, infos, options.is_running, last_ns, context.zero);
    Ok(ReadRun { run, part, unfinished, costs, of_kinds, parts, dir })
}

/// Returns the name of a cycle, if any rank has it.
fn named(cycle: u32, all: &[Cycle]) -> Result<String, AnalyzeError> {
    if let Some(of) = all.iter().find(|of| of.number == cycle) {
        return Ok(of.name.clone());
    }
    let there: BTreeMap<u32, &str> = all.iter().map(|of| (of.number, of.name.as_str())).collect();
    let there = there.into_values().map(str::to_owned).collect();
    Err(AnalyzeError::NoCycle { cycle, there })
}

/// Returns the files of a run, or those of one rank.
fn pick<'a>(
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

/// Limits a file to one of its cycles, and returns all of them.
fn only_cycle(trace: &mut TraceFile, cycle: u32) -> Vec<Cycle> {
    let all = cycles::of(trace);
    let chosen = all.iter().find(|of| of.number == cycle);
    trace.read_only(chosen.map(|of| of.part.clone()).unwrap_or_default());
    all
}

/// Base name of a path.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

impl Context<'_> {
    fn read(&self, place: usize, file: &RankFile) -> Result<ReadRank, TraceError> {
        let name = file_name(&file.path);
        let mut trace = TraceFile::open(&file.path)?;
        if let Some(symbols) = self.symbols {
            trace.name_missing(symbols);
        }
        let clock = self.zero.clock(&trace, self.dir);
        let machine = Machine::of(self.dir.infos());
        let label = file.label.to_string();
        let at = RankContext { rank: file.rank, label, file: name, clock, machine };
        let seen = FileCompleteness::of(&trace);
        let cycles = match self.options.cycle {
            Some(cycle) => only_cycle(&mut trace, cycle),
            None => Vec::new(),
        };
        let mut unfinished = None;
        let window_ns = self.options.window.map(|window| {
            let (from_ns, to_ns) = window.on(clock);
            let mut part = cycles::between(&trace, from_ns, to_ns);
            if let Window::OfProgram { device_until_ns, .. } = window {
                let after_end = WorkAfterEnd::of(&trace, to_ns, device_until_ns);
                part.device_until_ns = device_until_ns.filter(|_| !after_end.is_mixed);
                unfinished = after_end.note();
            }
            trace.read_only(part);
            let since = |ns: u64| if ns == u64::MAX { ns } else { clock.since_start(ns) };
            (since(from_ns), since(to_ns))
        });
        let (mut part, mut cost) = (None, None);
        let mut steps_inferred = false;
        // A rank may be needed in two forms: as it was recorded, and as Holistic Trace Analysis
        // reads it. Only one of the two is in memory at a time.
        for hta in [false, true] {
            let these: Vec<usize> =
                (0..self.started.len()).filter(|&one| self.reads_as(one, hta)).collect();
            let with_reports = !hta && !self.reports.is_empty();
            if these.is_empty() && !with_reports {
                continue;
            }
            let mut needs = Needs::default();
            for &one in &these {
                needs = needs | self.started[one].needs(self.options);
            }
            if with_reports && self.reports.contains(&Kind::Summary) {
                needs = needs | crate::report::summary::needs(&trace, &at);
            }
            let mut rank = RankTrace::load_as(&trace, needs, hta, self.cores);
            rank.steps_from = rank.steps_from.or(self.options.steps_from);
            rank.world_size = file.world_size;
            if needs.has(Needs::COMPILE) {
                let logs = self.logs.get_or_init(|| RunLogs::of(self.dir));
                rank.compile = logs.of_rank(file, &trace);
            }
            let judges = |&one: &usize| recording::is_judged_by(self.started[one].kind());
            if !hta && at.rank.is_some() && (with_reports || these.iter().any(judges)) {
                cost = self.cost(&rank, &at);
                rank.recording = cost.as_ref().and_then(|cost| cost.value().cloned());
            }
            parallel::each_on(self.cores, &these, |&one| {
                self.started[one].rank(place, &rank, &at, self.options);
            });
            steps_inferred |= rank.has_inferred_steps();
            if with_reports {
                part = Some(part_of(&rank, &at, self.dir, self.reports, self.findings(place)));
                if let (Some(part), Some(cost)) = (&mut part, &cost) {
                    part.cost = cost.clone();
                }
            }
        }
        let problem = |p: Problem| format!("{}: {} (at byte {})", at.file, p.what, p.offset);
        let mut problems: Vec<String> =
            trace.unread().problems().into_iter().map(problem).collect();
        problems.extend(unclosed(&trace, &at.file, self.dir));
        if let Some(part) = &mut part {
            part.problems.clone_from(&problems);
        }
        Ok(ReadRank {
            seen,
            last_ns: clock.since_start(trace.last_ns()),
            problems,
            part,
            cost: cost.and_then(|cost| cost.value().cloned()),
            operators_ended: operators::ended(&trace),
            steps_inferred,
            cycles,
            window_ns,
            unfinished,
        })
    }

    /// Returns the cost of recording per step of a rank; `None` if steps were not read.
    fn cost(&self, rank: &RankTrace<'_>, at: &RankContext) -> Option<Reading<StepCost>> {
        let has_steps = rank.needs.has(Needs::STEPS);
        has_steps.then(|| recording::of_rank(rank, &at.label, &self.prices))
    }

    /// Returns the rank's part of the findings, if findings were requested.
    fn findings(&self, place: usize) -> Option<RankFindings> {
        self.started.iter().find_map(|&started| {
            let started: &dyn Any = started;
            started.downcast_ref::<UnjoinedAnalysis<Findings>>()?.part(place)?
        })
    }

    fn reads_as(&self, analysis: usize, hta: bool) -> bool {
        (self.options.hta && self.started[analysis].has_hta()) == hta
    }
}
