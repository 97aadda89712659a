//! An attached image and everything that the collector knows of it: its rings, its file, its
//! threads, its code and its records.

use super::attached::NcclLog;
use super::budget::ProcessBudget;
use super::calls::Calls;
use super::code::Code;
use super::cpu_rows::CpuRows;
use super::file_calls::FileWork;
use super::image::Image;
pub use super::image::Pass;
use super::interned::Interned;
use super::notes::NoteSink;
use super::operators::Operators;
use super::spans::Spans;
use crate::gpu::{Gpu, ThreadRows};
use crate::output::destination::Output;
use crate::output::flushing;
use crate::shared::Region;
use crate::targets::live::LiveMap;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use tprof_os::maps::Mapping;
use tprof_os::proc::Transferred;
use tprof_trace::model::*;
use tprof_wire::region::off;

/// Time that the agent's records wait at most for the hooks' earlier ones, ns. These never arrive
/// if a thread has stopped while it wrote a record.
const LATE_NS: u64 = 250_000_000;

/// The images that are not finished yet, by their number in the run.
pub type Targets = BTreeMap<u64, Target>;

/// How and when an image ended, as far as the collector knows.
pub struct End {
    /// Time when the collector noticed the end, ns.
    pub time_ns: u64,
    /// Wait status of the process, if it is known already.
    pub status: Option<i32>,
    /// Becomes readable once the process has been reaped, and then yields the wait status.
    pub pidfd: Option<OwnedFd>,
    /// Whether the process replaced the image by an `exec`.
    pub exec: bool,
}

/// The state of the requests for an image's mappings.
#[derive(Default)]
pub struct ModuleQuestions {
    /// Whether the engine has requested the mappings from the module worker.
    pub asked: bool,
    /// Number of requests that the worker has not answered yet.
    pub open: u32,
    /// The code that was mapped when the image attached. It is used if the image ends before its
    /// mappings are read.
    pub begun_with: Vec<Mapping>,
    /// Number of the last request that the target made for the module table.
    pub(super) seen: u32,
}

/// A target's lost records that are already among the run's losses, so that each counts once.
#[derive(Default)]
pub(super) struct CountedLosses {
    pub records: u64,
    /// Whether events before the image attached should have been recorded, so that they count as
    /// lost.
    pub with_missed: bool,
    pub missed: u64,
    pub notes: u64,
    pub children: u32,
}

/// The resources that a process has used, at their last reading.
#[derive(Default)]
pub struct Usage {
    /// Resident memory (RSS), bytes.
    pub rss: u64,
    /// Bytes that the process has read and written, if known.
    pub(super) transferred: Option<Transferred>,
    /// CPU time since the image attached, ns.
    pub cpu_ns: u64,
    /// CPU time of the pid before this image attached, ns.
    pub(super) cpu_before_ns: u64,
    /// Whether [`Target::show_cpu_time`] has shown it before.
    pub(super) is_shown: bool,
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
    pub agent: Option<Image>,
    /// Index of its file.
    pub file: usize,
    /// Number of the image that it was forked from, if that image was recorded.
    pub forked_from: Option<u64>,
    /// The end of the image, once it has ended.
    pub end: Option<End>,
    /// Requests for its mappings.
    pub modules: ModuleQuestions,
    /// Whether the kernel will report the end of the process to the collector.
    pub(super) watched: bool,
    /// Time when it attached, ns.
    pub start_ns: u64,
    /// Threads and stacks that its samples refer to.
    pub cpu_rows: CpuRows,
    /// Whether everything was recorded from the image's first event on.
    pub(super) whole_life: bool,
    /// Whether it attached after its first events, so that those were not even counted.
    pub(super) is_late: bool,
    /// The peak of live bytes that its threads counted: the clock of the peak, and that clock in
    /// ns. The clock must be converted only once, soon after the peak. A later conversion could
    /// differ from that of the records around the peak.
    pub(super) peak: (u64, u64),
    /// Lengths of the System V segments that it has attached, by address.
    pub(super) segments: HashMap<u64, u64>,
    pub(super) memory: MemoryRecording,
    /// Its CUDA, NCCL, cuBLAS and MPI calls.
    pub calls: Calls,
    /// Where its NCCL writes its log.
    pub(super) nccl_log: NcclLog,
    /// Names and lists of sizes that its hooks have defined.
    pub(super) interned: Interned,
    /// The operators of PyTorch that it ran.
    pub(super) operators: Operators,
    /// Spans that the program recorded itself.
    pub(super) spans: Spans,
    /// Its calls on files, pipes and sockets.
    pub(super) file_work: FileWork,
    /// Its modules, and the stacks that it or the sampler took.
    pub code: Code,
    /// Paths of the modules that map memory for themselves and were reported.
    pub(super) mappers: HashSet<PathBuf>,
    pub(super) last_totals: Option<HeapTotals>,
    pub(super) last_recording: Option<RecordingTotals>,
    pub(super) threads_checked_ns: u64,
    pub(super) counted: CountedLosses,
    /// Path of its program.
    pub exe: String,
    /// The work of its devices, as CUPTI records it.
    pub gpu: Gpu,
    /// The resources that the process has used.
    pub usage: Usage,
    /// How it keeps to `--budget`.
    pub budget: ProcessBudget,
}

