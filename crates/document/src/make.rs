//! Defines the interface of an analysis and the options of reports, and runs analyses.

use std::any::Any;
use std::path::Path;
use std::sync::Mutex;

use tprof_facts::Clock;
use tprof_facts::flops::peaks::Peaks;
use tprof_facts::steps::StepSource;
use tprof_rank::base::intervals::Interval;
use tprof_rank::{Needs, RankTrace, Step};
use tprof_trace::run::RunInfo;

use super::{OptionMatches, Table};

/// The options of a report.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The only rank to read; `None` for all.
    pub rank: Option<u32>,
    /// Whether traces are read as Holistic Trace Analysis does: see `RankTrace::load_as`.
    pub hta: bool,
    /// Whether a report about steps leaves out warm-up and the steps in which `torch.compile`
    /// compiled.
    pub steady: bool,
    /// The source of steps; `None` for the first source that has any.
    pub steps_from: Option<StepSource>,
    /// Number of the only cycle of a schedule, or captured range, to read, from 1; `None` for all.
    pub cycle: Option<u32>,
    /// The part of the run's time to read, by the beginnings of events, in all reports.
    pub window: Option<Window>,
    /// The part of the run to report on, in reports that support one.
    pub cut: TimeSelection,
    /// A text that the names of the operators to report on contain, in reports about operators.
    pub operator: Option<String>,
    /// The range to report on, in reports that support it: a text that its name contains, and `:N`
    /// for the Nth such range, from 0.
    pub within: Option<String>,
    /// The threads to report on, in reports that support it: a text that their names contain, or
    /// the number of a thread.
    pub thread: Option<String>,
    /// Whether reports that support it have tables by source line, besides or in place of those by
    /// function.
    pub lines: LineTables,
    /// Order of functions and lines, in reports that support several.
    pub sort: SortBy,
    /// Whether only the user's own files are reported on, in reports that support it.
    pub mine: bool,
    /// Whether to report why warps of GPU kernels waited, in reports that support it.
    pub stalls: bool,
    /// Peak rates of the devices; they replace those of the built-in table.
    pub peaks: Option<Peaks>,
    /// Whether to make the long tables that are not displayed too ([`super::View::Data`]).
    pub data: bool,
    /// Returns whether the collector of an unfinished run in a directory is still at work. Without
    /// this function, the collector counts as gone.
    pub is_running: Option<fn(&RunInfo, &Path) -> bool>,
}

/// A part of a run's time. The end is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Nanoseconds since the run began.
    OfRun(u64, u64),
    /// A window that the program itself set, in nanoseconds of its host's monotonic clock.
    OfProgram {
        /// The start of the window.
        from_ns: u64,
        /// The exclusive end of the window.
        to_ns: u64,
        /// If the program waited for its devices after the window: the time at which the devices
        /// had finished the window's work.
        device_until_ns: Option<u64>,
    },
}

impl Window {
    /// Converts the window to the clock of a file.
    pub fn on(self, clock: Clock) -> (u64, u64) {
        match self {
            Window::OfRun(from, to) => (clock.file_ns(from), clock.file_ns(to)),
            Window::OfProgram { from_ns, to_ns, .. } => (from_ns, to_ns),
        }
    }
}

/// A part of a run's time; the default is the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeSelection {
    /// The start of the part, nanoseconds since the run began.
    pub from_ns: Option<u64>,
    /// The exclusive end of the part, nanoseconds since the run began.
    pub to_ns: Option<u64>,
    /// Ranges of step numbers, both ends included: the part lasts from the first to the last of
    /// these steps, on each rank.
    pub steps: Option<Vec<(u64, u64)>>,
}

impl TimeSelection {
    /// Whether the whole run is selected.
    pub fn is_all(&self) -> bool {
        *self == TimeSelection::default()
    }

    /// Converts the part to an interval on a file's clock. `steps` are the steps of the file.
    pub fn interval(&self, clock: Clock, steps: &[Step]) -> Interval {
        let from = self.from_ns.map_or(0, |ns| clock.file_ns(ns));
        let to = self.to_ns.map_or(u64::MAX, |ns| clock.file_ns(ns));
        let times = Interval::new(from, to);
        if self.steps.is_none() {
            return times;
        }
        let wanted = steps.iter().filter(|step| self.holds(step.number)).map(|step| step.interval);
        let all = wanted.reduce(|a, b| Interval::new(a.start.min(b.start), a.end.max(b.end)));
        // A rank without any of the chosen steps has no time in the part.
        times.overlap(all.unwrap_or(Interval::new(from, from)))
    }

