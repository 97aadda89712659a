//! Defines the part of a run to export: ranks, a stretch of time, training steps.
//!
//! Times are relative to the run's beginning, which is the same moment on every host. An event that
//! touches a slice is written completely. If one stretch ends where another begins, this moment
//! belongs to the later one.

use tprof_facts::cycles::{self, Cycle};
use tprof_facts::steps::{self, StepSource};
use tprof_facts::{Clock, Zero};
use tprof_trace::{RankFile, RunDir, SymbolSource, TraceFile};

use crate::ExportError;
use crate::numbers::Numbers;

/// Selects a part of a run; by default everything.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Leaves out events that ended before this time, in nanoseconds since the run began.
    pub from_ns: Option<u64>,
    /// Leaves out events that began at this time or later, in the same unit.
    pub to_ns: Option<u64>,
    /// Selects these steps of each rank.
    pub steps: Option<Numbers>,
    /// Source of the steps; `None` for the first source that has steps.
    pub steps_from: Option<StepSource>,
    /// Selects this cycle of a schedule or this captured range, counted from 1.
    pub cycle: Option<u32>,
    /// Selects these ranks.
    pub ranks: Option<Numbers>,
    /// Whether an empty slice is not an error, because the program that chose it expects a file in
    /// any case.
    pub may_be_empty: bool,
}

impl Slice {
    /// Whether the slice selects all ranks and all times.
    pub fn is_whole(&self) -> bool {
        self.is_all_time() && self.ranks.is_none()
    }

    /// Whether the slice selects all times.
    pub fn is_all_time(&self) -> bool {
        let times = self.from_ns.is_none() && self.to_ns.is_none();
        times && self.steps.is_none() && self.cycle.is_none()
    }
}

/// A stretch of time on the clock of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First nanosecond of the stretch.
    pub from_ns: u64,
    /// First nanosecond after the stretch.
    pub to_ns: u64,
}

impl Window {
    /// A window without bounds.
    pub const ALL: Window = Window { from_ns: 0, to_ns: u64::MAX };

    /// Whether a moment lies within the window.
    pub fn holds(&self, time_ns: u64) -> bool {
        self.from_ns <= time_ns && (time_ns < self.to_ns || self.to_ns == u64::MAX)
    }

    /// Returns the part of the window from the earliest to the latest of these intervals.
    fn within(&self, times_ns: &[(u64, u64)]) -> Window {
        let from_ns = times_ns.iter().map(|(from, _)| *from).min().unwrap_or(u64::MAX);
        let to_ns = times_ns.iter().map(|(_, to)| *to).max().unwrap_or(u64::MAX);
        Window { from_ns: self.from_ns.max(from_ns), to_ns: self.to_ns.min(to_ns) }
    }

    /// Whether an interval touches the window.
    pub fn touches(&self, start_ns: u64, end_ns: u64) -> bool {
        start_ns < self.to_ns && (end_ns > self.from_ns || start_ns >= self.from_ns)
    }
}

/// The files of a run that a slice selects.
pub struct Selection<'a> {
    /// The run that is read.
    pub run: &'a RunDir,
    /// The selected files.
    pub files: Vec<&'a RankFile>,
    /// The beginning of the run.
    pub zero: Zero,
    slice: &'a Slice,
    symbols: Option<&'a dyn SymbolSource>,
}

/// One file of a run, open.
pub struct OpenRank<'a> {
    /// The file that is open.
    pub file: &'a RankFile,
    /// Content of the file.
    pub trace: TraceFile,
    /// Converts from the file's clock to the time since the run began.
    pub clock: Clock,
    /// The window that the slice selects in this file; empty if the slice contains nothing of it.
    pub window: Window,
    /// Source of the file's steps; see [`Slice::steps_from`].
    pub steps_from: Option<StepSource>,
    /// Whether inferred steps determined the window.
    pub by_inferred_steps: bool,
}

