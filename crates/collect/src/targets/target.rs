//! An attached image and its place in the run: its file, the rows of its threads, its mappings, and
//! its notes.

use super::calls::Calls;
use super::code::Code;
use super::cpu_rows::CpuRows;
use super::image::Image;
pub use super::image::Pass;
use super::interned::Interned;
use super::notes::NoteSink;
use super::operators::Operators;
use super::spans::Spans;
use crate::gpu::{Gpu, ThreadRows};
use crate::os::maps::Mapping;
use crate::os::proc::Transferred;
use crate::out::info;
use crate::out::output::Output;
use crate::shared::Region;
use crate::targets::live::LiveMap;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use tprof_trace::model::*;
use tprof_wire::region::off;

/// The images that are not finished yet, by their number in the run.
pub type Targets = BTreeMap<u64, Target>;

/// The end of an image, as far as it is known.
pub struct End {
    /// Time when it was noticed.
    pub time_ns: u64,
    /// Its wait status.
    pub status: Option<i32>,
    /// Yields the wait status once the process has been reaped.
    pub pidfd: Option<OwnedFd>,
    /// Whether the process replaced the image by an `exec`.
    pub exec: bool,
}

/// Requests for the mappings of an image.
#[derive(Default)]
pub struct ModuleQuestions {
    /// Whether the mappings were requested.
    pub asked: bool,
    /// Number of requests that are not answered yet.
    pub open: u32,
    /// The code that was mapped when the image attached, in case the image ends before it is asked.
    pub begun_with: Vec<Mapping>,
    /// Number of the target's last request for the module table.
    pub(super) seen: u32,
}

/// The lost records of a target that are already counted among the run's losses.
#[derive(Default)]
pub(super) struct CountedLosses {
    pub records: u64,
    /// Whether events before the image attached should have been recorded, so that they are losses.
    pub with_missed: bool,
    pub missed: u64,
    pub notes: u64,
    pub children: u32,
}

/// The resources that a process used when they were last read.
#[derive(Default)]
pub struct Usage {
    /// Resident memory (RSS), bytes.
    pub rss: u64,
    /// Bytes that it read and wrote, if known.
    pub(super) transferred: Option<Transferred>,
    /// CPU time since it attached, ns.
    pub cpu_ns: u64,
    /// CPU time of the pid before this image attached, ns.
    pub(super) cpu_before_ns: u64,
}

/// An attached image of a process.
pub struct Target {
    /// Number of the image in the run.
    pub number: u64,
    /// Its process id.
    pub pid: u32,
    /// The rings of its hooks.
    pub hooks: Image,
    /// The rings of its CUPTI agent, once that is loaded.
    pub(super) agent: Option<Image>,
    /// Index of its file.
    pub file: usize,
    /// The image that it is a fork of, by its number, where that was recorded.
    pub forked_from: Option<u64>,
    /// The end of the image, once it has ended.
    pub end: Option<End>,
    /// Requests for its mappings.
    pub modules: ModuleQuestions,
    /// Whether it is in the collector's pid namespace, so that its thread ids are the collector's.
    pub(super) same_namespace: bool,
    /// Whether the kernel notifies the collector of its end.
    pub(super) watched: bool,
    /// Time when it attached.
    pub start_ns: u64,
    /// Threads and stacks that its samples refer to.
    pub cpu_rows: CpuRows,
    /// Whether it was recorded from its first event on.
    pub(super) whole_life: bool,
    /// Whether it attached after its first events, so that those were not even counted.
    pub(super) is_late: bool,
    /// The peak of live bytes that its threads counted: the clock and its time in ns. The clock is
    /// converted only once, at about the time of the records around it, so that both are converted
    /// alike.
    pub(super) peak: (u64, u64),
    /// System V segments that it has attached: their addresses and lengths.
    pub(super) segments: HashMap<u64, u64>,
    pub(super) memory: MemoryRecording,
    /// Its CUDA, NCCL, cuBLAS and MPI calls.
    pub calls: Calls,
    /// Names and sizes that its hooks have defined.
    pub(super) interned: Interned,
    /// Operators of PyTorch that it ran.
    pub(super) operators: Operators,
    /// Spans that the program recorded itself.
    pub(super) spans: Spans,
    /// Its code, and the stacks in it.
    pub code: Code,
    /// Modules that map memory for themselves, by path.
    pub(super) mappers: HashSet<PathBuf>,
    pub(super) last_totals: Option<HeapTotals>,
    pub(super) last_recording: Option<RecordingTotals>,
    pub(super) threads_checked_ns: u64,
    pub(super) counted: CountedLosses,
    /// Path of its program.
    pub exe: String,
    /// The work of its devices.
    pub gpu: Gpu,
    /// Rows of its threads, by their ids in their own namespace.
    pub(super) tids: HashMap<u32, ThreadIndex>,
    /// The resources that it uses.
    pub usage: Usage,
}