impl Target {
    /// Reads the target's rings, and returns the number of records.
    pub fn drain(&mut self, out: &mut Output, now: u64, pass: Pass) -> u64 {
        // A thread that takes a slot from here on may have records that this pass doesn't read.
        let begun = out.clock.now();
        self.follow_lengths();
        let Some(open) = out.files.open.get_mut(self.file) else { return 0 };
        for new in self.hooks.new_threads() {
            let index = self.cpu_rows.threads.begins(new.tid, open.threads);
            if index == open.threads {
                open.threads += 1;
            }
            open.writer.thread(&Thread {
                thread: index,
                process: self.hooks.index,
                tid: new.tid,
                start_ns: out.clock.ns(new.clock),
            });
            self.hooks.follow(&new, index);
        }
        if let Some(agent) = &mut self.agent {
            for new in agent.new_threads() {
                let threads = self.cpu_rows.threads.recorded();
                let mut place = ThreadRows { file: open, threads };
                let index = place.thread(self.hooks.index, new.tid, out.clock.ns(new.clock));
                agent.follow(&new, index);
            }
        }
        if let Some(open) = out.files.open.get_mut(self.file) {
            self.code.write_stacks(&mut open.writer);
        }
        let ([hooks, agent], mut sink) = self.split(out);
        let clock = sink.clock;
        let mut taken = 0;
        let mut until = u64::MAX;
        if let Some(hooks) = hooks {
            taken += hooks.drain(clock, now, pass, u64::MAX, &mut sink);
            until = match pass {
                Pass::Last => hooks.read_until,
                _ => begun.min(hooks.read_until).max(begun.saturating_sub(clock.ticks_in(LATE_NS))),
            };
        }
        // CUPTI's rows get the stacks and arguments that the hooks recorded of the same calls, so
        // the hooks' records from before an agent's record must be read before it.
        if let Some(agent) = agent {
            taken += agent.drain(clock, now, pass, until, &mut sink);
        }
        self.write_calls(out, now, pass);
        taken
    }

    /// Makes the next [`Self::drain`] write all waiting rows, even if they are few, because a
    /// command asks for them.
    pub fn write_all_next(&mut self) {
        self.calls.write_all_next();
        self.spans.write_all_next();
        self.operators.write_all_next();
        self.file_work.write_all_next();
    }

    /// Whether an NCCL operation before `until_ns` still waits for its other records, which arrive
    /// within a fraction of a second.
    pub fn needs_operations(&self, until_ns: u64) -> bool {
        self.calls.collectives.first_ns().is_some_and(|first| first <= until_ns)
    }

    /// Whether a change of device memory before `until_ns` still waits to be matched with a hooked
    /// call, which takes seconds.
    pub fn needs_memory(&self, until_ns: u64) -> bool {
        self.gpu.first_unmatched_ns().is_some_and(|first| first <= until_ns)
    }

