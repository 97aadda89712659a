//! What an analysis is, and how it is run without knowing which one it is.

use std::any::Any;
use std::path::Path;
use std::sync::Mutex;

use tprof_facts::Clock;
use tprof_facts::flops::peaks::Peaks;
use tprof_facts::steps::StepSource;
use tprof_trace::run::RunInfo;

use super::{OptionMatches, Table};
use crate::base::intervals::Interval;
use crate::rank::{Needs, RankTrace, Step};

/// What a person asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only this rank.
    pub rank: Option<u32>,
    /// As Holistic Trace Analysis reads a trace: see `RankTrace::load_as`.
    pub hta: bool,
    /// Without steps of warm-up, and steps in which `torch.compile` compiled, where a report is about
    /// steps.
    pub steady: bool,
    /// Where steps come from; none: from the first source that has any.
    pub steps_from: Option<StepSource>,
    /// Only this cycle of a schedule, or captured range, from 1.
    pub cycle: Option<u32>,
    /// Only what began within this part of the run's time, in all reports.
    pub window: Option<Window>,
    /// Only this part of the run, where a report can be cut.
    pub cut: TimeSelection,
    /// Only operators with this in their name, where a report is about operators.
    pub operator: Option<String>,
    /// Only within this range, where a report can be cut: text that its name contains,
    /// and `:N` for the Nth such range from 0.
    pub within: Option<String>,
    /// Only threads with this in their names, or of this number, where a report can be cut.
    pub thread: Option<String>,
    /// Time by line of source, where a report has it.
    pub lines: LineTables,
    /// Order of functions and lines, where a report has several.
    pub sort: SortBy,
    /// Only a person's own files, where a report can be cut.
    pub mine: bool,
    /// What devices can do, in place of the table's figures.
    pub peaks: Option<Peaks>,
    /// Long tables too that a person does not see ([`super::View::Data`]).
    pub data: bool,
    /// Whether the collector of an unfinished run in a directory is still at work; `None`: it
    /// counts as gone.
    pub is_running: Option<fn(&RunInfo, &Path) -> bool>,
}

/// A part of a run's time, from a moment and to before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Nanoseconds since the run began.
    OfRun(u64, u64),
    /// Of a program's own: nanoseconds of its host's monotonic clock.
    OfProgram {
        /// The first moment of the window.
        from_ns: u64,
        /// Not then or later.
        to_ns: u64,
        /// Until when devices worked on for it, if the program has waited for them.
        device_until_ns: Option<u64>,
    },
}

impl Window {
    /// On the clock of a file.
    pub(crate) fn on(self, clock: Clock) -> (u64, u64) {
        match self {
            Window::OfRun(from, to) => (clock.at(from), clock.at(to)),
            Window::OfProgram { from_ns, to_ns, .. } => (from_ns, to_ns),
        }
    }
}

/// A part of a run's time; by default all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeSelection {
    /// Not before, nanoseconds since the run began.
    pub from_ns: Option<u64>,
    /// Not then or later, on the same clock.
    pub to_ns: Option<u64>,
    /// From the first to the last of the steps with numbers in these inclusive ranges, each
    /// rank's own.
    pub steps: Option<Vec<(u64, u64)>>,
}

impl TimeSelection {
    /// Whether it is all of the run.
    pub fn is_all(&self) -> bool {
        *self == TimeSelection::default()
    }

    /// The part on a file's clock, given its steps.
    pub(crate) fn interval(&self, clock: Clock, steps: &[Step]) -> Interval {
        let from = self.from_ns.map_or(0, |ns| clock.at(ns));
        let to = self.to_ns.map_or(u64::MAX, |ns| clock.at(ns));
        let times = Interval::new(from, to);
        if self.steps.is_none() {
            return times;
        }
        let wanted = steps.iter().filter(|step| self.holds(step.number)).map(|step| step.interval);
        let all = wanted.reduce(|a, b| Interval::new(a.start.min(b.start), a.end.max(b.end)));
        // Of a rank without such a step there is nothing.
        times.overlap(all.unwrap_or(Interval::new(from, from)))
    }

