//! An attached image and its place in the run: its file, its threads' rows, its
//! mappings, what its notes mean.

mod notes;
mod place;

use crate::gpu::{Gpu, Place};
use crate::modules::Mapping;
use crate::os::proc;
use crate::os::sys;
use crate::out::files::Files;
use crate::out::info;
use crate::out::story::Story;
use crate::shared::Region;
use crate::shared::clock::Clock;
use crate::symbols::ModuleFile;
use crate::target::calls::Calls;
use crate::target::code::Code;
use crate::target::ledger::Ledger;
use crate::target::process::Image;
use notes::Desk;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use tprof_trace::model::*;
use tprof_trace::run::Blind;
use tprof_wire::region::{REGION_BYTES, SESSION_BYTES, TABLES_BYTES, mem_mode, slot_state};

/// Address space that an attached process maps for tprof.
const OWN_MAPPINGS: u64 = (REGION_BYTES + SESSION_BYTES + TABLES_BYTES) as u64;

/// Why the target dropped what it did.
const STOOD_STILL: &str = "the collector stood still, and the ring was full";
const STOOD_STILL_FIRST: &str = "the collector stood still when their process began";

/// Anonymous memory that code has mapped whose own allocator is in use: jemalloc maps 8 MiB
/// as it is loaded, Arrow's libraries with theirs 11 MiB.
const MAPPER_BYTES: u64 = 16 << 20;

/// The end of an image, as far as it is known.
pub struct End {
    /// When it was noticed.
    pub time_ns: u64,
    /// Wait status.
    pub status: Option<i32>,
    /// Tells the status once the process was reaped.
    pub pidfd: Option<OwnedFd>,
    /// Replaced by another image.
    pub exec: bool,
}

/// See the module.
pub struct Tracked {
    /// Number of the image in the run.
    pub number: u64,
    /// Pid.
    pub pid: u32,
    /// Its rings.
    pub image: Image,
    /// Index of its file.
    pub file: usize,
    /// Set once it ended.
    pub end: Option<End>,
    /// Mappings were asked for.
    pub asked_modules: bool,
    /// The code that was mapped as it attached, for where it is gone before it is asked.
    pub begun_with: Vec<Mapping>,
    /// Questions about mappings that are not answered yet.
    pub modules_open: u32,
    same_namespace: bool,
    watched: bool,
    /// When it attached.
    pub start_ns: u64,
    /// What samples of it refer to.
    pub ledger: Ledger,
    whole_life: bool,
    memory: MemoryRecording,
    /// Its calls of CUDA's runtime and of NCCL.
    pub calls: Calls,
    /// Its code, and the stacks in it.
    pub code: Code,
    modules_wanted_seen: u32,
    /// Modules that map memory for themselves, by path.
    mappers: HashSet<PathBuf>,
    last_totals: Option<HeapTotals>,
    threads_checked_ns: u64,
    lost: u64,
    /// Events before it attached were to be recorded.
    counts_missed: bool,
    missed: u64,
    notes_lost: u64,
    children_lost: u32,
    /// Path of its program.
    pub exe: String,
    /// What its devices did.
    pub gpu: Gpu,
    /// The region of its CUPTI agent, once that is loaded.
    agent: Option<Image>,
    /// Rows of its threads, by their ids in their own namespace.
    tids: HashMap<u32, ThreadIndex>,
    /// RSS as last read, bytes.
    pub rss: u64,
    cpu_ns: u64,
    /// CPU time of the pid before this image attached.
    cpu_before_ns: u64,
}

