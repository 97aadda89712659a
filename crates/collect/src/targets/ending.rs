//! Finishes a target: writes its last rows, counts its losses, and returns the cost of its
//! recording.

use super::target::Target;
use crate::gpu::NCCL_LOG;
use crate::output::destination::Output;
use crate::output::processes::Processes;
use crate::shared::clock::Clock;
use std::ops::AddAssign;
use std::sync::atomic::Ordering::Relaxed;
use tprof_os::sys;
use tprof_trace::model::RecordingTotals;
use tprof_wire::region::{mem_mode, off};

/// The work that recording caused in processes, and the CPU time of these processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedWork {
    /// Number of processes that attached.
    pub starts: u64,
    /// Time that these processes took to attach, ns.
    pub start_ns: u64,
    /// Time that the processes waited for the collector, ns.
    pub wait_ns: u64,
    /// Allocations and frees of processes that count all of them and record a sample.
    pub counted: u64,
    /// Allocations and frees of processes that record all of them.
    pub recorded: u64,
    /// Records of NVTX and CUPTI, of CUDA calls, and of mappings.
    pub noted: u64,
    /// Records of PyTorch's operators.
    pub operators: u64,
    /// Time in callbacks for operators, measured on some of them and scaled, ns.
    pub operator_ns: u64,
    /// Measured time in which the processes took stacks, ns.
    pub stack_ns: u64,
    /// CPU time of the processes at its last reading, ns.
    pub cpu_ns: u64,
}

impl AddAssign for RecordedWork {
    fn add_assign(&mut self, other: RecordedWork) {
        // A target may write any total.
        let add = |to: &mut u64, from: u64| *to = to.saturating_add(from);
        add(&mut self.starts, other.starts);
        add(&mut self.start_ns, other.start_ns);
        add(&mut self.wait_ns, other.wait_ns);
        add(&mut self.counted, other.counted);
        add(&mut self.recorded, other.recorded);
        add(&mut self.noted, other.noted);
        add(&mut self.operators, other.operators);
        add(&mut self.operator_ns, other.operator_ns);
        add(&mut self.stack_ns, other.stack_ns);
        add(&mut self.cpu_ns, other.cpu_ns);
    }
}

impl RecordedWork {
    /// Returns the work since an earlier moment.
    pub fn since(&self, before: &RecordedWork) -> RecordedWork {
        let less = |of: fn(&RecordedWork) -> u64| of(self).saturating_sub(of(before));
        RecordedWork {
            starts: less(|work| work.starts),
            start_ns: less(|work| work.start_ns),
            wait_ns: less(|work| work.wait_ns),
            counted: less(|work| work.counted),
            recorded: less(|work| work.recorded),
            noted: less(|work| work.noted),
            operators: less(|work| work.operators),
            operator_ns: less(|work| work.operator_ns),
            stack_ns: less(|work| work.stack_ns),
            cpu_ns: less(|work| work.cpu_ns),
        }
    }
}

impl Target {
    /// Returns the work that recording has caused in this image so far.
    pub fn recorded_work(&self, clock: &Clock) -> RecordedWork {
        let totals = self.hooks.slot_totals();
        let header = self.hooks.region.header();
        let is_sampled = header.mem_mode.load(Relaxed) == mem_mode::SAMPLED;
        let events = totals.allocations.saturating_add(totals.frees);
        RecordedWork {
            starts: 1,
            start_ns: header.attach_ns.load(Relaxed),
            wait_ns: clock.duration_ns(totals.wait_ticks),
            counted: if is_sampled { events } else { 0 },
            recorded: if is_sampled { 0 } else { self.hooks.recorded },
            noted: (self.hooks.taken + self.agent.as_ref().map_or(0, |agent| agent.taken))
                .saturating_sub(self.operators.operators),
            operators: self.operators.operators,
            operator_ns: clock.duration_ns(totals.operator_ticks),
            stack_ns: clock.duration_ns(totals.stack_ticks),
            cpu_ns: self.usage.cpu_ns,
        }
    }