    /// Whether a step's number is wanted.
    pub fn holds(&self, number: u64) -> bool {
        let is_in = |ranges: &Vec<(u64, u64)>| {
            ranges.iter().any(|(from, to)| (*from..=*to).contains(&number))
        };
        self.steps.as_ref().is_none_or(is_in)
    }
}

impl Options {
    /// Whether rows that exist once an event are wanted: as data, of one rank.
    pub fn lists_single_rows(&self) -> bool {
        self.data && self.rank.is_some()
    }

    /// Whether only a part of the run is read.
    pub fn is_of_part(&self) -> bool {
        self.cycle.is_some() || self.window.is_some()
    }

    /// The text of `within`, where it has one.
    pub fn within_text(&self) -> Option<&str> {
        self.within.as_deref().filter(|text| !text.is_empty())
    }
}

/// Whether time by line of source is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineTables {
    /// No.
    #[default]
    No,
    /// In place of tables by function.
    Only,
    /// And tables by function.
    Too,
}

/// By what functions and lines are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// Time on a core, of their own.
    #[default]
    SelfTime,
    /// Time on a core, callees included.
    Total,
    /// Time of waits.
    Waited,
}

impl SortBy {
    /// All of them, as typed.
    pub const NAMES: [(&'static str, SortBy); 3] =
        [("self", SortBy::SelfTime), ("total", SortBy::Total), ("waited", SortBy::Waited)];

    /// In a title: `self time`.
    pub(crate) fn words(self) -> &'static str {
        match self {
            SortBy::SelfTime => "self time on a core",
            SortBy::Total => "total time on a core",
            SortBy::Waited => "time of waits",
        }
    }
}

/// A kind of report.
pub struct DocumentKind {
    /// Name, as typed.
    pub name: &'static str,
    /// What it shows, in a few words for `--help`.
    pub about: &'static str,
    /// Begins it.
    pub(crate) analysis: fn() -> Box<dyn StartedAnalysis>,
}

impl DocumentKind {
    /// The tables that it makes of a run without ranks: their columns, and no rows. Those for data
    /// only are among them.
    pub fn tables(&self) -> Vec<Table> {
        (self.analysis)().finish(&Options { data: true, ..Options::default() }).tables
    }

    /// Whether it honours an option, of those that not all do.
    pub fn takes(&self, option: &str) -> bool {
        (self.analysis)().takes().contains(&option)
    }
}

/// Which rank file is being analysed.
#[derive(Clone, Debug)]
pub struct RankContext {
    /// Rank; `None` for a launcher.
    pub rank: Option<u32>,
    /// Name of its rows: `rank 3`, `rank 3.1`, `launcher HOST`.
    pub label: String,
    /// File name.
    pub file: String,
    /// Its times as times since the run began.
    pub clock: Clock,
    /// Where it ran.
    pub machine: Machine,
}

/// What is known of the machine that a job ran on; the smallest of several.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine {
    /// Processors that the job may use.
    pub cpus: Option<u64>,
    /// Its memory, bytes.
    pub memory_bytes: Option<u64>,
}

impl Machine {
    /// Of the machines that a run was recorded on.
    pub(crate) fn of(infos: &[RunInfo]) -> Machine {
        let least = |key: &str| infos.iter().filter_map(|info| info.machine[key].as_u64()).min();
        // A count that could not be read is 0.
        let known = |value: &u64| *value > 0;
        Machine {
            cpus: least("cpus").filter(known),
            memory_bytes: least("memory_bytes").filter(known),
        }
    }
}

/// What an analysis made of a run.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The tables, the one that answers the question first.
    pub tables: Vec<Table>,
    /// What a reader should know, in sentences without a full stop.
    pub notes: Vec<String>,
}

/// An analysis: what it takes from each rank, and what it makes of all of them.
pub trait Analysis: Send + Sync {
    /// Name, as typed.
    const KIND: &'static str;
    /// Whether `--hta` reads its ranks otherwise than as they were recorded.
    const HTA: bool = true;
    /// What is kept of a rank. Small: there may be thousands.
    type Part: Send;

