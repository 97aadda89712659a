//! Turns the records of PyTorch's operators and ranges into rows. They are the same rows as those
//! that an import of torch.profiler's trace makes.

mod inputs;
mod ranges;
mod recorded;
mod version;

use inputs::InputTexts;
use ranges::{OpenRanges, RangesLeft};
pub use recorded::OperatorNote;
use recorded::Recorded;

use crate::output::files::OpenFile;
use crate::output::losses::Losses;
use crate::output::stepping::is_step;
use crate::shared::clock::Clock;
use crate::targets::interned::Interned;
use crate::targets::progress::{EnteredOperation, Operations, StepSource, Steps, is_between_two};
use tprof_facts::thinned::Thinning;
use tprof_trace::model::*;
use tprof_trace::{TraceError, TraceWriter};
use tprof_wire::operators::{Inputs, Operator, RangeEdge};
use tprof_wire::pytorch::PROFILER_STEP;

/// Rows are written when this many of them wait.
const MAX_ROWS: usize = 16_384;
/// The longest time that rows wait. If the collector is killed, only the rows of this time are
/// lost.
const LONGEST_WAIT_NS: u64 = 250_000_000;
/// Number of rows that may wait for their names.
const MAX_WAITING: usize = 1 << 18;

/// A decoded record of operators. Its name is an id that may not be defined yet.
#[derive(Debug)]
pub enum OperatorRecord {
    /// An operator has ended: the id of its name, and what else is recorded of it.
    Over(u32, Operator),
    /// A range begins: the id of its name, and its object and inputs.
    Opens(u32, RangeEdge),
    /// A range ends: its object.
    Closes(RangeEdge),
    /// A note about which operators are recorded from now on.
    Note(OperatorNote),
}

/// An operator or range that has ended. Its name may not be defined yet.
#[derive(Clone, Copy, Debug)]
struct FinishedOperator {
    kind: SpanKind,
    name: u32,
    inputs: Inputs,
    thread: ThreadIndex,
    start_ns: u64,
    duration_ns: u64,
}

/// The operators of an image that are not written to its file yet.
#[derive(Debug)]
pub struct Operators {
    process: ProcessIndex,
    ranges: OpenRanges,
    texts: InputTexts,
    spans: Vec<Span>,
    waiting: Vec<FinishedOperator>,
    recorded: Recorded,
    first_waiting_ns: Option<u64>,
    /// Time when the last pass over the rings began: all earlier records have been read.
    read_until_ns: u64,
    /// Whether a range has ended that PyTorch names as a step.
    has_stepped: bool,
    /// The state that [`Self::take_progress`] has seen last.
    known: Option<bool>,
    /// Number of operators and ranges that have ended so far.
    pub taken: u64,
    /// Number of operators that have ended so far, without ranges.
    pub operators: u64,
    nameless: u64,
    unwritten: u64,
    /// The steps that ranges show.
    pub steps: Steps,
    /// The operations between ranks that are over, of process groups that run on the host.
    pub operations: Operations,
}

impl Operators {
    /// Returns the operators of an image that has run none yet.
    pub fn new(process: ProcessIndex) -> Operators {
        Operators {
            process,
            ranges: OpenRanges::default(),
            texts: InputTexts::default(),
            spans: Vec::new(),
            waiting: Vec::new(),
            recorded: Recorded::default(),
            first_waiting_ns: None,
            read_until_ns: 0,
            has_stepped: false,
            known: None,
            taken: 0,
            operators: 0,
            nameless: 0,
            unwritten: 0,
            steps: Steps::default(),
            operations: Operations::default(),
        }
    }

    /// Whether the process has registered callbacks with PyTorch.
    pub fn are_recorded(&self) -> bool {
        self.recorded.is_armed()
    }

    /// Notes what is recorded less of from now on, if that is operators.
    pub fn thin(&mut self, by: &Thinning, process: ProcessIndex, file: &mut OpenFile) {
        self.recorded.thin(by, process, file);
    }

    /// Adds a record that a thread wrote at the clock `ticks`.
    pub fn take(
        &mut self,
        record: OperatorRecord,
        thread: ThreadIndex,
        ticks: u64,
        clock: &Clock,
        interned: &mut Interned,
        file: &mut OpenFile,
    ) {
        let time_ns = clock.ns(ticks);
        let over = match record {
            OperatorRecord::Over(name, Operator { ticks: duration, inputs }) => {
                let start_ns = clock.ns(ticks.saturating_sub(duration));
                let duration_ns = time_ns.saturating_sub(start_ns);
                let kind = SpanKind::Operator;
                self.operators += 1;
                Some(FinishedOperator { kind, name, inputs, thread, start_ns, duration_ns })
            }
            OperatorRecord::Opens(name, edge) => {
                self.ranges.opens(name, edge, thread, time_ns);
                None
            }
            OperatorRecord::Closes(edge) => {
                self.ranges.closes(edge, time_ns);
                None
            }
            OperatorRecord::Note(note) => {
                self.recorded.take(note, self.process, time_ns, interned, file);
                None
            }
        };
        if let Some(over) = over {
            self.over(over, interned, &mut file.writer);
        }
    }

    fn over(&mut self, over: FinishedOperator, interned: &mut Interned, writer: &mut TraceWriter) {
        self.taken += 1;
        self.first_waiting_ns.get_or_insert(over.start_ns + over.duration_ns);
        if !self.row(&over, interned, writer) {
            match over.name == 0 || self.waiting.len() >= MAX_WAITING {
                true => self.nameless += 1,
                false => self.waiting.push(over),
            }
        }
    }

