//! Turns the records of a process's CUPTI agent into rows: kernels, copies, waits, calls, ranges
//! and changes of device memory.

mod reports;

pub use reports::{NCCL_CHOICES, NCCL_LOG};

use super::by_order::{ByOrder, RanWork, StartedWork, hash_of};
use super::call_classes::{Class, Classes};
use super::call_stacks::CallStacks;
use super::launches::{Launches, RuntimeCall};
use super::matching::{Matched, Matching, MemoryCall};
use super::ranges::Ranges;
use super::rows::{self, Rows};
use super::stalls::Stalls;
use super::texts::without_version;
use super::thread_rows::ThreadRows;
use crate::output::flushing;
use crate::output::losses::Losses;
use crate::shared::clock::Clock;
use reports::AgentNote;
use std::collections::HashMap;
use std::path::Path;
use tprof_trace::model::*;
use tprof_trace::{TraceRow, TraceWriter};
use tprof_wire::gpu;
use tprof_wire::record::ExtKind;

/// Rows of one table that are collected before they are written. With larger blocks a file would
/// hardly be smaller, but the rows would exceed a processor's cache, or the memory of a collector
/// that serves all ranks of a node.
const ROWS: usize = 8_192;

/// If CUPTI's clock jumped at this many joins in a row, it isn't set but runs differently.
const OTHER_CLOCK: u32 = 3;

/// The device work of one process that was recorded and not written yet, and what is needed to
/// interpret later records.
pub struct Gpu {
    label: String,
    rows: Rows,
    kernels: Vec<Kernel>,
    copies: Vec<MemoryCopy>,
    waits: Vec<Synchronization>,
    spans: Vec<Span>,
    matching: Matching,
    /// Stacks and arguments of calls that hooks recorded. CUPTI's rows of the same calls get them.
    pub call_stacks: CallStacks,
    /// Whether CUPTI records changes of memory.
    records_memory: bool,
    /// Version of the CUPTI in use.
    version: u64,
    externals: Vec<ExternalId>,
    ranges: Ranges,
    classes: Classes,
    launches: Launches,
    /// Number of joins in a row at which CUPTI's clock jumped.
    clock_steps: u32,
    /// Time from which CUPTI records calls of the CUDA runtime, ns.
    pub calls_from_ns: Option<u64>,
    /// Whether CUPTI leaves out calls that start work, because hooks record them.
    pub relies_on_hooks: bool,
    /// Joins the calls that CUPTI leaves out with the work that they started.
    pub by_order: ByOrder,
    /// Samples of kernels' instructions.
    stalls: Stalls,
    /// The row of the call in the last record, if that record was a call.
    pub last_call: Option<Span>,
}

impl Gpu {
    /// Returns the state of a process that has no records yet. Messages to the user call the
    /// process `label`. Its agent saves files in the directory `session`; with `redact`, paths of
    /// source files are shortened to names.
    pub fn new(process: ProcessIndex, label: String, session: &Path, redact: bool) -> Gpu {
        Gpu {
            label,
            rows: Rows::new(process),
            kernels: Vec::new(),
            copies: Vec::new(),
            waits: Vec::new(),
            spans: Vec::new(),
            matching: Matching::default(),
            call_stacks: CallStacks::default(),
            records_memory: true,
            version: 0,
            externals: Vec::new(),
            ranges: Ranges::default(),
            classes: Classes::default(),
            launches: Launches::default(),
            clock_steps: 0,
            calls_from_ns: None,
            relies_on_hooks: false,
            by_order: ByOrder::default(),
            stalls: Stalls::new(process, session, redact),
            last_call: None,
        }
    }

    /// Returns a text that the agent has defined; empty if `id` is 0 or the text isn't defined yet.
    pub fn text(&self, id: u32) -> &str {
        self.rows.texts.text(id).unwrap_or_default()
    }