impl<'a> Selection<'a> {
    /// Selects the files of a slice. `symbols` looks up addresses that the recorder could not name.
    pub fn new(
        run: &'a RunDir,
        slice: &'a Slice,
        symbols: Option<&'a dyn SymbolSource>,
    ) -> Result<Selection<'a>, ExportError> {
        let all: Vec<&RankFile> = run.files().iter().collect();
        if all.is_empty() {
            return Err(ExportError::NoFile);
        }
        if let (Some(from_ns), Some(to_ns)) = (slice.from_ns, slice.to_ns)
            && from_ns >= to_ns
        {
            return Err(ExportError::Backwards { from_ns, to_ns });
        }
        let files = match &slice.ranks {
            None => all,
            Some(ranks) => of_ranks(all, ranks)?,
        };
        Ok(Selection { run, files, zero: Zero::of(run), slice, symbols })
    }

    /// Opens a file and finds the slice in it.
    pub fn open(&self, file: &'a RankFile) -> Result<OpenRank<'a>, ExportError> {
        let mut trace = TraceFile::open(&file.path)?;
        if let Some(symbols) = self.symbols {
            trace.name_missing(symbols);
        }
        let clock = self.zero.clock(&trace, self.run);
        let mut window = Window {
            from_ns: self.slice.from_ns.map_or(0, |ns| clock.at(ns)),
            to_ns: self.slice.to_ns.map_or(u64::MAX, |ns| clock.at(ns)),
        };
        if let Some(number) = self.slice.cycle {
            window = window.within(&cycle_of(&trace, number)?.part.recorded_ns);
        }
        let mut by_inferred_steps = false;
        if let Some(wanted) = &self.slice.steps {
            let found = steps::of_file(&trace, self.slice.steps_from);
            by_inferred_steps = found.are_inferred();
            let steps = found.all;
            let mut selected = steps.iter().filter(|step| wanted.holds(step.number)).peekable();
            if selected.peek().is_none() {
                let there = steps.iter().map(|step| step.number).collect();
                return Err(ExportError::NoStep { step: wanted.first(), there });
            }
            let (from_ns, to_ns) = selected.fold((u64::MAX, 0), |(from_ns, to_ns), step| {
                (from_ns.min(step.start_ns), to_ns.max(step.end_ns))
            });
            window.from_ns = window.from_ns.max(from_ns);
            window.to_ns = window.to_ns.min(to_ns);
        }
        let (first_ns, last_ns) = trace.extent_ns().unwrap_or((clock.at(0), clock.at(0)));
        let all = self.slice.is_all_time();
        if !all && (window.from_ns > last_ns || window.to_ns <= first_ns) {
            return Err(ExportError::OutsideRun {
                first_ns: clock.since_start(first_ns),
                last_ns: clock.since_start(last_ns),
            });
        }
        let steps_from = self.slice.steps_from;
        Ok(OpenRank { file, trace, clock, window, steps_from, by_inferred_steps })
    }
}

impl OpenRank<'_> {
    /// Converts a time of this file's clock to nanoseconds since the run began.
    pub fn at(&self, time_ns: u64) -> u64 {
        self.clock.since_start(time_ns)
    }
}

/// Returns the window of a cycle of a file.
fn cycle_of(trace: &TraceFile, cycle: u32) -> Result<Cycle, ExportError> {
    let mut all = cycles::of(trace);
    match all.iter().position(|of| of.number == cycle) {
        Some(at) => Ok(all.swap_remove(at)),
        None => {
            let there = all.into_iter().map(|of| of.name).collect();
            Err(ExportError::NoCycle { cycle, there })
        }
    }
}

/// Returns the files of these ranks. Returns an error if a rank that was named does not exist.
fn of_ranks<'a>(all: Vec<&'a RankFile>, ranks: &Numbers) -> Result<Vec<&'a RankFile>, ExportError> {
    let mut there: Vec<u32> = all.iter().filter_map(|file| file.rank).collect();
    there.dedup();
    let wide: Vec<u64> = there.iter().map(|rank| u64::from(*rank)).collect();
    if let Some(rank) = ranks.missing(&wide).first() {
        return Err(ExportError::NoRank { rank: *rank, there });
    }
    Ok(all
        .into_iter()
        .filter(|file| file.rank.is_some_and(|rank| ranks.holds(rank.into())))
        .collect())
}