    /// Returns whether the process has made a step, but only if that is news: once after its first
    /// operator, and once after its first step.
    pub fn take_progress(&mut self) -> Option<bool> {
        let now = (self.taken > 0).then_some(self.has_stepped);
        (now != self.known).then(|| self.known = now).and(now)
    }

    /// Adds a row for an operator. Returns false if its name or inputs are not defined yet, so that
    /// it must wait.
    fn row(
        &mut self,
        over: &FinishedOperator,
        interned: &mut Interned,
        writer: &mut TraceWriter,
    ) -> bool {
        let Some(name) = interned.name(over.name, writer) else { return false };
        let Some(args) = self.texts.text(over.inputs.sizes, interned, writer) else { return false };
        if over.kind == SpanKind::Annotation
            && let Some(text) = interned.text(over.name)
        {
            self.progressed(over, text);
        }
        self.spans.push(Span {
            start_ns: over.start_ns,
            duration_ns: over.duration_ns,
            process: self.process,
            thread: over.thread,
            kind: over.kind,
            name,
            sequence: over.inputs.sequence.checked_sub(1).map(u64::from),
            args,
            ..Span::default()
        });
        true
    }

    /// Notes a range that is a step or an operation between ranks.
    fn progressed(&mut self, over: &FinishedOperator, name: &str) {
        let end_ns = over.start_ns + over.duration_ns;
        if let Some(operation) = operation_of(name) {
            self.operations.add(operation, None, end_ns);
        } else if let Some(number) = name.strip_prefix(PROFILER_STEP) {
            self.steps.add(
                StepSource::Profiler,
                number.trim_start_matches('#').parse().ok(),
                end_ns,
            );
        } else if is_step(name) {
            self.steps.add(StepSource::Optimizer(over.name), None, end_ns);
        }
        self.has_stepped |= is_step(name);
    }

    /// Returns the operations between ranks that have begun and not ended, in order of time.
    pub fn open_operations(&self, interned: &Interned) -> Vec<EnteredOperation> {
        let open = self.ranges.open().filter_map(|(name, start_ns)| {
            let name = operation_of(interned.text(name)?)?.to_owned();
            Some(EnteredOperation { number: 0, name, bytes: None, time_ns: start_ns })
        });
        let mut open: Vec<EnteredOperation> = open.collect();
        open.sort_by_key(|operation| operation.time_ns);
        for (operation, number) in open.iter_mut().zip(self.operations.count..) {
            operation.number = number;
        }
        open
    }

    /// Makes the next call of [`Self::write`] write all rows, even if too few wait.
    pub fn write_all_next(&mut self) {
        self.first_waiting_ns = self.first_waiting_ns.map(|_| 0);
    }

    /// Writes the waiting rows if there are enough of them, if they have waited long enough, or if
    /// `last` is set. The caller has read all records before `now_ns`, or all records if `last` is
    /// set.
    pub fn write(
        &mut self,
        now_ns: u64,
        last: bool,
        interned: &mut Interned,
        writer: &mut TraceWriter,
    ) -> Result<(), TraceError> {
        let until_ns = if last { u64::MAX } else { self.read_until_ns };
        self.read_until_ns = now_ns;
        for over in self.ranges.over(until_ns) {
            self.over(over, interned, writer);
        }
        let waited = self.first_waiting_ns.map_or(0, |first| now_ns.saturating_sub(first));
        let rows = self.spans.len() + self.waiting.len();
        if rows == 0 || !(last || rows >= MAX_ROWS || waited >= LONGEST_WAIT_NS) {
            return Ok(());
        }
        for over in std::mem::take(&mut self.waiting) {
            if !self.row(&over, interned, writer) {
                self.waiting.push(over);
            }
        }
        self.first_waiting_ns = (!self.waiting.is_empty()).then_some(now_ns);
        let rows = self.spans.len() as u64;
        let written = writer.write(&mut self.spans);
        self.unwritten += if written.is_err() { rows } else { 0 };
        written
    }

    /// Ends the ranges that are open when the process ends, and counts the losses.
    pub fn finish(
        &mut self,
        end_ns: u64,
        interned: &mut Interned,
        writer: &mut TraceWriter,
        losses: &mut Losses,
    ) {
        for over in self.ranges.over(u64::MAX) {
            self.over(over, interned, writer);
        }
        let RangesLeft { cut, endless } = self.ranges.finish(end_ns);
        let open = cut.len() as u64;
        for over in cut {
            self.over(over, interned, writer);
        }
        if let Err(error) = self.write(end_ns, true, interned, writer) {
            losses.complain(&error.to_string());
        }
        let nameless = self.nameless + self.waiting.len() as u64;
        if self.recorded.forked {
            let why = "their process was forked while its parent registered callbacks";
            losses.lose("operators and ranges", why, 0);
        }
        for (what, why, count) in [
            ("ends of ranges", "their process ended before them", open),
            ("ends of ranges", "they were not recorded", endless),
            ("operators and ranges", "the ring was full when their names were defined", nameless),
            ("sizes of operators", "there were too many different ones", self.texts.left_out),
            ("operators and ranges", crate::output::flushing::UNWRITTEN, self.unwritten),
        ] {
            if count > 0 {
                losses.lose(what, why, count);
            }
        }
    }
}

/// Returns the operation for the name of a range that PyTorch puts around an operation between ranks
/// on the host, if it is one of a whole group.
fn operation_of(name: &str) -> Option<&str> {
    const BACKENDS: [&str; 2] = ["gloo:", "mpi:"];
    let operation = BACKENDS.iter().find_map(|backend| name.strip_prefix(backend))?;
    (!is_between_two(operation)).then_some(operation)
}

#[cfg(test)]
mod tests;