    /// Writes what recording has cost the image so far, if that has changed since the last row. The
    /// difference between two rows is the cost between their times.
    pub(super) fn write_recording(&mut self, out: &mut Output, now: u64) {
        let work = self.recorded_work(&out.clock);
        let agent = self.agent.as_ref();
        let (device_records, call_records) =
            agent.map_or((0, 0), |agent| (agent.of_devices, agent.of_calls));
        let row = RecordingTotals {
            time_ns: now,
            process: self.hooks.index,
            notes: work.noted.saturating_sub(device_records + call_records),
            device_records,
            call_records,
            operators: work.operators,
            stack_ns: work.stack_ns,
            wait_ns: work.wait_ns,
            collector_ns: sys::cpu_ns(),
        };
        let is_same = |last: RecordingTotals| {
            let RecordingTotals { time_ns, collector_ns, .. } = last;
            RecordingTotals { time_ns, collector_ns, ..row } == last
        };
        if !self.last_recording.is_some_and(is_same)
            && let Some(open) = out.files.open.get_mut(self.file)
        {
            open.writer.recording(row);
            self.last_recording = Some(row);
        }
    }

    /// Whether the collector knows how the image ended.
    pub fn status_is_known(&self, processes: &Processes) -> bool {
        self.end.as_ref().is_some_and(|end| {
            end.exec
                || end.status.is_some()
                || end.pidfd.as_ref().and_then(sys::exit_status).is_some()
                || processes.status_of(self.pid, self.start_ns).is_some()
        })
    }

    /// Returns how long ago the image ended, ns; 0 if it lives.
    pub fn end_age(&self, now: u64) -> u64 {
        self.end.as_ref().map_or(0, |end| now.saturating_sub(end.time_ns))
    }

    /// Writes the image's last rows.
    pub fn finish(mut self, out: &mut Output, now: u64, always_on: bool) {
        self.count_lost_children(out);
        let header = self.hooks.region.header();
        out.processes.steps = out.processes.steps.max(header.steps.load(Relaxed));
        out.processes.captures = out.processes.captures.max(header.captures.load(Relaxed));
        let always_on = always_on && !self.spans.was_switched;
        let end_ns = self.end.as_ref().map_or(now, |e| e.time_ns);
        self.flush(out, end_ns, always_on);
        self.finish_devices(out, end_ns, always_on);
        self.finish_operators(out, end_ns);
        self.count_last_losses(out, always_on);
        self.write_end(out);
        // A process that outlives the run doesn't go on counting.
        self.hooks.region.header().stop_session(off::SESSION | off::UNCOUNTED);
    }

    fn finish_operators(&mut self, out: &mut Output, end_ns: u64) {
        if self.operators.taken > 0 {
            out.processes.hooked.ran_torch(self.number);
        }
        let Some(open) = out.files.open.get_mut(self.file) else { return };
        let losses = &mut out.processes.losses;
        self.operators.finish(end_ns, &mut self.interned, &mut open.writer, losses);
        for thread in &self.hooks.threads {
            if let Some(ended) = thread.ended {
                let (interned, writer) = (&mut self.interned, &mut open.writer);
                self.spans.thread_ended(thread.index, ended, interned, writer);
            }
        }
        self.spans.finish(end_ns, &mut self.interned, &mut open.writer, losses);
    }