impl Target {
    /// Reads its rings, and returns the number of records.
    pub fn drain(&mut self, out: &mut Output, now: u64, pass: Pass) -> u64 {
        self.follow_lengths();
        let Some(open) = out.files.open.get_mut(self.file) else { return 0 };
        for new in self.hooks.new_threads() {
            let index = match self.same_namespace {
                true => self.cpu_rows.recorded(new.tid, open.threads),
                false => open.threads,
            };
            if index == open.threads {
                open.threads += 1;
            }
            open.writer.thread(&Thread {
                thread: index,
                process: self.hooks.index,
                tid: new.tid,
                start_ns: out.clock.ns(new.clock),
            });
            self.tids.insert(new.tid, index);
            self.hooks.follow(&new, index);
        }
        if let Some(agent) = &mut self.agent {
            for new in agent.new_threads() {
                let threads = match self.same_namespace {
                    true => self.cpu_rows.threads(),
                    false => &mut self.tids,
                };
                let mut place = ThreadRows { file: open, threads };
                let index = place.thread(self.hooks.index, new.tid, out.clock.ns(new.clock));
                agent.follow(&new, index);
            }
        }
        if let Some(open) = out.files.open.get_mut(self.file) {
            self.code.write_stacks(&mut open.writer);
        }
        let (images, mut sink) = self.split(out);
        let clock = sink.clock;
        let images = images.into_iter().flatten();
        let taken = images.map(|image| image.drain(clock, now, pass, &mut sink)).sum();
        self.write_calls(out, now, pass);
        taken
    }

    /// Makes the next drain write all rows, even if they would wait for more, because a command
    /// asks for them.
    pub fn write_all_next(&mut self) {
        self.calls.write_all_next();
        self.spans.write_all_next();
        self.operators.write_all_next();
    }

    /// Whether NCCL operations before `until_ns` still wait for their other records, which takes a
    /// fraction of a second.
    pub fn needs_operations(&self, until_ns: u64) -> bool {
        self.calls.collectives.first_ns().is_some_and(|first| first <= until_ns)
    }

    /// Whether changes of device memory before `until_ns` still wait to be matched with calls that
    /// hooks recorded, which takes seconds.
    pub fn needs_memory(&self, until_ns: u64) -> bool {
        self.gpu.first_unmatched_ns().is_some_and(|first| first <= until_ns)
    }

    /// Writes rows of calls, spans and operators that have waited long enough.
    fn write_calls(&mut self, out: &mut Output, now: u64, pass: Pass) {
        let Some(open) = out.files.open.get_mut(self.file) else { return };
        let (last, collectives) = (pass == Pass::Last, &mut self.calls.collectives);
        let lost_before = self.calls.lost + collectives.lost;
        let written = collectives.write(now, last, &self.gpu, &mut open.writer);
        if let Err(error) = written.and(self.calls.write(now, last, &mut open.writer)) {
            let lost = self.calls.lost + self.calls.collectives.lost - lost_before;
            out.processes.losses.lose("CUDA and NCCL calls", info::UNWRITTEN, lost);
            out.processes.losses.complain(&error.to_string());
        }
        let Some(open) = out.files.open.get_mut(self.file) else { return };
        let (interned, writer) = (&mut self.interned, &mut open.writer);
        let written = self.spans.write(now, last, interned, writer);
        if let Err(error) = written.and(self.operators.write(now, last, interned, writer)) {
            out.processes.losses.complain(&error.to_string());
        }
    }

    /// Adds the region of its CUPTI agent, or of its hooks if the agent attached first.
    pub fn joined(&mut self, region: Arc<Region>, agent: bool) {
        let joining = Image::new(region, self.hooks.index);
        self.agent = Some(match agent {
            true => joining,
            false => std::mem::replace(&mut self.hooks, joining),
        });
    }

