//! Computes data about a rank's file that the columns of its rows need.

use std::cell::OnceCell;

use tprof_analyze::joined::{JoinedRank, SpanPlaces};
use tprof_export::OpenRank;
use tprof_facts::Clock;
use tprof_facts::frames::{Frame, Frames};
use tprof_facts::history;
use tprof_facts::steps::StepSource;
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, ProcessIndex, StackId, ThreadIndex};

use crate::cell::Cell;
use crate::columns::history::StepFigures;
use crate::row_source::RowSource;

/// An open file of a rank, with data that is computed when a column first needs it.
pub struct Context<'a> {
    /// The run and the file.
    pub source: RowSource,
    /// The contents of the file.
    pub trace: &'a TraceFile,
    clock: Clock,
    steps_from: Option<StepSource>,
    world_size: Option<u32>,
    joined: OnceCell<JoinedRank<'a>>,
    places: OnceCell<SpanPlaces>,
    frames: OnceCell<Frames<'a>>,
}

impl<'a> Context<'a> {
    /// Creates the context of an open file. `run` is the name of its run.
    pub fn of(run: &str, part: &'a OpenRank<'_>) -> Context<'a> {
        Context {
            source: RowSource::of(run, part.file, &part.trace),
            trace: &part.trace,
            clock: part.clock,
            steps_from: part.steps_from,
            world_size: part.file.world_size,
            joined: OnceCell::new(),
            places: OnceCell::new(),
            frames: OnceCell::new(),
        }
    }

    /// Returns the launches, steps and collectives, joined as in reports. The first call computes
    /// them.
    pub(crate) fn joined(&self) -> &JoinedRank<'a> {
        self.joined.get_or_init(|| JoinedRank::of(self.trace, self.steps_from, self.world_size))
    }

    /// Returns the rows of the rank's history.
    pub(crate) fn history(&self) -> impl Iterator<Item = StepFigures> + use<> {
        let history = history::of_file(self.trace, self.steps_from);
        let written = history.rows.len() - history.computed;
        let rows = history.rows.into_iter().enumerate();
        rows.map(move |(at, row)| StepFigures { row, is_computed: at >= written })
    }

    /// Returns the places of spans. The first call computes them.
    pub(crate) fn places(&self) -> &SpanPlaces {
        self.places.get_or_init(|| SpanPlaces::of(self.trace))
    }

    /// Returns the functions at the innermost address of a stack. The innermost inlined function
    /// comes first.
    pub(crate) fn innermost(&self, process: ProcessIndex, stack: StackId) -> Vec<Frame<'a>> {
        let frames = self.frames.get_or_init(|| Frames::new(self.trace));
        let found = self.trace.stack(process, stack).filter(|_| stack > 0);
        let address = found.and_then(|found| found.frames.first());
        address.map(|address| frames.at(process, *address)).unwrap_or_default()
    }

    pub(crate) fn time(&self, time_ns: u64) -> Cell<'a> {
        Cell::Int(self.clock.signed_since_start(time_ns))
    }

    pub(crate) fn time_opt(&self, time_ns: Option<u64>) -> Cell<'a> {
        time_ns.map_or(Cell::Null, |time_ns| self.time(time_ns))
    }

    pub(crate) fn name(&self, name: NameId) -> Cell<'a> {
        Cell::text(self.trace.name(name))
    }

    pub(crate) fn tid(&self, thread: ThreadIndex) -> Cell<'a> {
        let threads = self.trace.threads();
        let found = threads.binary_search_by_key(&thread, |row| row.thread);
        found.map_or(Cell::Null, |at| Cell::uint(threads[at].tid.into()))
    }
}