impl Tracked {
    /// Reads its rings.
    pub fn drain(
        &mut self,
        clock: &Clock,
        now: u64,
        last: bool,
        files: &mut Files,
        story: &mut Story,
    ) -> u64 {
        let Some(open) = files.open.get_mut(self.file) else { return 0 };
        for new in self.image.new_threads() {
            let index = match self.same_namespace {
                true => self.ledger.recorded(new.tid, open.threads),
                false => open.threads,
            };
            if index == open.threads {
                open.threads += 1;
            }
            open.writer.thread(&Thread {
                thread: index,
                process: self.image.index,
                tid: new.tid,
                start_ns: clock.ns(new.clock),
            });
            self.tids.insert(new.tid, index);
            self.image.follow(&new, index);
        }
        if let Some(agent) = &mut self.agent {
            for new in agent.new_threads() {
                let threads = match self.same_namespace {
                    true => self.ledger.rows(),
                    false => &mut self.tids,
                };
                let mut place = Place { file: open, threads };
                let index = place.thread(self.image.index, new.tid, clock.ns(new.clock));
                agent.follow(&new, index);
            }
        }
        if let Some(open) = files.open.get_mut(self.file) {
            self.code.write_stacks(&mut open.writer);
        }
        let (images, mut desk) = self.desk(clock, files, story);
        let images = images.into_iter().flatten();
        let taken = images.map(|image| image.drain(clock, now, last, &mut desk)).sum();
        self.write_calls(now, last, files, story);
        taken
    }

    /// Writes rows of calls that have waited long enough.
    fn write_calls(&mut self, now: u64, last: bool, files: &mut Files, story: &mut Story) {
        let Some(open) = files.open.get_mut(self.file) else { return };
        let lost_before = self.calls.lost;
        if let Err(error) = self.calls.write(now, last, &mut open.writer) {
            let lost = self.calls.lost - lost_before;
            story.lose("CUDA and NCCL calls", info::UNWRITTEN, lost);
            story.complain(&error.to_string());
        }
    }

    /// Takes in the region of its CUPTI agent, or of its hooks where the agent was first.
    pub fn joined(&mut self, region: Arc<Region>, agent: bool) {
        let joining = Image::new(region, self.image.index);
        self.agent = Some(match agent {
            true => joining,
            false => std::mem::replace(&mut self.image, joining),
        });
    }