    /// Writes the rows of calls, spans and operators that have waited long enough.
    fn write_calls(&mut self, out: &mut Output, now: u64, pass: Pass) {
        let Some(open) = out.files.open.get_mut(self.file) else { return };
        let (last, collectives) = (pass == Pass::Last, &mut self.calls.collectives);
        let lost_before = self.calls.lost + collectives.lost;
        let written = collectives.write(now, last, &self.gpu, &mut open.writer);
        if let Err(error) = written.and(self.calls.write(now, last, &mut open.writer)) {
            let lost = self.calls.lost + self.calls.collectives.lost - lost_before;
            out.processes.losses.lose("CUDA and NCCL calls", flushing::UNWRITTEN, lost);
            out.processes.losses.complain(&error.to_string());
        }
        let Some(open) = out.files.open.get_mut(self.file) else { return };
        let (interned, writer) = (&mut self.interned, &mut open.writer);
        let written = self.spans.write(now, last, interned, writer);
        if let Err(error) = written.and(self.operators.write(now, last, interned, writer)) {
            out.processes.losses.complain(&error.to_string());
        }
        let Some(open) = out.files.open.get_mut(self.file) else { return };
        if let Err(error) = self.file_work.write(now, last, &mut open.writer) {
            let lost = std::mem::take(&mut self.file_work.lost);
            out.processes.losses.lose("calls on files", flushing::UNWRITTEN, lost);
            out.processes.losses.complain(&error.to_string());
        }
    }

    /// Adds a second region: that of the image's CUPTI agent, or that of its hooks if the agent
    /// attached first.
    pub fn joined(&mut self, region: Arc<Region>, agent: bool) {
        let joining = Image::new(region, self.hooks.index);
        self.agent = Some(match agent {
            true => joining,
            false => std::mem::replace(&mut self.hooks, joining),
        });
    }

    /// Switches recording in the target's rings on if `off` is 0, else off for these reasons. CUPTI
    /// delivers the agent's records later, so those from times when the process's own recording was
    /// off are left out when they arrive.
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
            file_work: &mut self.file_work,
            code: &mut self.code,
            segments: &mut self.segments,
            exe: &self.exe,
            gpu: &mut self.gpu,
            threads: self.cpu_rows.threads.recorded(),
        };
        ([Some(&mut self.hooks), self.agent.as_mut()], sink)
    }

    /// Reads everything that is left in the rings after the end of the process.
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

    /// Returns the number of the target's request for the module table, if it is a new request.
    pub fn modules_request(&mut self) -> Option<u32> {
        let wanted = self.hooks.region.header().modules_wanted.load(Acquire);
        if wanted == self.modules.seen {
            return None;
        }
        self.modules.seen = wanted;
        Some(wanted)
    }

    /// Whether there are stacks but no mappings to resolve them with, and the mappings can still be
    /// requested.
    pub fn needs_modules(&self) -> bool {
        let known = self.end.is_none() || !self.modules.begun_with.is_empty();
        !self.modules.asked && known && self.code.has_unresolved_stacks()
    }

    /// Applies the mappings that were read before `until_ns`.
    pub fn learn_modules(&mut self, out: &mut Output, until_ns: u64) {
        if let Some(open) = out.files.open.get_mut(self.file) {
            self.code.learn(until_ns, &mut open.writer);
        }
    }

    /// Returns the number that identifies the file and the process to the symbol worker.
    pub fn symbol_target(&self) -> u64 {
        (self.file as u64) << 32 | u64::from(self.hooks.index)
    }

    /// Writes the waiting rows of the target.
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
        let threads = self.cpu_rows.threads.recorded();
        self.gpu.write(threads, &mut open.writer, losses);
        let block = &mut self.hooks.heap.block;
        let events = block.len() as u64;
        if events > 0
            && let Err(e) = open.writer.heap(block)
        {
            out.processes.losses.lose("heap events", flushing::UNWRITTEN, events);
            out.processes.losses.complain(&e.to_string());
        }
    }
}