    /// Whether the part includes the step of this number.
    pub fn holds(&self, number: u64) -> bool {
        let is_in = |ranges: &Vec<(u64, u64)>| {
            ranges.iter().any(|(from, to)| (*from..=*to).contains(&number))
        };
        self.steps.as_ref().is_none_or(is_in)
    }
}

impl Options {
    /// Whether tables with one row for each event are made: only as data, and only for one rank.
    pub fn lists_single_rows(&self) -> bool {
        self.data && self.rank.is_some()
    }

    /// Whether only a part of the run is read.
    pub fn is_of_part(&self) -> bool {
        self.cycle.is_some() || self.window.is_some()
    }

    /// The text of `within`, if it was given.
    pub fn within_text(&self) -> Option<&str> {
        self.within.as_deref().filter(|text| !text.is_empty())
    }
}

/// Whether tables by source line are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineTables {
    /// Only tables by function are made.
    #[default]
    No,
    /// Tables by line take the place of those by function.
    Only,
    /// Tables by line are made besides those by function.
    Too,
}

/// The order of functions and lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// Time on a core of the function or line itself.
    #[default]
    SelfTime,
    /// Time on a core, callees included.
    Total,
    /// Time of waits.
    Waited,
}

impl SortBy {
    /// All orders, by the word that selects them on the command line.
    pub const NAMES: [(&'static str, SortBy); 3] =
        [("self", SortBy::SelfTime), ("total", SortBy::Total), ("waited", SortBy::Waited)];

    /// The words for a title: `self time`.
    pub fn words(self) -> &'static str {
        match self {
            SortBy::SelfTime => "self time on a core",
            SortBy::Total => "total time on a core",
            SortBy::Waited => "time of waits",
        }
    }
}

/// A kind of report.
pub struct DocumentKind {
    /// Name of the kind, as typed on the command line.
    pub name: &'static str,
    /// A description of a few words for `--help`.
    pub about: &'static str,
    /// Starts an analysis of this kind.
    pub analysis: fn() -> Box<dyn StartedAnalysis>,
}

impl DocumentKind {
    /// The tables that the kind makes for a run without ranks: all its columns, including those of
    /// tables for data only, and no rows.
    pub fn tables(&self) -> Vec<Table> {
        (self.analysis)().finish(&Options { data: true, ..Options::default() }).tables
    }

    /// Whether the kind honours an option, if the option is one of those that only some kinds
    /// honour.
    pub fn takes(&self, option: &str) -> bool {
        (self.analysis)().takes().contains(&option)
    }
}

/// The rank file that is being analysed.
#[derive(Clone, Debug)]
pub struct RankContext {
    /// The rank's number; `None` for a launcher.
    pub rank: Option<u32>,
    /// The displayed name of the rank: `rank 3`, `rank 3, restart 1`, `launcher on HOST`.
    pub label: String,
    /// Name of the rank's file.
    pub file: String,
    /// Converts the file's times to times since the run began.
    pub clock: Clock,
    /// The machine that the rank ran on.
    pub machine: Machine,
}

/// The known properties of the machine that a job ran on. If there were several machines, these are
/// the smallest values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine {
    /// Processors that the job may use.
    pub cpus: Option<u64>,
    /// Memory of the machine, bytes.
    pub memory_bytes: Option<u64>,
}

impl Machine {
    /// Joins the machines that a run was recorded on.
    pub fn of(infos: &[RunInfo]) -> Machine {
        let least = |key: &str| infos.iter().filter_map(|info| info.machine[key].as_u64()).min();
        // The collector writes 0 for a number that it could not read.
        let known = |value: &u64| *value > 0;
        Machine {
            cpus: least("cpus").filter(known),
            memory_bytes: least("memory_bytes").filter(known),
        }
    }
}

/// The result of an analysis.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The tables, the one that answers the question first.
    pub tables: Vec<Table>,
    /// Notes for the reader, in sentences without a full stop.
    pub notes: Vec<String>,
}