    /// The rings of its hooks and of its agent, and where their notes go.
    fn desk<'a>(
        &'a mut self,
        clock: &'a Clock,
        files: &'a mut Files,
        story: &'a mut Story,
    ) -> ([Option<&'a mut Image>; 2], Desk<'a>) {
        let desk = Desk {
            file: self.file,
            index: self.image.index,
            number: self.number,
            pid: self.pid,
            files,
            story,
            clock,
            calls: &mut self.calls,
            code: &mut self.code,
            exe: &self.exe,
            gpu: &mut self.gpu,
            tids: match self.same_namespace {
                true => self.ledger.rows(),
                false => &mut self.tids,
            },
        };
        ([Some(&mut self.image), self.agent.as_mut()], desk)
    }

    /// Reads all that is left after the process's end.
    pub fn drain_all(&mut self, clock: &Clock, now: u64, files: &mut Files, story: &mut Story) {
        for _ in 0..1_000_000 {
            if self.drain(clock, now, true, files, story) == 0 && self.is_settled() {
                break;
            }
        }
        if let Some(open) = files.open.get_mut(self.file) {
            self.code.write_stacks(&mut open.writer);
        }
    }

    fn is_settled(&self) -> bool {
        self.image.is_settled() && self.agent.as_ref().is_none_or(Image::is_settled)
    }

    /// A request for the module table that was not answered yet.
    pub fn modules_request(&mut self) -> Option<u32> {
        let wanted = self.image.region.header().modules_wanted.load(Acquire);
        if wanted == self.modules_wanted_seen {
            return None;
        }
        self.modules_wanted_seen = wanted;
        Some(wanted)
    }

    /// Whether there are stacks whose modules nobody has read yet.
    pub fn wants_modules(&self) -> bool {
        let known = self.end.is_none() || !self.begun_with.is_empty();
        !self.asked_modules && known && self.code.is_in_the_dark()
    }

    /// Puts the mappings into force that were read until then.
    pub fn learn_modules(&mut self, until_ns: u64, files: &mut Files) {
        if let Some(open) = files.open.get_mut(self.file) {
            self.code.learn(until_ns, &mut open.writer);
        }
    }

    /// Modules that have mapped memory for themselves, those that were not given out before.
    pub fn mapping_modules(&mut self) -> Vec<Arc<ModuleFile>> {
        if self.memory == MemoryRecording::Off {
            return Vec::new();
        }
        let mut found = self.code.mappers(MAPPER_BYTES);
        found.retain(|module| self.mappers.insert(module.path.clone()));
        found
    }

    /// Names file and process for the symbol worker.
    pub fn symbol_target(&self) -> u64 {
        (self.file as u64) << 32 | u64::from(self.image.index)
    }

    /// Reads the CPU time that the process took so far.
    pub fn read_cpu_time(&mut self) {
        if self.end.is_some() {
            return;
        }
        if let Some(cpu) = proc::Stat::of(self.pid).and_then(|stat| stat.cpu_ns()) {
            self.cpu_ns = cpu.saturating_sub(self.cpu_before_ns);
        }
    }

    /// Reads RSS and mapped bytes.
    pub fn observe(&mut self, now: u64, files: &mut Files) {
        if self.end.is_some() {
            return;
        }
        let Some((rss, mapped)) = proc::memory_of(self.pid) else { return };
        if rss == 0 {
            return; // a zombie
        }
        self.rss = rss;
        let heap = self.heap_now().map(|(live, _)| live);
        let values = [
            (counter::RSS_BYTES, Some(rss)),
            (counter::MAPPED_BYTES, mapped.checked_sub(OWN_MAPPINGS)),
            (counter::HEAP_BYTES, heap),
        ];
        self.note(now, &values, files);
    }

    /// Writes readings of its memory.
    fn note(&self, now: u64, values: &[(&str, Option<u64>)], files: &mut Files) {
        let Some(open) = files.open.get_mut(self.file) else { return };
        for (name, value) in values {
            if let Some(value) = value {
                let name = open.writer.name(name);
                open.counter(Counter {
                    time_ns: now,
                    process: Some(self.image.index),
                    device: None,
                    name,
                    value: *value as f64,
                });
            }
        }
    }

    /// Live and peak bytes now, if they are known.
    fn heap_now(&self) -> Option<(u64, u64)> {
        match self.memory {
            MemoryRecording::Exact => {
                Some((self.image.heap.live_bytes, self.image.heap.peak_bytes))
            }
            MemoryRecording::Sampled { .. } => {
                let header = self.image.region.header();
                let live = header
                    .live_bytes
                    .load(Relaxed)
                    .wrapping_add(self.image.slot_totals().live_delta);
                let live = live.max(0) as u64;
                Some((live, live.max(header.peak_bytes.load(Relaxed).max(0) as u64)))
            }
            MemoryRecording::Off => None,
        }
    }

    /// Threads that are gone give their slots back.
    pub fn look_after_threads(
        &mut self,
        clock: &Clock,
        now: u64,
        files: &mut Files,
        story: &mut Story,
    ) {
        if !self.watched && self.end.is_none() && !proc::lives(self.pid) {
            self.end = Some(End { time_ns: now, status: None, pidfd: None, exec: false });
        }
        self.lost_children(story);
        let all = now - self.threads_checked_ns > 1_000_000_000;
        if all {
            self.threads_checked_ns = now;
        }
        for which in 0..2 {
            self.retire_threads(which, all, clock, now, files, story);
        }
    }

    /// Threads of one of its two regions that are gone.
    fn retire_threads(
        &mut self,
        which: usize,
        all: bool,
        clock: &Clock,
        now: u64,
        files: &mut Files,
        story: &mut Story,
    ) {
        let mut at = 0;
        loop {
            let image = if which == 0 { Some(&self.image) } else { self.agent.as_ref() };
            let Some(thread) = image.and_then(|image| image.threads.get(at)) else { return };
            let Some(image) = image else { return };
            let ending = image.region.slot(thread.slot).state.load(Acquire) == slot_state::ENDING;
            let gone = if self.same_namespace {
                (ending || all) && self.end.is_none() && !sys::thread_lives(self.pid, thread.tid)
            } else {
                thread.ended.is_some_and(|ended| now.saturating_sub(ended) > 2_000_000_000)
            };
            if !gone || image.threads.len() <= 1 {
                at += 1;
                continue;
            }
            // What it wrote last is there now: it is gone.
            let (images, mut desk) = self.desk(clock, files, story);
            let Some(image) = images.into_iter().nth(which).flatten() else { return };
            image.drain_gone(at, clock, now, &mut desk);
            let thread = image.retire(at);
            self.lost_records(story);
            if which == 0 {
                self.ledger.ended(thread.index);
            }
            if let Some(open) = files.open.get_mut(self.file).filter(|_| which == 0) {
                open.writer.thread_end(thread.index, thread.ended.unwrap_or(now));
            }
        }
    }

    /// Forked children that said that they could not attach.
    fn lost_children(&mut self, story: &mut Story) {
        let header = self.image.region.header();
        let count = header.lost_children.load(Acquire);
        let fresh = count.wrapping_sub(self.children_lost).min(header.lost_pids.len() as u32);
        for n in 0..fresh {
            let at = count.wrapping_sub(fresh).wrapping_add(n) as usize % header.lost_pids.len();
            let who = match header.lost_pids[at].load(Relaxed) {
                0 => format!("a child of {}", self.pid),
                pid => format!("{pid} (a child of {})", self.pid),
            };
            let why = "it could not attach: it had another user, root or environment, no descriptor \
                       left, or a seccomp filter";
            story.is_blind(Blind {
                process: who,
                what: "everything".to_owned(),
                why: why.to_owned(),
            });
        }
        let more = count.wrapping_sub(self.children_lost) - fresh;
        if more > 0 {
            let why = "they could not attach, and came faster than they could be listed";
            story.lose("forked children", why, u64::from(more));
        }
        self.children_lost = count;
    }

    /// Counts what the target dropped since the last look, and what it did before it attached.
    fn lost_records(&mut self, story: &mut Story) {
        let of =
            |image: &Image| image.slot_totals().lost + image.region.header().lost.load(Relaxed);
        let lost = of(&self.image) + self.agent.as_ref().map_or(0, of);
        let missed = match self.counts_missed {
            true => self.image.region.header().missed.load(Relaxed),
            false => 0,
        };
        let notes = |image: &Image| image.region.header().notes_lost.load(Relaxed);
        let notes = notes(&self.image) + self.agent.as_ref().map_or(0, notes);
        let full = "the ring stayed full, or no room was left for a thread";
        let why = match story.standstill.explains(sys::monotonic_ns()) {
            true => STOOD_STILL,
            false => full,
        };
        for (what, why, now, before) in [
            ("records", why, lost, &mut self.lost),
            (loss::EVENTS, STOOD_STILL_FIRST, missed, &mut self.missed),
            ("names, threads and processes", why, notes, &mut self.notes_lost),
        ] {
            if now > *before {
                story.lose(what, why, now - *before);
                *before = now;
            }
        }
        let (lost, missed) = (self.lost, self.missed);
        if let Some(process) = story.process(self.number) {
            process.lost = Some(lost + missed);
        }
    }

    /// Writes what has gathered.
    pub fn flush(
        &mut self,
        clock: &Clock,
        now: u64,
        files: &mut Files,
        story: &mut Story,
        always_on: bool,
    ) {
        self.lost_records(story);
        self.calls.witness.settle(now);
        self.write_totals(clock, now, files, always_on);
        let Some(open) = files.open.get_mut(self.file) else { return };
        self.gpu.write_memory(self.calls.tells_memory, now, &mut open.writer, story);
        let threads = match self.same_namespace {
            true => self.ledger.rows(),
            false => &mut self.tids,
        };
        self.gpu.write(threads, &mut open.writer, story);
        let block = &mut self.image.heap.block;
        let events = block.len() as u64;
        if events > 0
            && let Err(e) = open.writer.heap(block)
        {
            story.lose("heap events", info::UNWRITTEN, events);
            story.complain(&e.to_string());
        }
    }

    fn write_totals(&mut self, clock: &Clock, now: u64, files: &mut Files, always_on: bool) {
        let whole = self.whole_life && always_on;
        let process = self.image.index;
        let row = match self.memory {
            MemoryRecording::Off => return,
            MemoryRecording::Exact => {
                let heap = &self.image.heap;
                HeapTotals {
                    time_ns: now,
                    process,
                    allocations: heap.allocations,
                    frees: heap.frees,
                    allocated_bytes: heap.allocated_bytes,
                    live_bytes: whole.then_some(heap.live_bytes),
                    peak_bytes: whole.then_some(heap.peak_bytes),
                    peak_at_ns: whole.then_some(if heap.peak_ns == 0 {
                        self.start_ns
                    } else {
                        heap.peak_ns
                    }),
                }
            }
            MemoryRecording::Sampled { .. } => {
                let totals = self.image.slot_totals();
                let header = self.image.region.header();
                let known = self.heap_now().filter(|_| whole);
                let flushed = header.peak_bytes.load(Relaxed).max(0) as u64;
                let peak_at = known.map(|(live, peak)| {
                    if peak > flushed && live == peak {
                        now
                    } else {
                        clock.ns(header.peak_clock.load(Relaxed))
                    }
                });
                // The clock of a peak that was never flushed is unset.
                let peak_at = peak_at.map(|at| at.clamp(self.start_ns, now.max(self.start_ns)));
                HeapTotals {
                    time_ns: now,
                    process,
                    allocations: totals.allocations,
                    frees: totals.frees,
                    allocated_bytes: totals.allocated_bytes,
                    live_bytes: known.map(|k| k.0),
                    peak_bytes: known.map(|k| k.1),
                    peak_at_ns: peak_at,
                }
            }
        };
        let same = self.last_totals.is_some_and(|last| HeapTotals { time_ns: now, ..last } == row);
        if !same && let Some(open) = files.open.get_mut(self.file) {
            open.writer.totals(row);
            self.last_totals = Some(row);
        }
    }

    /// Whether its end is explained.
    pub fn status_is_known(&self, story: &Story) -> bool {
        self.end.as_ref().is_some_and(|end| {
            end.exec
                || end.status.is_some()
                || end.pidfd.as_ref().and_then(sys::exit_status).is_some()
                || story.status_of(self.pid, self.start_ns).is_some()
        })
    }

    /// How long ago it ended.
    pub fn end_age(&self, now: u64) -> u64 {
        self.end.as_ref().map_or(0, |end| now.saturating_sub(end.time_ns))
    }

    /// What recording cost it: wait ns, host ns.
    pub fn costs(&self, clock: &Clock, costs: &crate::engine::calibrate::Costs) -> (u64, u64) {
        let totals = self.image.slot_totals();
        let hooks = match self.image.region.header().mem_mode.load(Relaxed) {
            mem_mode::SAMPLED => (totals.allocations + totals.frees) as f64 * costs.counted_ns,
            _ => self.image.recorded as f64 * costs.recorded_ns,
        };
        let stacks = clock.duration_ns(totals.stack_ticks);
        (clock.duration_ns(totals.wait_ticks), hooks as u64 + stacks)
    }

    /// CPU time since it attached, as last read.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Writes its last rows.
    pub fn finish(
        mut self,
        clock: &Clock,
        now: u64,
        files: &mut Files,
        story: &mut Story,
        always_on: bool,
    ) {
        self.lost_children(story);
        let end_ns = self.end.as_ref().map_or(now, |e| e.time_ns);
        self.flush(clock, end_ns, files, story, always_on);
        if let Some(open) = files.open.get_mut(self.file) {
            let threads = match self.same_namespace {
                true => self.ledger.rows(),
                false => &mut self.tids,
            };
            self.gpu.finish(end_ns, threads, &mut open.writer, story);
            let (gaps, untold) = self.calls.witness.finish(end_ns);
            // Kernels that ended after recording was switched off are not lost.
            if always_on {
                self.gpu.tell_untold(story);
            }
            self.gpu.tell_gaps(&gaps, self.start_ns, &mut open.writer, story);
            if untold > 0 {
                let why = match always_on {
                    true => "CUPTI gave no records of them before the end",
                    false => "CUPTI gave no records of them before recording was switched off",
                };
                story.lose("launches and copies", why, untold);
            }
        }
        let header = self.image.region.header();
        let stacks = [
            (&header.stacks_lost, "the table of stacks was full"),
            (&header.stacks_dropped, "the ring stayed full"),
        ];
        for (count, why) in stacks {
            let lost = count.load(Relaxed);
            if lost > 0 {
                story.lose("stacks", why, lost);
            }
        }
        let untracked = header.samples_untracked.load(Relaxed);
        if untracked > 0 {
            story.lose("frees of sampled blocks", "the table of live samples was full", untracked);
        }
        let refused = self.image.refused + self.agent.as_ref().map_or(0, |agent| agent.refused);
        if refused > 0 {
            story.lose(
                "records",
                "they were cut short by a signal handler that did not return, or not valid",
                refused,
            );
        }
        // Frees that the ring dropped are counted there already.
        let missed = self.image.heap.missed_frees.saturating_sub(self.lost);
        if missed > 0 && always_on && self.whole_life {
            story.lose("frees", "a block was handed out again at an address that was live", missed);
        }
        if self.code.not_ready > 0 {
            story.lose("whole stacks", "unwind tables were not ready in time", self.code.not_ready);
        }
        let nameless = self.code.nameless();
        if nameless > 0 {
            let why = "their process ended before its mappings could be read";
            story.lose("names of functions", why, nameless);
        }
        if let Some(open) = files.open.get_mut(self.file) {
            let lost = self.code.names_lost(&mut open.writer);
            if lost > 0 {
                let why = "the ring or a table was full, or they could not be read";
                story.lose("names of Python functions", why, lost);
            }
        }
        let unread = header.python_unread.load(Relaxed);
        if unread > 0 {
            let why = "they could not be read whole at that moment";
            story.lose("Python frames in stacks of allocations", why, unread);
        }
        let end = self.end.take();
        let end_ns = end.as_ref().map(|e| e.time_ns);
        let status = end
            .as_ref()
            .and_then(|e| e.status.or_else(|| e.pidfd.as_ref().and_then(sys::exit_status)));
        let attached = end.as_ref().is_some_and(|e| e.exec);
        let replaced =
            attached || end_ns.is_some_and(|at| story.was_replaced(self.pid, status, at));
        let how = story.ended(self.number, self.pid, status, replaced, end_ns);
        if let (Some(open), Some(end_ns)) = (files.open.get_mut(self.file), end_ns) {
            for thread in &self.image.threads {
                open.writer.thread_end(thread.index, thread.ended.unwrap_or(end_ns));
            }
            open.forget(self.image.index);
            open.writer.process_end(self.image.index, end_ns, how);
        }
    }

    /// Adds its costs to the run's; called once, before [`Tracked::finish`].
    pub fn settle(
        &self,
        clock: &Clock,
        costs: &crate::engine::calibrate::Costs,
        story: &mut Story,
    ) {
        let (wait, host) = self.costs(clock, costs);
        story.wait_ns += wait;
        story.host_ns += host;
        story.cpu_ns += self.cpu_ns;
    }
}
