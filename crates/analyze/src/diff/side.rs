//! One side of a comparison: figures of each step, names and what each took.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use rustc_hash::FxHashMap;
use tprof_trace::RunDir;
use tprof_trace::model::{NameId, SpanKind};
use tprof_trace::run::RunInfo;

use super::facts::{self, Facts};
use super::figures::{Figure, FigureSum, Figures};
use super::host::HostActivity;
use super::of_run::{Peaks, life_ns};
use crate::Reading;
use crate::base::intervals::Cover;
use crate::document::{Analysis, Body, Options, RankAt, begin};
use crate::memory::rank_memory;
use crate::rank::{Class, Needs, RankTrace, Step, step_at};
use crate::report::AnalyzeError;
use crate::report::{OfKind, read_ranks};
use crate::run::completeness::Completeness;
use crate::run::info::Run;

/// What is compared by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sort {
    /// Kernels, copies and memsets.
    Work,
    /// Operators of a framework, and annotations.
    Operator,
    /// Calls of the runtime and the driver.
    Call,
    /// Collectives.
    Collective,
}

/// What one name took in one step. Whole numbers, so that the order in which
/// ranks are added does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// How often it ran.
    pub count: u64,
    /// How long, nanoseconds; of a collective, its kernels.
    pub ns: u64,
    /// Bytes, of copies and collectives.
    pub bytes: u64,
}