    /// Defines texts as the agent does, with ids from 1 on.
    #[cfg(test)]
    pub fn define(&mut self, texts: &[&str]) {
        for (id, text) in (1..).zip(texts) {
            let mut payload = vec![text.len() as u64];
            let words = text.as_bytes().chunks(8).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            });
            payload.extend(words);
            self.rows.texts.define(id, &payload).unwrap();
        }
    }

    /// Adds a record. Returns false if the record is malformed. Work and calls from times when the
    /// process's own recording was off are left out.
    pub fn take(
        &mut self,
        record: AgentRecord<'_>,
        place: &mut ThreadRows<'_>,
        clock: &Clock,
        losses: &mut Losses,
        was_on: &dyn Fn(u64) -> bool,
    ) -> bool {
        let taken = self.take_known(&record, place, clock, losses, was_on).is_some();
        let gathered =
            [self.kernels.len(), self.spans.len(), self.copies.len(), self.externals.len()];
        if gathered.iter().any(|rows| *rows >= ROWS) || self.ranges.fresh() >= ROWS {
            self.write(place.threads, &mut place.file.writer, losses);
        }
        taken
    }

    fn take_known(
        &mut self,
        record: &AgentRecord<'_>,
        place: &mut ThreadRows<'_>,
        clock: &Clock,
        losses: &mut Losses,
        was_on: &dyn Fn(u64) -> bool,
    ) -> Option<()> {
        let payload = record.payload;
        match record.kind {
            ExtKind::ClockJoin => {
                self.join(gpu::ClockJoin::unpack(payload)?, record, place, clock, losses);
            }
            ExtKind::Text => self.rows.texts.define(record.argument, payload)?,
            ExtKind::AgentNote => {
                let [count, text, ..] = payload else { return None };
                let note = AgentNote {
                    what: record.argument,
                    count: *count,
                    text: *text as u32,
                    time_ns: clock.ns(record.clock),
                };
                self.take_note(&note, place.writer(), losses);
            }
            ExtKind::Device => {
                self.rows.devices.describe(gpu::Device::unpack(payload)?);
                self.place_streams(place);
            }
            ExtKind::Stream => {
                self.rows.devices.stream(gpu::Stream::unpack(payload)?);
                self.place_streams(place);
            }
            ExtKind::Context => {
                let context = gpu::Context::unpack(payload)?;
                self.on_device(context.context, context.device, place);
            }
            ExtKind::Kernel => {
                let row = self.kernel(&gpu::Kernel::unpack(payload)?, place);
                self.kernels.extend(was_on(row.start_ns).then_some(row));
            }
            ExtKind::Copy => {
                let row = self.copy(&gpu::Copy::unpack(payload)?, place);
                self.copies.extend(was_on(row.start_ns).then_some(row));
            }
            ExtKind::Call => {
                let call = gpu::Call::unpack(payload)?;
                if let Some((row, class)) = self.call(&call, record.thread, place)
                    && was_on(row.start_ns)
                {
                    self.keep_call(&call, row, class);
                }
            }
            ExtKind::Wait => {
                let row = self.rows.wait(&gpu::Wait::unpack(payload)?);
                self.waits.extend(was_on(row.start_ns).then_some(row));
            }
            ExtKind::Memory => {
                let change = gpu::Memory::unpack(payload)?;
                let row = self.rows.memory(&change, record.thread);
                self.rows.pools(&change, place.file);
                self.matching.recorded(row);
            }
            ExtKind::External => {
                let external = gpu::External::unpack(payload)?;
                self.externals.push(ExternalId {
                    process: self.rows.process,
                    correlation: external.correlation.into(),
                    kind: rows::external_kind(external.kind),
                    id: external.id,
                });
            }
            ExtKind::Overhead => {
                let overhead = gpu::Overhead::unpack(payload)?;
                let row = self.rows.overhead(&overhead, record.thread, place);
                self.spans.extend(was_on(row.start_ns).then_some(row));
            }
            ExtKind::PcSamples => {
                let time_ns = clock.ns(record.clock);
                let texts = &self.rows.texts;
                self.stalls.take(record.argument, payload, time_ns, |id| texts.text(id))?;
                if self.stalls.is_due() {
                    self.write_stalls(place.writer(), losses);
                }
            }
            ExtKind::PcTotals => {
                let totals = gpu::PcTotals::unpack(payload)?;
                self.stalls.add_totals(&totals, clock.ns(record.clock));
            }
            ExtKind::Cubin => self.stalls.has_module(&gpu::Cubin::unpack(payload)?),
            kind => {
                let range = gpu::Range::unpack(payload)?;
                let time_ns = clock.ns(record.clock);
                self.ranges.take(kind, &range, record.thread, time_ns);
            }
        }
        Some(())
    }

    fn kernel(&mut self, kernel: &gpu::Kernel, place: &mut ThreadRows<'_>) -> Kernel {
        self.on_device(kernel.context, kernel.device, place);
        let row = self.rows.kernel(kernel, place);
        if kernel.graph == 0 {
            self.launches.ran(kernel.correlation);
            if self.relies_on_hooks {
                let work = StartedWork::Kernel(hash_of(self.text(kernel.name)));
                let stream = (kernel.context, kernel.stream);
                self.ran(kernel.correlation, row.start_ns, stream, work);
            }
        }
        row
    }

    fn copy(&mut self, copy: &gpu::Copy, place: &mut ThreadRows<'_>) -> MemoryCopy {
        self.on_device(copy.context, copy.device, place);
        let row = self.rows.copy(copy);
        if self.relies_on_hooks && copy.graph == 0 {
            let work = if copy.kind == gpu::FILL { StartedWork::Fill } else { StartedWork::Copy };
            let stream = (copy.context, copy.stream);
            self.ran(copy.correlation, row.start_ns, stream, work(copy.bytes));
        }
        row
    }

    /// Joins a call with what hooks recorded of it, and returns its row, and its class if it is a
    /// call of the CUDA runtime. Returns `None` for a call that `agents_thread` made: the agent
    /// calls the driver itself, and these calls don't belong to the job.
    fn call(
        &mut self,
        call: &gpu::Call,
        agents_thread: ThreadIndex,
        place: &mut ThreadRows<'_>,
    ) -> Option<(Span, Option<Class>)> {
        if self.relies_on_hooks {
            let start_ns = self.rows.joins.ns(call.start);
            self.by_order.recorded(call.correlation, start_ns);
        }
        if place.threads.get(&call.thread) == Some(&agents_thread) {
            return None;
        }
        let mut row = self.rows.call(call, place);
        let text = || self.rows.texts.text(call.name).unwrap_or_default();
        self.call_stacks.complete(&mut row, || without_version(text()));
        let is_runtimes = row.kind == SpanKind::Runtime;
        let class = is_runtimes.then(|| self.classes.of(call.name, text));
        if class == Some(Class::Memory) {
            self.matching.called_runtime(call.correlation.into());
        }
        Some((row, class))
    }

    /// Adds the row of a call from a time when recording was on.
    fn keep_call(&mut self, call: &gpu::Call, row: Span, class: Option<Class>) {
        self.wait_of_call(call, &row);
        if let Some(class) = class {
            self.launches.called(&RuntimeCall {
                class,
                correlation: call.correlation,
                thread: row.thread,
                start_ns: row.start_ns,
                end_ns: row.start_ns + row.duration_ns,
                succeeded: call.result == 0,
            });
        }
        self.last_call = Some(row);
        self.spans.push(row);
    }

    /// Returns when the launches from before a time began of which no kernel was recorded, ns; `None`
    /// if CUPTI doesn't record, or if too many have waited.
    pub fn launches_without_kernels(&self, before_ns: u64) -> Option<Vec<u64>> {
        self.calls_from_ns?;
        let mut launches = self.launches.waiting_since(before_ns)?;
        // Libraries with a runtime of their own make calls that CUPTI doesn't leave to the hooks.
        launches.extend(self.by_order.waiting_since(before_ns));
        Some(launches)
    }

    fn ran(&mut self, correlation: u32, start_ns: u64, of: (u32, u32), work: StartedWork) {
        let stream = u64::from(of.0) << 32 | u64::from(of.1);
        self.by_order.ran(RanWork { correlation, start_ns, stream, work });
    }

    /// Notes that a context's work ran on a device, so the context belongs to this device.
    #[inline]
    fn on_device(&mut self, context: u32, device: u32, place: &mut ThreadRows<'_>) {
        if self.rows.devices.context(context, device) {
            self.place_streams(place);
        }
    }

    /// Adds a row for the wait of a call that waits for a device, if this CUPTI records no such
    /// waits. According to the release notes of 13.0.1, only release 13.0.0 lacks them.
    fn wait_of_call(&mut self, call: &gpu::Call, row: &Span) {
        const WITHOUT_WAITS: u64 = 130_000;
        const NEAR: usize = 64;
        if self.version != WITHOUT_WAITS || call.result != 0 {
            return;
        }
        let name = self.text(call.name);
        let waits = ["cudaDeviceSynchronize", "cuCtxSynchronize"];
        let correlation = Some(u64::from(call.correlation));
        // If a runtime call waits through a driver call, both have the same correlation and are one
        // wait.
        let is_known =
            self.waits.iter().rev().take(NEAR).any(|wait| wait.correlation == correlation);
        if is_known || !waits.iter().any(|of| name.starts_with(of)) {
            return;
        }
        let context = self.rows.devices.only_context();
        self.waits.push(Synchronization {
            start_ns: row.start_ns,
            duration_ns: row.duration_ns,
            process: row.process,
            device: context.map(|(_, device)| device),
            context: context.map_or(0, |(context, _)| context),
            kind: SyncKind::Context,
            correlation,
            ..Synchronization::default()
        });
    }

    fn place_streams(&mut self, place: &mut ThreadRows<'_>) {
        let Rows { process, texts, devices, .. } = &mut self.rows;
        devices.write(*process, texts, place);
    }

    fn join(
        &mut self,
        join: gpu::ClockJoin,
        record: &AgentRecord<'_>,
        place: &mut ThreadRows<'_>,
        clock: &Clock,
        losses: &mut Losses,
    ) {
        let time_ns = clock.ns(record.clock);
        let step = self.rows.joins.add(join.foreign_ns, time_ns);
        self.clock_steps = step.map_or(0, |_| self.clock_steps.saturating_add(1));
        // A clock that runs differently seems to be set at each join. The mark is written only
        // once.
        if let (Some(step_ns), 1) = (step, self.clock_steps) {
            let text = format!("CUPTI's clock was set by {step_ns} ns");
            self.mark(time_ns, &text, place.writer());
        }
        if self.clock_steps == OTHER_CLOCK {
            let why = "CUPTI's clock does not run as the host's does: another client may have \
                       chosen it";
            self.add_blind("times of GPU records", why, losses);
        }
        let source = place.writer().name("cupti");
        place.writer().clock_join(ClockJoin {
            time_ns,
            foreign_ns: join.foreign_ns,
            uncertainty_ns: clock.duration_ns(join.width_ticks).div_ceil(2),
            process: self.rows.process,
            source,
        });
    }

    /// Adds calls that changed memory, as hooks recorded them.
    pub fn changed_memory(&mut self, calls: impl Iterator<Item = MemoryCall>) {
        // Calls from before CUPTI's first record have no record of CUPTI to be matched with.
        let from_ns = self.calls_from_ns.filter(|_| self.records_memory).unwrap_or(u64::MAX);
        calls.filter(|call| call.to_ns >= from_ns).for_each(|call| self.matching.called(call));
    }

    /// Returns the time of the first change of memory that still waits to be matched with a hook's
    /// call.
    pub fn first_unmatched_ns(&self) -> Option<u64> {
        self.matching.first_ns()
    }

    /// Writes the changes of memory that only CUPTI recorded. All others have rows from the hooks,
    /// which include stacks.
    pub fn write_memory(
        &mut self,
        now_ns: u64,
        last: bool,
        writer: &mut TraceWriter,
        losses: &mut Losses,
    ) {
        let mut rows = self.matching.settle(now_ns, last);
        write_rows(&mut rows, |row| row.time_ns, writer, losses);
    }

    /// Writes the collected rows. `threads` maps thread ids to rows of threads.
    pub fn write(
        &mut self,
        threads: &HashMap<u32, ThreadIndex>,
        writer: &mut TraceWriter,
        losses: &mut Losses,
    ) {
        self.ranges.settle(
            self.rows.process,
            threads,
            &mut self.spans,
            writer,
            &mut self.rows.texts,
        );
        write_rows(&mut self.kernels, |row| row.start_ns, writer, losses);
        // The record of a context may have arrived after that of the first wait for the context.
        for wait in self.waits.iter_mut().filter(|wait| wait.device.is_none()) {
            wait.device = self.rows.devices.of_context(wait.context);
        }
        write_rows(&mut self.copies, |row| row.start_ns, writer, losses);
        write_rows(&mut self.waits, |row| row.start_ns, writer, losses);
        write_rows(&mut self.spans, |row| row.start_ns, writer, losses);
        write_rows(&mut self.externals, |row| row.correlation, writer, losses);
    }

    /// Writes the samples of instructions that were not written yet.
    pub(super) fn write_stalls(&mut self, writer: &mut TraceWriter, losses: &mut Losses) {
        let mut rows = self.stalls.rows(writer);
        write_rows(&mut rows, |row| row.time_ns, writer, losses);
    }

    /// Ends the ranges that are open when the process ends, writes all rows, and counts the losses.
    pub fn finish(
        &mut self,
        end_ns: u64,
        threads: &HashMap<u32, ThreadIndex>,
        writer: &mut TraceWriter,
        losses: &mut Losses,
    ) {
        self.write(threads, writer, losses);
        self.write_memory(end_ns, true, writer, losses);
        self.write_matched(writer);
        self.finish_stalls(writer, losses);
        let unrecorded = self.ranges.close(end_ns);
        self.write(threads, writer, losses);
        for (what, why, count) in [
            ("streams", "no record shows their device", self.rows.devices.unplaced()),
            ("NVTX ranges", "their names were lost", unrecorded.nameless),
            ("NVTX ranges", "their ends were not recorded", unrecorded.endless),
            ("ends of NVTX ranges", "their process ended first", unrecorded.cut),
            ("names of threads", "NVTX named unknown threads", unrecorded.unknown_threads),
        ] {
            if count > 0 {
                losses.lose(what, why, count);
            }
        }
    }

    /// Writes a property that says how many changes of memory CUPTI and the hooks recorded.
    fn write_matched(&mut self, writer: &mut TraceWriter) {
        let Matched { both, only_cupti, only_hooks } = self.matching.finish();
        if self.calls_from_ns.is_none() || !self.records_memory {
            return;
        }
        let key = writer.name("device-memory");
        let value = serde_json::json!({
            "process": self.rows.process, "both": both, "only_cupti": only_cupti,
            "only_hooks": only_hooks,
        });
        let value = writer.name(&value.to_string());
        writer.property(Property { key, value });
    }

    /// Joins the calls that only hooks recorded with the work that they started, and returns their
    /// rows.
    pub fn join_by_order(&mut self, now_ns: u64, last: bool) -> &[Span] {
        let before = self.spans.len();
        self.spans.extend(self.by_order.settle(now_ns, last));
        &self.spans[before..]
    }
}

fn write_rows<R: TraceRow>(
    rows: &mut Vec<R>,
    time: impl Fn(&R) -> u64,
    writer: &mut TraceWriter,
    losses: &mut Losses,
) {
    if rows.is_empty() {
        return;
    }
    rows.sort_by_key(time);
    let count = rows.len() as u64;
    if let Err(e) = writer.write(rows) {
        losses.lose("GPU records", flushing::UNWRITTEN, count);
        losses.complain(&e.to_string());
    }
}

/// A record of the CUPTI agent.
pub struct AgentRecord<'a> {
    /// Kind of the record.
    pub kind: ExtKind,
    /// The record's argument, whose meaning depends on its kind (see [`ExtKind`]).
    pub argument: u32,
    /// Time of the record, in ticks of tprof's clock.
    pub clock: u64,
    /// Thread that wrote the record.
    pub thread: ThreadIndex,
    /// Words of the payload.
    pub payload: &'a [u64],
}
