//! Selects a slice: the part of a run to export, by ranks, time, training steps or a cycle.
//!
//! The times of a slice count from the run's beginning, which is the same moment on every host.
//! Each file has times of its host's clock, so a slice becomes a [`Window`] of each file. An event
//! that touches the window is written completely. A window contains its first moment but not its
//! end: of two adjacent ones, the moment between them belongs to the later.

use tprof_facts::cycles::{self, Cycle};
use tprof_facts::steps::{self, StepSource};
use tprof_facts::{Clock, Zero};
use tprof_trace::{RankFile, RunDir, SymbolSource, TraceFile};

use crate::ExportError;
use crate::numbers::Numbers;

/// Selects a part of a run; by default everything. If several of these are set, only what meets all
/// of them is selected.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Leaves out events that ended before this time, in nanoseconds since the run began.
    pub from_ns: Option<u64>,
    /// Leaves out events that began at this time or later, in the same unit.
    pub to_ns: Option<u64>,
    /// Selects these steps of each rank.
    pub steps: Option<Numbers>,
    /// Where the steps come from; `None` for the first source that has steps.
    pub steps_from: Option<StepSource>,
    /// Selects this cycle of a schedule or this captured range, counted from 1.
    pub cycle: Option<u32>,
    /// Selects these ranks.
    pub ranks: Option<Numbers>,
    /// Whether a Chrome trace is written even if it has no events, because the program that
    /// requested it expects a file. Other formats ignore this. A slice before or after the run is
    /// an error in any case ([`ExportError::OutsideRun`]).
    pub allows_empty_chrome_trace: bool,
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

/// A stretch of time on the clock of a file, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First nanosecond of the stretch.
    pub from_ns: u64,
    /// First nanosecond after the stretch; `u64::MAX` if it has no end.
    pub to_ns: u64,
}

impl Window {
    /// A window without bounds.
    pub const ALL: Window = Window { from_ns: 0, to_ns: u64::MAX };

    /// Whether a moment lies within the window.
    pub fn holds(&self, time_ns: u64) -> bool {
        self.from_ns <= time_ns && (time_ns < self.to_ns || self.to_ns == u64::MAX)
    }

    /// Returns the part of the window from the beginning of the earliest to the end of the latest
    /// of these intervals; an empty window if there are none.
    fn limited_to(&self, times_ns: &[(u64, u64)]) -> Window {
        let from_ns = times_ns.iter().map(|(from, _)| *from).min().unwrap_or(u64::MAX);
        let to_ns = times_ns.iter().map(|(_, to)| *to).max().unwrap_or(u64::MAX);
        Window { from_ns: self.from_ns.max(from_ns), to_ns: self.to_ns.min(to_ns) }
    }

    /// Whether an interval, of which `end_ns` is the first moment after it, shares a moment with
    /// the window. An interval without length does if it lies within the window.
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
    /// The beginning of the run, from which times count.
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
    /// Converts between the file's clock and the time since the run began.
    pub clock: Clock,
    /// The window that the slice selects in this file.
    pub window: Window,
    /// Source of the file's steps; see [`Slice::steps_from`].
    pub steps_from: Option<StepSource>,
    /// Whether inferred steps determined the window.
    pub by_inferred_steps: bool,
}

impl<'a> Selection<'a> {
    /// Selects the files of a slice. `symbols` looks up addresses that the recorder could not name.
    /// Returns an error if the run has no files, if a rank does not exist, or if the slice ends
    /// before it begins.
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
            Some(ranks) => files_of_ranks(all, ranks)?,
        };
        Ok(Selection { run, files, zero: Zero::of(run), slice, symbols })
    }

    /// Opens a file and finds the slice's window in it. Returns an error if the file can't be read,
    /// if it has none of the steps or not the cycle, or if the window lies before or after its
    /// rows.
    pub fn open(&self, file: &'a RankFile) -> Result<OpenRank<'a>, ExportError> {
        let mut trace = TraceFile::open(&file.path)?;
        if let Some(symbols) = self.symbols {
            trace.name_missing(symbols);
        }
        let clock = self.zero.clock(&trace, self.run);
        let mut window = Window {
            from_ns: self.slice.from_ns.map_or(0, |ns| clock.file_ns(ns)),
            to_ns: self.slice.to_ns.map_or(u64::MAX, |ns| clock.file_ns(ns)),
        };
        if let Some(number) = self.slice.cycle {
            window = window.limited_to(&find_cycle(&trace, number)?.part.recorded_ns);
        }
        let mut by_inferred_steps = false;
        if let Some(wanted) = &self.slice.steps {
            let found = steps::of_file(&trace, self.slice.steps_from);
            by_inferred_steps = found.are_inferred();
            let steps = found.all;
            let mut selected = steps.iter().filter(|step| wanted.holds(step.number)).peekable();
            if selected.peek().is_none() {
                let available = steps.iter().map(|step| step.number).collect();
                return Err(ExportError::NoStep { step: wanted.first(), available });
            }
            let (from_ns, to_ns) = selected.fold((u64::MAX, 0), |(from_ns, to_ns), step| {
                (from_ns.min(step.start_ns), to_ns.max(step.end_ns))
            });
            window.from_ns = window.from_ns.max(from_ns);
            window.to_ns = window.to_ns.min(to_ns);
        }
        let (first_ns, last_ns) = trace.extent_ns().unwrap_or((clock.file_ns(0), clock.file_ns(0)));
        let is_limited = !self.slice.is_all_time();
        if is_limited && (window.from_ns > last_ns || window.to_ns <= first_ns) {
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
    /// Converts a time of this file's clock to nanoseconds since the run began; 0 if it is earlier.
    pub fn since_start(&self, time_ns: u64) -> u64 {
        self.clock.since_start(time_ns)
    }
}

/// Finds a cycle of a file by its number. If the file has no such cycle, the error lists those that
/// it has.
fn find_cycle(trace: &TraceFile, cycle: u32) -> Result<Cycle, ExportError> {
    let mut all = cycles::of(trace);
    match all.iter().position(|of| of.number == cycle) {
        Some(index) => Ok(all.swap_remove(index)),
        None => {
            let available = all.into_iter().map(|of| of.name).collect();
            Err(ExportError::NoCycle { cycle, available })
        }
    }
}

/// Returns the files of these ranks. Returns an error if a rank that was named, or an end of a
/// named range, does not exist.
fn files_of_ranks<'a>(
    all: Vec<&'a RankFile>,
    ranks: &Numbers,
) -> Result<Vec<&'a RankFile>, ExportError> {
    let mut available: Vec<u32> = all.iter().filter_map(|file| file.rank).collect();
    available.dedup();
    let numbers: Vec<u64> = available.iter().map(|rank| u64::from(*rank)).collect();
    if let Some(rank) = ranks.missing(&numbers).first() {
        return Err(ExportError::NoRank { rank: *rank, available });
    }
    Ok(all
        .into_iter()
        .filter(|file| file.rank.is_some_and(|rank| ranks.holds(rank.into())))
        .collect())
}
