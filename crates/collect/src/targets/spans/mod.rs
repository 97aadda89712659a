//! Turns the spans, steps, instants and values that a program records itself through `tprof_abi`
//! into rows.
//!
//! Such spans become annotations, like those of PyTorch's `record_function`. Both are ranges that
//! the program's author named, and every analysis of annotations should include both. The category
//! of a program's own spans is `tprof`.

mod args;
mod finished;
mod open;
mod redacted;
mod totals;

use crate::config::Config;
use crate::output::losses::Losses;
use crate::targets::boundaries::Boundaries;
use crate::targets::interned::Interned;
use crate::targets::progress::{StepSource, Steps};
use finished::{Finished, OpenSpan};
use open::OpenSpans;
use totals::{TotalChange, Totals};
use tprof_trace::model::*;
use tprof_trace::{TraceError, TraceWriter};
use tprof_wire::record::ExtKind;
use tprof_wire::region::off;
use tprof_wire::schedule::Schedule;
use tprof_wire::spans::{Arguments, HISTOGRAM, OnStack, Place};

/// Rows are written when this many of them wait.
const MAX_ROWS: usize = 16_384;
/// The longest time that rows wait. If the collector is killed, only the rows of this time are
/// lost.
const LONGEST_WAIT_NS: u64 = 250_000_000;
/// Number of different arguments from separate records that are written per image. Each of them is
/// a name in the file, so a limit is needed.
const MAX_ARGUMENTS: u32 = 1 << 20;
/// Number of rows that may wait for their names.
const MAX_WAITING: usize = 1 << 18;
/// The bits of [`off`] that a process sets and clears itself.
const OWN: u32 = off::PROGRAM | off::SCHEDULE;

/// A record of a span or another thing that a program records itself, not decoded completely.
#[derive(Clone, Copy, Debug)]
pub struct SpanRecord {
    kind: ExtKind,
    name: u32,
    words: [u64; 2],
    /// The arguments, if the record is an [`ExtKind::SpanArguments`].
    arguments: Arguments,
}

impl SpanRecord {
    /// Decodes a record; `None` if the record is malformed.
    pub fn decode(kind: ExtKind, name: u32, payload: &[u64]) -> Option<SpanRecord> {
        let [first, second, ..] = *payload else { return None };
        let arguments = match kind {
            ExtKind::SpanArguments => Arguments::unpack(payload)?,
            _ => Arguments::default(),
        };
        Some(SpanRecord { kind, name, words: [first, second], arguments })
    }
}

/// The spans of an image that are not written to its file yet.
#[derive(Debug, Default)]
pub struct Spans {
    process: ProcessIndex,
    /// How the image's allocations are recorded. If all are recorded, the collector counts them for
    /// each span as it reads their records; otherwise the threads count them.
    memory: MemoryRecording,
    /// Whether texts in arguments are left out.
    redact: bool,
    open: OpenSpans,
    totals: Totals,
    /// Number of different arguments that were written so far.
    different: u32,
    newest: NameId,
    undescribed: u64,
    rows: Vec<Span>,
    waiting: Vec<Finished>,
    first_waiting_ns: Option<u64>,
    /// The reasons why the process records nothing ([`tprof_wire::region::off`]), as it last
    /// reported them.
    pub off: u32,
    /// Whether the process's recording was ever switched, so that its totals have a gap.
    pub was_switched: bool,
    /// The schedule that its steps follow, if there is one.
    pub schedule: Option<Schedule>,
    /// The option or command that set the schedule.
    pub by: &'static str,
    /// The cycle or captured range that was recorded last, counted from 1.
    pub cycle: u32,
    /// Number of cycles that earlier schedules have recorded.
    pub cycles_before: u32,
    /// The steps that it has counted because `tprof ctl start --steps` asked for that.
    pub boundaries: Boundaries,
    /// The steps that the program has marked.
    pub steps: Steps,
    off_since_ns: Option<u64>,
    pauses: Vec<(u64, u64)>,
    nameless: u64,
    refused: u64,
    left: u64,
    unwritten: u64,
}

impl Spans {
    /// Returns the spans of an image that has had none yet.
    pub fn new(process: ProcessIndex, memory: MemoryRecording) -> Spans {
        Spans { process, memory, ..Spans::default() }
    }