impl Took {
    fn add(&mut self, other: Took) {
        self.count += other.count;
        self.ns = self.ns.saturating_add(other.ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Names, and what each took in each step, by the step's number.
pub type TimesByName = FxHashMap<(Sort, String), BTreeMap<u64, Took>>;

/// A run, as far as it is compared.
#[derive(Debug)]
pub struct Side {
    /// What was run.
    pub run: Run,
    /// What of it was recorded.
    pub completeness: Completeness,
    /// What could not be read.
    pub problems: Vec<String>,
    /// Hardware and configuration.
    pub facts: Facts,
    /// Rank files.
    pub ranks: u64,
    /// Whether these are some of a run's ranks: its wall time is then theirs.
    pub in_part: bool,
    /// Rank files that `names` is a sum over.
    pub sharers: u64,
    /// Whether `figures` are of steps; else of the whole trace, which is then the only "step".
    pub stepped: bool,
    /// Numbers of the steps, in order.
    pub steps: Vec<u64>,
    /// Figures of each step, by key; means over ranks.
    pub figures: BTreeMap<&'static str, Vec<f64>>,
    /// Figures of the whole run.
    pub totals: Vec<Figure>,
    /// What each name took in each step, summed over ranks.
    pub names: TimesByName,
    /// What the hosts did.
    pub host: HostActivity,
}

impl Side {
    /// Reads a run directory or one of its files.
    pub fn read(path: &Path, options: &SideOptions) -> Result<Side, AnalyzeError> {
        let SideOptions { rank, is_running, .. } = *options;
        let common = Options { rank, is_running, ..Options::default() };
        let analysis = OfRank { steps: options.steps, ..OfRank::default() };
        let begun = begin(analysis);
        let read = read_ranks(path, &[], &[&begun], &common, None)?;
        let (analysis, parts) = begun.into_parts();
        let OfKind { completeness, problems } = read.of_kinds[0].clone();
        let mut names = analysis.names.into_inner().unwrap_or_default();
        let host = analysis.host.into_inner().unwrap_or_default();
        let in_part = options.rank.is_some() || path.is_file();
        let mut facts = facts::of_run(&RunDir::open(path)?);
        let stepped = parts.iter().any(|(_, part)| part.stepped);
        let mut side = Side {
            run: read.run,
            completeness,
            problems,
            ranks: parts.iter().filter(|(at, _)| at.rank.is_some()).count() as u64,
            in_part,
            sharers: 0,
            facts: Facts::default(),
            stepped,
            steps: Vec::new(),
            figures: BTreeMap::new(),
            totals: Vec::new(),
            names: names.remove(&stepped).unwrap_or_default(),
            host,
        };
        let mut sums: BTreeMap<u64, FigureSum> = BTreeMap::new();
        let mut peaks = Peaks::default();
        let mut longest_ns = None;
        for (at, part) in parts {
            longest_ns = longest_ns.max(part.life_ns);
            facts.merge(part.facts);
            if at.rank.is_some() {
                peaks.most(part.peaks);
            }
            // A launcher has no steps of its own, nor has a rank that died before its first.
            if part.stepped != stepped {
                continue;
            }
            side.sharers += 1;
            for (number, figures) in part.steps {
                sums.entry(number).or_default().add(&figures);
            }
        }
        for (number, sum) in sums {
            side.steps.push(number);
            for (key, mean) in sum.means() {
                side.figures.entry(key).or_default().push(mean);
            }
        }
        facts.set("ranks", side.ranks.to_string());
        side.facts = facts;
        let wall = match (in_part, longest_ns) {
            (false, _) => side.run.wall_ns.clone(),
            (true, Some(longest_ns)) => Reading::Is(longest_ns),
            (true, None) => Reading::missing("no process was recorded"),
        };
        side.totals = vec![
            Figure { key: "wall_time", value: wall },
            Figure { key: "cpu_time", value: side.host.cpu_time() },
            Figure { key: "processes", value: Reading::Is(side.host.processes) },
            Figure { key: "threads", value: Reading::Is(side.host.threads) },
        ];
        side.totals.extend(peaks.figures());
        Ok(side)
    }
}

/// What of a side is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct SideOptions {
    /// Only this rank.
    pub rank: Option<u32>,
    /// Only steps with these numbers, both ends included.
    pub steps: Option<(u64, u64)>,
    /// As in [`Options`].
    pub is_running: Option<fn(&RunInfo, &Path) -> bool>,
}

/// What is kept of a rank.
struct RankSide {
    stepped: bool,
    steps: Vec<(u64, Figures)>,
    facts: Facts,
    peaks: Peaks,
    /// From its first process's start to the last that was recorded of it.
    life_ns: Option<u64>,
}

#[derive(Default)]
struct OfRank {
    steps: Option<(u64, u64)>,
    /// Names of all ranks so far, apart for those with steps and without: kept
    /// rank by rank, those of a thousand ranks would not fit.
    names: Mutex<FxHashMap<bool, TimesByName>>,
    /// What the hosts of all ranks so far did.
    host: Mutex<HostActivity>,
}

impl OfRank {
    fn add(&self, stepped: bool, names: TimesByName) {
        // Poisoned means that another worker panicked, which ends the comparison.
        let Ok(mut all) = self.names.lock() else { return };
        let all = all.entry(stepped).or_default();
        for (key, by_step) in names {
            let of_name = all.entry(key).or_default();
            for (step, took) in by_step {
                of_name.entry(step).or_default().add(took);
            }
        }
    }
}

impl Analysis for OfRank {
    const KIND: &'static str = "diff";
    type Part = RankSide;

    fn needs(&self, _: &Options) -> Needs {
        Needs::WORK
            | Needs::CALLS
            | Needs::OPERATORS
            | Needs::ANNOTATIONS
            | Needs::COLLECTIVES
            | Needs::ALLOCATIONS
            | Needs::SAMPLES
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankAt, _: &Options) -> RankSide {
        let trace = rank.file;
        let mut steps = rank.steps();
        let stepped = !steps.is_empty();
        if let Some((from, to)) = self.steps {
            steps.retain(|step| (from..=to).contains(&step.number));
        }
        if !stepped {
            steps.extend(whole(rank));
        }
        let memory = rank_memory(trace, at.clock);
        // A launcher is none of the job's ranks.
        if at.rank.is_some() {
            let of_rank = HostActivity::of(rank, &memory);
            if let Ok(mut host) = self.host.lock() {
                host.add(of_rank);
            }
        }
        let life_ns = life_ns(trace);
        let peaks = Peaks::of(rank, &memory);
        self.add(stepped, names(rank, &steps, stepped));
        let facts = facts::of_file(trace);
        RankSide { stepped, steps: figures(rank, &steps, stepped), facts, peaks, life_ns }
    }

    fn join(&self, _: Vec<(RankAt, RankSide)>, _: &Options) -> Body {
        Body::default()
    }
}

/// A trace without steps is compared as a whole: one step from its first event
/// to its last, on every process.
fn whole(rank: &RankTrace<'_>) -> Option<Step> {
    let spans = [SpanKind::Operator, SpanKind::Annotation].map(|kind| rank.spans(kind));
    let host = rank.calls.iter().chain(spans.into_iter().flatten()).map(|span| span.interval());
    let all = Cover::of(rank.work.iter().map(|work| work.interval()).chain(host));
    Some(Step { number: 0, process: 0, interval: all.span()? })
}

/// Figures of each step.
fn figures(rank: &RankTrace<'_>, steps: &[Step], stepped: bool) -> Vec<(u64, Figures)> {
    // Covers of a process are made once, not once a step.
    let mut covers: FxHashMap<u32, [Cover; 3]> = FxHashMap::default();
    for step in steps {
        let process = step.process;
        let of_step = |stream| !stepped || rank.streams[stream as usize].process == process;
        covers.entry(process).or_insert_with(|| exposed(rank, of_step));
    }
    let launched = launches(rank, steps, stepped);
    steps
        .iter()
        .zip(launched)
        .map(|(step, launched)| {
            let length = |cover: &Cover| cover.length_within(step.interval);
            let parts = covers.get(&step.process).map(|covers| covers.each_ref().map(length));
            let worked = !rank.work.is_empty();
            let figures = Figures {
                duration_ns: step.interval.length(),
                device_ns: parts.filter(|_| worked),
                launches: worked.then_some(launched),
            };
            (step.number, figures)
        })
        .collect()
}

/// When compute ran; communication without compute; copies without either.
fn exposed(rank: &RankTrace<'_>, of_step: impl Fn(u32) -> bool) -> [Cover; 3] {
    let cover = |class| {
        let work = rank.work.iter().filter(|work| work.class == class && of_step(work.stream));
        Cover::of(work.map(|work| work.interval()))
    };
    let (compute, communication) = (cover(Class::Compute), cover(Class::Communication));
    let copies = cover(Class::Memory).without(&compute.union(&communication));
    let communication = communication.without(&compute);
    [compute, communication, copies]
}

/// Pieces of work of each step.
fn launches(rank: &RankTrace<'_>, steps: &[Step], stepped: bool) -> Vec<u64> {
    let mut launched = vec![0; steps.len()];
    if !stepped {
        launched.iter_mut().for_each(|count| *count = rank.work.len() as u64);
        return launched;
    }
    for step in rank.steps_of_work(steps).into_iter().flatten() {
        launched[step as usize] += 1;
    }
    launched
}

/// What each name took in each step.
fn names(rank: &RankTrace<'_>, steps: &[Step], stepped: bool) -> TimesByName {
    let mut names: FxHashMap<(Sort, NameId, u64), Took> = FxHashMap::default();
    let at = |process: u32, time_ns: u64| match stepped {
        true => step_at(steps, process, time_ns).map(|at| steps[at as usize].number),
        false => Some(0),
    };
    let step_of_work = rank.steps_of_work(steps);
    // Copies may have no name of their own.
    let mut copies: FxHashMap<(String, u64), Took> = FxHashMap::default();
    for (work, step) in rank.work.iter().zip(&step_of_work) {
        let step = match stepped {
            true => step.map(|at| steps[at as usize].number),
            false => Some(0),
        };
        let Some(step) = step else { continue };
        let took = Took { count: 1, ns: work.duration_ns, bytes: work.bytes.get().unwrap_or(0) };
        match work.is_kernel() {
            true => names.entry((Sort::Work, work.name, step)).or_default().add(took),
            false => {
                copies.entry((rank.work_name(work).into_owned(), step)).or_default().add(took);
            }
        }
    }
    let spans = [(Sort::Operator, SpanKind::Operator), (Sort::Operator, SpanKind::Annotation)];
    let spans = spans.into_iter().map(|(sort, kind)| (sort, rank.spans(kind)));
    for (sort, spans) in spans.chain([(Sort::Call, rank.calls.as_slice())]) {
        for span in spans {
            let Some(step) = at(span.process, span.start_ns) else { continue };
            let took = Took { count: 1, ns: span.duration_ns, bytes: 0 };
            names.entry((sort, span.name, step)).or_default().add(took);
        }
    }
    collectives(rank, &at, &mut names);
    let mut all = TimesByName::default();
    for ((sort, name, step), took) in names {
        all.entry((sort, rank.name(name).to_owned()))
            .or_default()
            .entry(step)
            .or_default()
            .add(took);
    }
    for ((name, step), took) in copies {
        all.entry((Sort::Work, name)).or_default().entry(step).or_default().add(took);
    }
    all
}

/// What each collective took: its kernels' time, once, however many were grouped.
fn collectives(
    rank: &RankTrace<'_>,
    at: &impl Fn(u32, u64) -> Option<u64>,
    names: &mut FxHashMap<(Sort, NameId, u64), Took>,
) {
    let mut kernels: FxHashMap<(u32, u64), u64> = FxHashMap::default();
    for work in rank.work.iter().filter(|work| work.class == Class::Communication) {
        if let Some(correlation) = work.correlation.get() {
            *kernels.entry((rank.stream(work).process, correlation)).or_default() +=
                work.duration_ns;
        }
    }
    for row in &rank.collectives {
        let Some(step) = at(row.process, row.start_ns) else { continue };
        let kernel = row.correlation.and_then(|number| kernels.remove(&(row.process, number)));
        let took = Took { count: 1, ns: kernel.unwrap_or(0), bytes: row.bytes.unwrap_or(0) };
        names.entry((Sort::Collective, row.name, step)).or_default().add(took);
    }
}
