//! Several reports of one run at once: each file is opened and decoded once, and
//! everything that is asked about a rank is answered before the next one is read.
//!
//! Ranks are read on all cores. A run of fewer ranks than cores gives the others to
//! the questions: these are independent of each other too.
//!
//! Damage of a file is named in each report: whatever of it any of them asked for. Which table a
//! figure comes from is no matter of who reads it.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use tprof_facts::compile::RunLogs;
use tprof_facts::cycles::{self, Cycle};
use tprof_facts::units::duration;
use tprof_facts::{Zero, operators, steps};
use tprof_trace::{Problem, RankFile, RunDir, SymbolSource, TraceError, TraceFile};

use super::behind::Behind;
use super::error::AnalyzeError;
use super::lost_rows;
use crate::base::parallel;
use crate::base::reading::Reading;
use crate::document::{
    Begun, Body, Document, DocumentKind, Machine, Named, Options, RankAt, UnjoinedAnalysis, Window,
};
use crate::findings::{Findings, RankFindings};
use crate::rank::{Needs, RankTrace};
use crate::recording;
use crate::report::summary::{Kind, RankSummary, Report, part_of, report_of};
use crate::run::completeness::{Completeness, Seen, unclosed};
use crate::run::info::{Run, run_of};
use crate::run::prices::Prices;
use crate::run::step_cost::StepCost;

/// What the summary and the report on memory have of the whole run, where the rest is of a cycle.
const OF_WHOLE_RUN: &str =
    "processes, their ends, the cgroup, losses and overhead are of the whole run";

/// Which reports to make.
#[derive(Default)]
pub struct Wanted<'a> {
    /// Of these two.
    pub reports: &'a [Kind],
    /// Of [`crate::KINDS`].
    pub kinds: &'a [&'a DocumentKind],
}

/// The reports, in the order in which they were wanted.
#[derive(Clone, Debug)]
pub struct Made {
    /// The summary and the report on memory.
    pub reports: Vec<Report>,
    /// All others.
    pub documents: Vec<Document>,
    /// What recording cost a step of the rank that it slowed most, where a report judges steps.
    pub step: Option<StepCost>,
}