    /// Sets the [`off`] with which an image begins, and the option that makes it switch its
    /// recording.
    pub fn switched_by(self, config: &Config, off: u32) -> Spans {
        let off_since_ns = (off & OWN != 0).then_some(0);
        let schedule = config.steps().map(|timetable| timetable.schedule());
        Spans {
            off,
            off_since_ns,
            schedule,
            by: config.in_part_by(),
            redact: config.redact,
            ..self
        }
    }

    /// If the process switches its own recording, marks whether recording is on when it begins.
    pub fn begin(&mut self, start_ns: u64, writer: &mut TraceWriter) {
        if self.off & OWN != 0 {
            self.mark(self.by, MarkKind::RecordingOff, start_ns, writer);
        } else if self.schedule.is_some() {
            // The mark names no step, because the first step begins later.
            self.cycle = 1;
            let name = format!("cycle 1 ({})", self.by);
            self.mark(&name, MarkKind::RecordingOn, start_ns, writer);
        }
    }

    /// Whether the process's own switch was on at a moment. The session's switch doesn't count.
    pub fn was_on(&self, time_ns: u64) -> bool {
        let after = self.pauses.partition_point(|(from, _)| *from <= time_ns);
        let paused = after.checked_sub(1).and_then(|at| self.pauses.get(at));
        self.off_since_ns.is_none_or(|since| time_ns < since)
            && paused.is_none_or(|(_, to)| *to <= time_ns)
    }

    /// Adds a record that a thread wrote at `time_ns`. `recorded` is the number and the bytes of
    /// the allocations that were read of the thread before this record.
    pub fn take(
        &mut self,
        record: SpanRecord,
        (thread, recorded): (ThreadIndex, (u64, u64)),
        time_ns: u64,
        interned: &mut Interned,
        writer: &mut TraceWriter,
    ) {
        let SpanRecord { kind, name, words: [first, second], arguments } = record;
        let place = Place { number: first };
        let mut counted = OnStack::unpack([first, second]);
        if self.memory == MemoryRecording::Exact {
            (counted.allocations, counted.allocated_bytes) = recorded;
        }
        let on_stack = Place { number: counted.depth.into() };
        let began =
            OpenSpan { name, thread, start_ns: time_ns, place, counted, ..OpenSpan::default() };
        let over = match kind {
            ExtKind::SpanPush => self.open.push(OpenSpan { place: on_stack, ..began }),
            ExtKind::SpanPop if name == 0 => self.open.pop(thread, counted, time_ns),
            ExtKind::SpanPop => self.open.pop_around(thread, counted.depth, time_ns),
            ExtKind::SpanArguments => {
                self.open.describe(thread, name, arguments);
                None
            }
            ExtKind::SpanComplete => {
                let span = OpenSpan { start_ns: time_ns.saturating_sub(first), ..began };
                let end_ns = time_ns.saturating_sub(second);
                Some(Finished::Span { span, end_ns, any_thread: true, allocated: None })
            }
            ExtKind::SpanStart => self.open.start(began),
            ExtKind::SpanEnd => self.open.end(place, time_ns),
            ExtKind::Flops => self.open.flops(thread, Place { number: second }, first, name),
            ExtKind::SpanMark => Some(Finished::Mark { name, time_ns }),
            ExtKind::CounterValue if second != 0 => {
                self.totals.take(name, time_ns, TotalChange::Add(f64::from_bits(first)));
                None
            }
            ExtKind::PoolTook => {
                self.totals.take(name, time_ns, TotalChange::Took(first, second));
                None
            }
            ExtKind::PoolGave => {
                self.totals.take(name, time_ns, TotalChange::Gave(first));
                None
            }
            ExtKind::CounterValue => {
                Some(Finished::Value { name, time_ns, value: f64::from_bits(first) })
            }
            ExtKind::Step => {
                self.steps.add(StepSource::Program, Some(first), time_ns);
                self.mark(&format!("step {first}"), MarkKind::Step, time_ns, writer);
                None
            }
            ExtKind::StepBegun if self.schedule.is_none_or(|of| of.wait == 0) => {
                self.boundaries.add(first, time_ns);
                None
            }
            // Only a paired recording leaves out steps that are marked.
            ExtKind::StepBegun => {
                let name = writer.name(counter::STEPS_BEGUN);
                let (process, value) = (Some(self.process), first as f64);
                writer.counter(Counter { time_ns, process, device: None, name, value });
                None
            }
            ExtKind::Switched => {
                self.switched(first as u32, (first >> 32) as u32, name, time_ns, writer);
                if second != u64::MAX {
                    let name = writer.name(counter::HEAP_BYTES);
                    let (process, value) = (Some(self.process), second as f64);
                    writer.counter(Counter { time_ns, process, device: None, name, value });
                }
                None
            }
            _ => None,
        };
        if let Some(over) = over {
            self.over(over, time_ns, interned, writer);
        }
    }