    /// Options that it honours, of those that not all do: `--within`, `--sort`.
    const TAKES: &'static [&'static str] = &[];

    /// Tables that it reads. It may be given more of them.
    fn needs(&self, options: &Options) -> Needs;

    /// What a rank has of what each option names that was given.
    fn named(&self, _rank: &RankTrace<'_>, _options: &Options) -> Vec<OptionMatches> {
        Vec::new()
    }

    /// Reads a rank.
    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> Self::Part;

    /// Joins the ranks, which come in their order.
    fn join(&self, parts: Vec<(RankContext, Self::Part)>, options: &Options) -> Body;
}

/// An analysis and what it has taken so far.
pub(crate) trait StartedAnalysis: Any + Send + Sync {
    /// [`Analysis::KIND`].
    fn kind(&self) -> &'static str;
    /// [`Analysis::HTA`].
    fn has_hta(&self) -> bool;
    /// [`Analysis::TAKES`].
    fn takes(&self) -> &'static [&'static str];
    /// [`Analysis::named`], of all ranks so far.
    fn named(&self) -> Vec<OptionMatches>;
    /// [`Analysis::needs`].
    fn needs(&self, options: &Options) -> Needs;
    /// Reads the rank of this place among the run's files.
    fn rank(&self, place: usize, rank: &RankTrace<'_>, at: &RankContext, options: &Options);
    /// Joins what was taken.
    fn finish(self: Box<Self>, options: &Options) -> Body;
}

/// Begins an analysis.
pub(crate) fn begin<A: Analysis + 'static>(analysis: A) -> UnjoinedAnalysis<A> {
    UnjoinedAnalysis { analysis, parts: Mutex::default(), named: Mutex::default() }
}

/// Begins one of which only [`StartedAnalysis`] is known.
pub(crate) fn boxed<A: Analysis + 'static>(analysis: A) -> Box<dyn StartedAnalysis> {
    Box::new(begin(analysis))
}

/// An analysis with its parts: place, rank, part.
pub(crate) struct UnjoinedAnalysis<A: Analysis> {
    analysis: A,
    parts: Mutex<Vec<(usize, RankContext, A::Part)>>,
    named: Mutex<Vec<OptionMatches>>,
}

impl<A: Analysis> UnjoinedAnalysis<A> {
    /// What was taken of the rank at this place among the run's files.
    pub fn part(&self, place: usize) -> Option<A::Part>
    where
        A::Part: Clone,
    {
        let parts = self.parts.lock().ok()?;
        parts.iter().find(|part| part.0 == place).map(|(.., part)| part.clone())
    }

    /// The analysis and its parts, in the ranks' order.
    pub fn into_parts(self) -> (A, Vec<(RankContext, A::Part)>) {
        // Poisoned means that a worker panicked, which ends the command.
        let mut parts = self.parts.into_inner().unwrap_or_default();
        parts.sort_by_key(|(place, ..)| *place);
        (self.analysis, parts.into_iter().map(|(_, at, part)| (at, part)).collect())
    }
}

impl<A: Analysis + 'static> StartedAnalysis for UnjoinedAnalysis<A> {
    fn kind(&self) -> &'static str {
        A::KIND
    }

    fn has_hta(&self) -> bool {
        A::HTA
    }

    fn takes(&self) -> &'static [&'static str] {
        A::TAKES
    }

    fn named(&self) -> Vec<OptionMatches> {
        self.named.lock().map_or_else(|_| Vec::new(), |named| named.clone())
    }

    fn needs(&self, options: &Options) -> Needs {
        self.analysis.needs(options)
    }

    fn rank(&self, place: usize, rank: &RankTrace<'_>, at: &RankContext, options: &Options) {
        let found = self.analysis.named(rank, options);
        if let Ok(mut named) = self.named.lock() {
            for one in found {
                match named.iter_mut().find(|all| all.option == one.option) {
                    Some(all) => all.add(one),
                    None => named.push(one),
                }
            }
        }
        let part = self.analysis.rank(rank, at, options);
        if let Ok(mut parts) = self.parts.lock() {
            parts.push((place, at.clone(), part));
        }
    }

    fn finish(self: Box<Self>, options: &Options) -> Body {
        let (analysis, parts) = self.into_parts();
        analysis.join(parts, options)
    }
}