/// An analysis: it reads a part from each rank, and makes tables of all parts.
pub trait Analysis: Send + Sync {
    /// Name of the kind, as typed on the command line.
    const KIND: &'static str;
    /// Whether `--hta` changes how the analysis reads ranks.
    const HTA: bool = true;
    /// The data that the analysis keeps of a rank. It must be small: there may be thousands of
    /// ranks.
    type Part: Send;

    /// Options that only some kinds of report honour, such as `--within` and `--sort`: those that
    /// this analysis honours.
    const TAKES: &'static [&'static str] = &[];

    /// The tables that the analysis reads. More tables than these may be loaded.
    fn needs(&self, options: &Options) -> Needs;

    /// Compares the text of each option that the user gave with the names in a rank.
    fn option_matches(&self, _rank: &RankTrace<'_>, _options: &Options) -> Vec<OptionMatches> {
        Vec::new()
    }

    /// Reads one rank and returns its part.
    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> Self::Part;

    /// Joins the parts of all ranks, which are in the order of the ranks.
    fn join(&self, parts: Vec<(RankContext, Self::Part)>, options: &Options) -> Body;
}

/// An analysis with the parts that it has read so far.
pub trait StartedAnalysis: Any + Send + Sync {
    /// Returns the [`Analysis::KIND`] of this analysis.
    fn kind(&self) -> &'static str;
    /// Returns the [`Analysis::HTA`] of this analysis.
    fn has_hta(&self) -> bool;
    /// Returns the [`Analysis::TAKES`] of this analysis.
    fn takes(&self) -> &'static [&'static str];
    /// Returns the matches of [`Analysis::option_matches`], joined over all ranks so far.
    fn option_matches(&self) -> Vec<OptionMatches>;
    /// Returns the tables that [`Analysis::needs`] names.
    fn needs(&self, options: &Options) -> Needs;
    /// Reads a rank; `place` is its place among the run's files.
    fn rank(&self, place: usize, rank: &RankTrace<'_>, at: &RankContext, options: &Options);
    /// Joins the parts of all ranks and makes the tables.
    fn finish(self: Box<Self>, options: &Options) -> Body;
}

/// Starts an analysis.
pub fn begin<A: Analysis + 'static>(analysis: A) -> UnjoinedAnalysis<A> {
    UnjoinedAnalysis { analysis, parts: Mutex::default(), option_matches: Mutex::default() }
}

/// Starts an analysis, as a [`StartedAnalysis`] of unknown type.
pub fn boxed<A: Analysis + 'static>(analysis: A) -> Box<dyn StartedAnalysis> {
    Box::new(begin(analysis))
}

/// An analysis with the parts that it has read: place, rank, part.
pub struct UnjoinedAnalysis<A: Analysis> {
    analysis: A,
    parts: Mutex<Vec<(usize, RankContext, A::Part)>>,
    option_matches: Mutex<Vec<OptionMatches>>,
}

impl<A: Analysis> UnjoinedAnalysis<A> {
    /// Removes and returns the part of the rank at this place among the run's files.
    pub fn part(&self, place: usize) -> Option<A::Part>
    where
        A::Part: Clone,
    {
        let parts = self.parts.lock().ok()?;
        parts.iter().find(|part| part.0 == place).map(|(.., part)| part.clone())
    }

    /// Returns the analysis and its parts, in the order of the ranks.
    pub fn into_parts(self) -> (A, Vec<(RankContext, A::Part)>) {
        // A poisoned lock means that a worker panicked, which ends the command.
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

    fn option_matches(&self) -> Vec<OptionMatches> {
        self.option_matches.lock().map_or_else(|_| Vec::new(), |matches| matches.clone())
    }

    fn needs(&self, options: &Options) -> Needs {
        self.analysis.needs(options)
    }

    fn rank(&self, place: usize, rank: &RankTrace<'_>, at: &RankContext, options: &Options) {
        let found = self.analysis.option_matches(rank, options);
        if let Ok(mut matches) = self.option_matches.lock() {
            for one in found {
                match matches.iter_mut().find(|all| all.option == one.option) {
                    Some(all) => all.add(one),
                    None => matches.push(one),
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