    fn mark(&self, name: &str, kind: MarkKind, time_ns: u64, writer: &mut TraceWriter) {
        writer.mark_named((Some(self.process), time_ns), kind, name);
    }

    /// Applies a switch of recording, from the reasons `before` to the reasons `off` why recording
    /// is off.
    pub fn switched(
        &mut self,
        off: u32,
        before: u32,
        cycle: u32,
        time_ns: u64,
        writer: &mut TraceWriter,
    ) {
        (self.off, self.was_switched) = (off, true);
        let cycle_before = self.cycle;
        let by = match (off ^ before) & off::PROGRAM {
            0 => self.window(off & off::SCHEDULE == 0, cycle),
            _ => "by the program".to_owned(),
        };
        match (off & OWN, before & OWN) {
            (0, 1..) => {
                let from = self.off_since_ns.take();
                self.pauses.extend(from.map(|from| (from, time_ns)));
                // While recording is off in the session, it isn't on in the process either.
                if off & off::SESSION == 0 {
                    self.mark(&by, MarkKind::RecordingOn, time_ns, writer);
                }
            }
            (1.., 0) => {
                self.off_since_ns.get_or_insert(time_ns);
                self.mark(&by, MarkKind::RecordingOff, time_ns, writer);
            }
            // If two cycles follow each other, recording stays on between them.
            (0, 0) if self.cycle != cycle_before => {
                self.mark(&by, MarkKind::RecordingOn, time_ns, writer);
            }
            _ => {}
        }
    }

    /// Names the window that a schedule or capture begins, like `cycle 1: step 4 (--schedule)`. If
    /// it ends one, returns only the option.
    fn window(&mut self, on: bool, cycle: u32) -> String {
        if !on {
            return self.by.to_owned();
        }
        self.cycle = self.cycles_before + cycle;
        let steps = self.schedule.and_then(|of| of.steps_of(u64::from(cycle).checked_sub(1)?));
        let unit = if self.schedule.is_some_and(|of| of.epochs) { "epoch" } else { "step" };
        let first = steps.map(|steps| format!(": {unit} {}", steps.start())).unwrap_or_default();
        format!("cycle {}{first} ({})", self.cycle, self.by)
    }

    fn over(
        &mut self,
        over: Finished,
        time_ns: u64,
        interned: &mut Interned,
        writer: &mut TraceWriter,
    ) {
        self.first_waiting_ns.get_or_insert(time_ns);
        if !self.row(&over, interned, writer) {
            match over.name() == 0 || self.waiting.len() >= MAX_WAITING {
                true => self.nameless += 1,
                // No name is defined any more, so waiting is useless. Looking up many names in each
                // pass would slow down the job.
                false if interned.is_full() => self.refused += 1,
                false => self.waiting.push(over),
            }
        }
    }

    /// Adds a row. Returns false if its name or a text in its arguments is not defined yet, so that
    /// it must wait.
    fn row(&mut self, over: &Finished, interned: &mut Interned, writer: &mut TraceWriter) -> bool {
        let Some(name) = interned.name(over.name(), writer) else { return false };
        let process = self.process;
        match over {
            Finished::Span { span, end_ns, any_thread, allocated } => {
                let Ok(args) = self.arguments(span, *any_thread, interned, writer) else {
                    return false;
                };
                let allocated = allocated.filter(|_| self.memory != MemoryRecording::Off);
                self.rows.push(Span {
                    start_ns: span.start_ns,
                    duration_ns: end_ns.saturating_sub(span.start_ns),
                    process,
                    thread: span.thread,
                    kind: SpanKind::Annotation,
                    name,
                    category: writer.name(OWN_SPANS),
                    args,
                    allocations: allocated.map(|(count, _)| count),
                    allocated_bytes: allocated.map(|(_, bytes)| bytes),
                    ..Span::default()
                });
            }
            &Finished::Mark { time_ns, .. } => {
                let arguments = interned.arguments(over.name()).unwrap_or_default();
                let (name, kind) = match arguments.starts_with(HISTOGRAM) {
                    true => {
                        let whole = interned.whole(over.name()).unwrap_or_default();
                        (writer.name(&whole), MarkKind::Histogram)
                    }
                    false => (name, MarkKind::Mark),
                };
                let process = Some(process);
                writer.mark(Mark { time_ns, process, name, kind });
            }
            &Finished::Value { time_ns, value, .. } => {
                let process = Some(process);
                writer.counter(Counter { time_ns, process, device: None, name, value });
            }
        }
        true
    }