/// Makes reports of a run directory or one of its files; addresses without a name are
/// found in the symbols. Each is what it would be by itself, with the damage that any of them met.
pub fn read_together(
    path: &Path,
    wanted: &Wanted<'_>,
    options: &Options,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Made, AnalyzeError> {
    let analyses: Vec<Box<dyn Begun>> = wanted.kinds.iter().map(|kind| (kind.analysis)()).collect();
    let begun: Vec<&dyn Begun> = analyses.iter().map(|one| &**one).collect();
    let read = read_ranks(path, wanted.reports, &begun, options, symbols)?;
    if let Some(named) = chooses_nothing(&begun) {
        return Err(AnalyzeError::Nothing(named));
    }
    let kinds = analyses.iter().map(|one| one.kind()).collect::<Vec<_>>();
    let bodies = analyses.into_iter().map(|one| one.finish(options));
    let costs = &read.costs;
    let documents = kinds.into_iter().zip(bodies).zip(&read.of_kinds).map(|((kind, body), of)| {
        let Body { mut tables, mut notes } = body;
        lost_rows::explain(&mut tables, &of.completeness.losses);
        notes.extend(recording::note(kind, &tables, costs));
        notes.extend(read.part.iter().map(|part| format!("only {part}")));
        notes.extend(read.unfinished.iter().cloned());
        let OfKind { completeness, problems, operators_ended, steps_inferred } = of.clone();
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
    Ok(Made { reports: reports.collect(), documents, step })
}

impl DocumentKind {
    /// Makes a document of a run directory or one of its files; addresses without a
    /// name are found in the symbols.
    pub fn make(
        &self,
        path: &Path,
        options: &Options,
        symbols: Option<&dyn SymbolSource>,
    ) -> Result<Document, AnalyzeError> {
        let wanted = Wanted { reports: &[], kinds: &[self] };
        let mut made = read_together(path, &wanted, options, symbols)?;
        Ok(made.documents.remove(0))
    }
}

/// Reads a run, or one rank of it.
pub fn report(path: &Path, kind: Kind, rank: Option<u32>) -> Result<Report, AnalyzeError> {
    report_with(path, kind, rank, None)
}

/// As [`report`]; addresses that the recorder left without a name are searched
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

/// An option by which none of the analyses that honour it finds anything.
fn chooses_nothing(begun: &[&dyn Begun]) -> Option<Named> {
    let all: Vec<Named> = begun.iter().flat_map(|one| one.named()).collect();
    let is_chosen = |of: &Named| all.iter().any(|one| one.option == of.option && one.chosen);
    let mut none: Vec<Named> = all.iter().filter(|one| !is_chosen(one)).cloned().collect();
    // The one with the largest choice helps most.
    none.sort_by_key(|one| one.there.len());
    none.pop()
}

/// What a document has of the run beside its tables.
#[derive(Clone, Debug)]
pub(crate) struct OfKind {
    pub completeness: Completeness,
    pub problems: Vec<String>,
    /// Of one that reads operators: ranks with recording of these [`operators::ended`].
    pub operators_ended: u64,
    /// Of one that reads steps: whether a rank's [`steps::Steps::are_inferred`].
    pub steps_inferred: bool,
}

/// A run with all of its ranks read.
pub(crate) struct Read {
    dir: RunDir,
    pub run: Run,
    /// The part that was asked for, in words.
    part: Option<String>,
    /// What devices did behind the end of that part, in sentences.
    unfinished: Vec<String>,
    /// What recording cost steps of each rank, as far as it is known.
    costs: Vec<StepCost>,
    /// For each analysis.
    pub of_kinds: Vec<OfKind>,
    /// What the summary and the report on memory are made of.
    parts: Vec<Result<RankSummary, String>>,
}

/// A rank that was read; its analyses keep what they took themselves.
struct ReadRank {
    seen: Seen,
    last_ns: u64,
    /// What of its file could not be read.
    problems: Vec<String>,
    part: Option<RankSummary>,
    /// What recording cost its steps, where any report judges them.
    cost: Option<StepCost>,
    /// As [`operators::ended`].
    operators_ended: bool,
    /// As [`steps::Steps::are_inferred`], if anything asked for them.
    steps_inferred: bool,
    /// Where one of them was asked for.
    cycles: Vec<Cycle>,
    /// Where a part of the run's time was asked for: that, since the run began.
    window_ns: Option<(u64, u64)>,
    /// What of that part devices did behind its end, in a sentence.
    unfinished: Option<String>,
}

/// What all ranks of a run have in common.
struct Context<'a> {
    dir: &'a RunDir,
    zero: Zero,
    /// What one of each thing costs that recording does.
    prices: Result<Prices, &'static str>,
    /// Logs of `torch.compile`, once they are needed.
    logs: OnceLock<RunLogs>,
    reports: &'a [Kind],
    begun: &'a [&'a dyn Begun],
    options: &'a Options,
    symbols: Option<&'a dyn SymbolSource>,
    /// Threads that one rank may use.
    cores: usize,
}

/// Shows every rank of a run to the analyses.
pub(crate) fn read_ranks(
    path: &Path,
    reports: &[Kind],
    begun: &[&dyn Begun],
    options: &Options,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Read, AnalyzeError> {
    let dir = RunDir::open(path)?;
    let files: Vec<(usize, &RankFile)> =
        pick(&dir, path, options.rank)?.into_iter().enumerate().collect();
    let cores = (parallel::cores() / files.len().max(1)).max(1);
    let zero = Zero::of(&dir);
    let logs = OnceLock::new();
    let prices = Prices::of(dir.infos());
    let context =
        Context { dir: &dir, zero, prices, logs, reports, begun, options, symbols, cores };
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
    let of_kind = |begun: &&dyn Begun| {
        let completeness = Completeness::of(infos, finished && !in_part, whole, seen.clone());
        let operators_ended =
            if begun.needs(options).has_any(Needs::OPERATORS) { ended } else { 0 };
        let steps_inferred = inferred && begun.needs(options).has(Needs::STEPS);
        let problems = problems.clone();
        OfKind { completeness, problems, operators_ended, steps_inferred }
    };
    let of_kinds = begun.iter().map(of_kind).collect();
    let run = run_of(path, infos, options.is_running, last_ns, context.zero);
    Ok(Read { run, part, unfinished, costs, of_kinds, parts, dir })
}

/// A cycle in words, if any rank has it.
fn named(cycle: u32, all: &[Cycle]) -> Result<String, AnalyzeError> {
    if let Some(of) = all.iter().find(|of| of.number == cycle) {
        return Ok(of.name.clone());
    }
    let there: BTreeMap<u32, &str> = all.iter().map(|of| (of.number, of.name.as_str())).collect();
    let there = there.into_values().map(str::to_owned).collect();
    Err(AnalyzeError::NoCycle { cycle, there })
}

/// Files of a run, or of one rank of it.
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

/// Leaves only a cycle of what is read of a file, which has these.
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
        let at = RankAt { rank: file.rank, label, file: name, clock, machine };
        let seen = Seen::of(&trace);
        let cycles = match self.options.cycle {
            Some(cycle) => only_cycle(&mut trace, cycle),
            None => Vec::new(),
        };
        let mut unfinished = None;
        let window_ns = self.options.window.map(|window| {
            let (from_ns, to_ns) = window.on(clock);
            let mut part = cycles::between(&trace, from_ns, to_ns);
            if let Window::OfProgram { device_until_ns, .. } = window {
                let behind = Behind::of(&trace, to_ns, device_until_ns);
                part.device_until_ns = device_until_ns.filter(|_| !behind.is_mixed);
                unfinished = behind.note();
            }
            trace.read_only(part);
            let since = |ns: u64| if ns == u64::MAX { ns } else { clock.since_start(ns) };
            (since(from_ns), since(to_ns))
        });
        let (mut part, mut cost) = (None, None);
        let mut steps_inferred = false;
        // As it was recorded and as Holistic Trace Analysis reads it: one at a time.
        for hta in [false, true] {
            let these: Vec<usize> =
                (0..self.begun.len()).filter(|&one| self.reads_as(one, hta)).collect();
            let with_reports = !hta && !self.reports.is_empty();
            if these.is_empty() && !with_reports {
                continue;
            }
            let mut needs = Needs::default();
            for &one in &these {
                needs = needs | self.begun[one].needs(self.options);
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
            let judges = |&one: &usize| recording::is_judged_by(self.begun[one].kind());
            if !hta && at.rank.is_some() && (with_reports || these.iter().any(judges)) {
                cost = self.cost(&rank, &at);
                rank.recording = cost.as_ref().and_then(|cost| cost.value().cloned());
            }
            parallel::each_on(self.cores, &these, |&one| {
                self.begun[one].rank(place, &rank, &at, self.options);
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

    /// What recording cost a step of a rank; none where steps were not read.
    fn cost(&self, rank: &RankTrace<'_>, at: &RankAt) -> Option<Reading<StepCost>> {
        let has_steps = rank.needs.has(Needs::STEPS);
        has_steps.then(|| recording::of_rank(rank, &at.label, &self.prices))
    }

    /// What the analysis of findings made of a rank, if it is one of those begun.
    fn findings(&self, place: usize) -> Option<RankFindings> {
        self.begun.iter().find_map(|&begun| {
            let begun: &dyn Any = begun;
            begun.downcast_ref::<UnjoinedAnalysis<Findings>>()?.part(place)?
        })
    }

    fn reads_as(&self, analysis: usize, hta: bool) -> bool {
        (self.options.hta && self.begun[analysis].has_hta()) == hta
    }
}