    fn finish_devices(&mut self, out: &mut Output, end_ns: u64, always_on: bool) {
        let Some(open) = out.files.open.get_mut(self.file) else { return };
        let losses = &mut out.processes.losses;
        let threads = self.cpu_rows.threads.recorded();
        self.gpu.changed_memory(self.calls.memory_calls.drain(..));
        self.calls.join_by_order(&mut self.gpu, end_ns, true);
        let collectives = &mut self.calls.collectives;
        // A shell that executes the program has the pid by which NCCL names the program's log.
        let executed_another = self.end.as_ref().is_some_and(|end| end.exec);
        if (!executed_another || collectives.used_nccl())
            && let Some(why) = collectives.write_connections(&self.nccl_log, &mut open.writer)
        {
            self.gpu.add_blind(NCCL_LOG, &why, losses);
        }
        self.gpu.finish(end_ns, threads, &mut open.writer, losses);
        for (what, why) in self.calls.unseen.words() {
            self.gpu.add_blind(&what, why, losses);
        }
        let (gaps, unrecorded) = self.calls.coverage.finish(end_ns);
        self.gpu.count_unjoined(always_on, losses);
        // If recording was switched off, kernels that ended afterwards are missing on purpose, so
        // they don't count as lost.
        if always_on {
            self.gpu.count_missing_kernels(losses);
        }
        self.gpu.write_gaps(&gaps, self.start_ns, &mut open.writer, losses);
        if unrecorded > 0 {
            let why = match always_on {
                true => "CUPTI gave no records of them before the end",
                false => "CUPTI gave no records of them before recording was switched off",
            };
            losses.lose("launches and copies", why, unrecorded);
        }
    }

    /// Counts the losses that are final once the image has ended.
    fn count_last_losses(&mut self, out: &mut Output, always_on: bool) {
        let losses = &mut out.processes.losses;
        let header = self.hooks.region.header();
        let refused = self.hooks.refused + self.agent.as_ref().map_or(0, |agent| agent.refused);
        // Frees that were lost because a ring was full are counted as lost records already, so they
        // are subtracted here.
        let missed = match always_on && self.whole_life {
            true => self.hooks.heap.missed_frees.saturating_sub(self.counted.records),
            false => 0,
        };
        let open = out.files.open.get_mut(self.file);
        let nameless_python =
            open.map_or(0, |open| self.code.drop_undefined_names(&mut open.writer));
        for (what, why, count) in [
            (
                "stacks",
                "the table of stacks was full, or had no memory",
                header.stacks_lost.load(Relaxed),
            ),
            (
                "stacks",
                "code was unloaded, and what is mapped was not read again in time",
                header.stacks_unplaced.load(Relaxed),
            ),
            ("stacks", "the ring stayed full", header.stacks_dropped.load(Relaxed)),
            (
                "frees of sampled blocks",
                "the table of live samples was full",
                header.samples_untracked.load(Relaxed),
            ),
            (
                "records",
                "they were cut short by a signal handler that did not return, or not valid",
                refused,
            ),
            ("frees", "a block was handed out again at an address that was live", missed),
            ("whole stacks", "unwind tables were not ready in time", self.code.not_ready),
            (
                "names of functions",
                "their process ended before its mappings could be read",
                self.code.nameless(),
            ),
            (
                "names of Python functions",
                "the ring or a table was full, or they could not be read",
                nameless_python,
            ),
            (
                "Python frames in stacks of allocations",
                "they could not be read whole at that moment",
                header.python_unread.load(Relaxed),
            ),
        ] {
            if count > 0 {
                losses.lose(what, why, count);
            }
        }
    }

    /// Writes how the image ended, and the ends of its threads.
    fn write_end(&mut self, out: &mut Output) {
        let end = self.end.take();
        let end_ns = end.as_ref().map(|e| e.time_ns);
        let status = end
            .as_ref()
            .and_then(|e| e.status.or_else(|| e.pidfd.as_ref().and_then(sys::exit_status)));
        let attached = end.as_ref().is_some_and(|e| e.exec);
        let replaced =
            attached || end_ns.is_some_and(|at| out.processes.was_replaced(self.pid, status, at));
        let how = out.processes.ended(self.number, self.pid, status, replaced, end_ns);
        if let (Some(open), Some(end_ns)) = (out.files.open.get_mut(self.file), end_ns) {
            for thread in &self.hooks.threads {
                open.writer.thread_end(thread.index, thread.ended.unwrap_or(end_ns));
            }
            open.forget(self.hooks.index);
            open.writer.process_end(self.hooks.index, end_ns, how);
        }
    }
}