    /// Writes a span's arguments to the file, and returns their id.
    fn arguments(
        &mut self,
        span: &OpenSpan,
        any_thread: bool,
        interned: &Interned,
        writer: &mut TraceWriter,
    ) -> Result<NameId, args::Undefined> {
        let given = interned.arguments(span.name);
        let is_refused = !span.described.is_empty() && self.different >= MAX_ARGUMENTS;
        let none = args::Described::new();
        let described = if is_refused { &none } else { &span.described };
        let text = args::object(given, described, &span.stated, any_thread, interned, self.redact)?;
        self.undescribed += u64::from(is_refused);
        let args = text.map(|text| writer.name(&text)).unwrap_or_default();
        if !described.is_empty() && args.0 > self.newest.0 {
            self.newest = args;
            self.different += 1;
        }
        Ok(args)
    }

    /// Makes the next call of [`Self::write`] write all rows, even if too few wait.
    pub fn write_all_next(&mut self) {
        self.first_waiting_ns = self.first_waiting_ns.map(|_| 0);
    }

    /// Writes the waiting rows if there are enough of them, if they have waited long enough, or if
    /// `last` is set.
    pub fn write(
        &mut self,
        now_ns: u64,
        last: bool,
        interned: &mut Interned,
        writer: &mut TraceWriter,
    ) -> Result<(), TraceError> {
        self.totals.write(now_ns, last, self.process, interned, writer);
        for over in self.open.late() {
            self.over(over, now_ns, interned, writer);
        }
        let waited = self.first_waiting_ns.map_or(0, |first| now_ns.saturating_sub(first));
        let rows = self.rows.len() + self.waiting.len();
        if rows == 0 || !(last || rows >= MAX_ROWS || waited >= LONGEST_WAIT_NS) {
            return Ok(());
        }
        for over in std::mem::take(&mut self.waiting) {
            if !self.row(&over, interned, writer) {
                self.waiting.push(over);
            }
        }
        if interned.is_full() {
            self.refused += self.waiting.drain(..).count() as u64;
        }
        self.first_waiting_ns = (!self.waiting.is_empty()).then_some(now_ns);
        let rows = self.rows.len() as u64;
        let written = writer.write(&mut self.rows);
        self.unwritten += if written.is_err() { rows } else { 0 };
        written
    }

    /// Ends the spans that a thread has left open at its end.
    pub fn thread_ended(
        &mut self,
        thread: ThreadIndex,
        end_ns: u64,
        interned: &mut Interned,
        writer: &mut TraceWriter,
    ) {
        for over in self.open.leave(thread, end_ns) {
            self.left += 1;
            self.over(over, end_ns, interned, writer);
        }
    }

    /// Ends the spans that are open at the end of the process, and counts the losses.
    pub fn finish(
        &mut self,
        end_ns: u64,
        interned: &mut Interned,
        writer: &mut TraceWriter,
        losses: &mut Losses,
    ) {
        let (cut, endless) = self.open.finish(end_ns);
        let open = cut.len() as u64;
        for over in cut {
            self.over(over, end_ns, interned, writer);
        }
        if let Err(error) = self.write(end_ns, true, interned, writer) {
            losses.complain(&error.to_string());
        }
        let nameless = self.nameless + self.waiting.len() as u64;
        for (what, why, count) in [
            ("ends of spans", "their process ended before them", open),
            ("ends of spans", "their thread ended before them", self.left),
            ("ends of spans", "they were not recorded", endless),
            ("arguments of spans", "their spans were not recorded", self.open.unplaced),
            ("arguments of spans", "a span had too many", self.open.surplus),
            ("arguments of spans", "there were too many different ones", self.undescribed),
            (
                "spans, marks and values",
                "the ring was full when their names were defined",
                nameless,
            ),
            ("spans, marks and values", "there were too many names", self.refused),
            ("spans, marks and values", crate::output::flushing::UNWRITTEN, self.unwritten),
        ]
        .into_iter()
        .chain(self.totals.losses())
        {
            if count > 0 {
                losses.lose(what, why, count);
            }
        }
    }
}

#[cfg(test)]
mod tests;