    /// Switches recording in its rings on, or off for these reasons. CUPTI delivers the agent's
    /// records later, so rows of times when the process's own recording was off are left out then.
    pub fn switch(&mut self, off: u32) {
        let hooks = self.hooks.region.header();
        if off == 0 && !hooks.is_balanced() && hooks.off.load(Acquire) & off::SESSION != 0 {
            // Blocks may have been freed meanwhile, and their addresses used again.
            self.hooks.heap.live = LiveMap::default();
        }
        let agent = self.agent.as_ref().map(|agent| &agent.region);
        for region in [Some(&self.hooks.region), agent].into_iter().flatten() {
            match off {
                0 => region.header().start_session(),
                reasons => region.header().stop_session(reasons),
            }
        }
    }

    /// Splits the target into the rings of its hooks and of its agent, and the sink for their
    /// notes.
    pub(super) fn split<'a>(
        &'a mut self,
        out: &'a mut Output,
    ) -> ([Option<&'a mut Image>; 2], NoteSink<'a>) {
        let sink = NoteSink {
            file: self.file,
            index: self.hooks.index,
            number: self.number,
            pid: self.pid,
            files: &mut out.files,
            processes: &mut out.processes,
            clock: &out.clock,
            calls: &mut self.calls,
            interned: &mut self.interned,
            operators: &mut self.operators,
            spans: &mut self.spans,
            code: &mut self.code,
            segments: &mut self.segments,
            exe: &self.exe,
            gpu: &mut self.gpu,
            threads: match self.same_namespace {
                true => self.cpu_rows.threads(),
                false => &mut self.tids,
            },
        };
        ([Some(&mut self.hooks), self.agent.as_mut()], sink)
    }

    /// Reads everything that is left after the end of the process.
    pub fn drain_all(&mut self, out: &mut Output, now: u64) {
        for _ in 0..1_000_000 {
            if self.drain(out, now, Pass::Last) == 0 && self.is_settled() {
                break;
            }
        }
        if let Some(open) = out.files.open.get_mut(self.file) {
            self.code.write_stacks(&mut open.writer);
        }
    }

    fn is_settled(&self) -> bool {
        self.hooks.is_settled() && self.agent.as_ref().is_none_or(Image::is_settled)
    }

    /// Returns the number of a request for the module table that was not seen before.
    pub fn modules_request(&mut self) -> Option<u32> {
        let wanted = self.hooks.region.header().modules_wanted.load(Acquire);
        if wanted == self.modules.seen {
            return None;
        }
        self.modules.seen = wanted;
        Some(wanted)
    }

    /// Whether there are stacks but no mappings yet, and the mappings can still be requested.
    pub fn needs_modules(&self) -> bool {
        let known = self.end.is_none() || !self.modules.begun_with.is_empty();
        !self.modules.asked && known && self.code.has_unresolved_stacks()
    }

    /// Applies the mappings that were read until then.
    pub fn learn_modules(&mut self, out: &mut Output, until_ns: u64) {
        if let Some(open) = out.files.open.get_mut(self.file) {
            self.code.learn(until_ns, &mut open.writer);
        }
    }

    /// Returns the number by which the symbol worker knows file and process.
    pub fn symbol_target(&self) -> u64 {
        (self.file as u64) << 32 | u64::from(self.hooks.index)
    }

    /// Writes the rows that wait.
    pub fn flush(&mut self, out: &mut Output, now: u64, always_on: bool) {
        self.count_lost_records(out);
        self.calls.coverage.settle(now);
        self.write_totals(out, now, always_on);
        self.write_recording(out, now);
        let Some(open) = out.files.open.get_mut(self.file) else { return };
        let losses = &mut out.processes.losses;
        self.gpu.changed_memory(self.calls.memory_calls.drain(..));
        self.gpu.write_memory(now, false, &mut open.writer, losses);
        self.calls.join_by_order(&mut self.gpu, now, false);
        let threads = match self.same_namespace {
            true => self.cpu_rows.threads(),
            false => &mut self.tids,
        };
        self.gpu.write(threads, &mut open.writer, losses);
        let block = &mut self.hooks.heap.block;
        let events = block.len() as u64;
        if events > 0
            && let Err(e) = open.writer.heap(block)
        {
            out.processes.losses.lose("heap events", info::UNWRITTEN, events);
            out.processes.losses.complain(&e.to_string());
        }
    }
}
