//! Samples processes by reading `/proc`, where perf events are refused.

use super::super::polled::{self, ProgramChange, ThreadActivity};
use super::super::sample::{CpuSample, Measure, SamplerEvent};
use super::Worker;
use crate::config::StackMode;
use tprof_os::maps::read_code_maps;
use tprof_os::proc::{self, Stat};
use tprof_os::sys;
use tprof_wire::record::StackEnd;

/// Readings may take at most one part in this many of the time, measured as CPU time of the
/// sampler's thread. With many threads in the job, readings therefore become rarer.
const MAX_OF_TIME: u64 = 10;
/// Weight of the last reading in the mean time of a reading, as one part in this many. A new
/// program makes one reading long. The mean delays several readings a little instead of the next
/// one for long.
const SHARE_OF_LAST: u64 = 8;
/// Time between two searches for children, ns. Nothing else tells about children without tprof's
/// library.
const CHILDREN_NS: u64 = 100_000_000;
/// Least time between two readings of a process's mappings, ns. If a waiting thread is in none of
/// the known mappings, they are read again.
const MAPS_NS: u64 = 200_000_000;

impl Worker {
    /// Begins to sample a process from `/proc`, and reports what can't be recorded that way.
    /// `refused` is the reason why perf events aren't permitted. Returns false if this is
    /// impossible.
    pub(super) fn fall_back_to_polling(&mut self, pid: u32, since_ns: u64, refused: &str) -> bool {
        let now = sys::monotonic_ns();
        if !polled::is_possible() || !self.polling.polled.begin(pid, now, since_ns == 0) {
            return false;
        }
        if !refused.is_empty() && !std::mem::replace(&mut self.polling.explained, true) {
            (self.emit)(SamplerEvent::Missing(
                String::new(),
                "CPU samples of native code",
                format!(
                    "{refused}; instead, threads are read from outside: times, waits and Python \
                     functions"
                ),
            ));
        }
        let parent = proc::parent_of(pid).unwrap_or(0);
        let time_ns = match since_ns {
            0 => proc::started_ns(pid).unwrap_or(0),
            since_ns => since_ns,
        };
        (self.emit)(SamplerEvent::Forked { pid, parent, time_ns });
        self.spaces.read(pid, since_ns);
        self.polling.maps_ns.insert(pid, now);
        true
    }

    /// Returns the time when the next reading is due, if any process is sampled from `/proc`.
    pub(super) fn next_poll_ns(&self) -> Option<u64> {
        (!self.polling.polled.is_empty()).then_some(self.polling.next_ns)
    }

    /// If a reading is due, reads all threads of all processes that are sampled from `/proc`.
    pub(super) fn poll(&mut self, now_ns: u64) {
        if self.polling.polled.is_empty()
            || (now_ns < self.polling.next_ns && self.wanted_ns <= self.polling.at_ns)
        {
            return;
        }
        let began_ns = sys::thread_cpu_ns();
        let for_children = now_ns.saturating_sub(self.polling.children_ns) >= CHILDREN_NS;
        for pid in self.polling.polled.pids() {
            self.poll_process(pid, now_ns);
            if for_children {
                self.find_children(pid);
            }
        }
        if for_children {
            self.polling.children_ns = now_ns;
        }
        self.polling.at_ns = now_ns;
        let took_ns = sys::thread_cpu_ns().saturating_sub(began_ns);
        self.polling.took_ns =
            (self.polling.took_ns * (SHARE_OF_LAST - 1) + took_ns) / SHARE_OF_LAST;
        self.polling.next_ns =
            now_ns + self.wanted.period_ns().max(self.polling.took_ns * MAX_OF_TIME);
    }

    /// Handles a process that attached: it is new, or it has begun to run another program.
    pub(super) fn poll_attached(&mut self, pid: u32) {
        let now_ns = sys::monotonic_ns();
        match self.polling.polled.has(pid) {
            true => self.poll_process(pid, now_ns),
            false => drop(self.fall_back_to_polling(pid, 0, "")),
        }
    }

    fn find_children(&mut self, pid: u32) {
        for child in proc::children_of(pid) {
            if !self.polling.polled.has(child) {
                self.fall_back_to_polling(child, 0, "");
            }
        }
    }

    pub(super) fn poll_process(&mut self, pid: u32, now_ns: u64) {
        let mut intervals = Vec::new();
        match self.polling.polled.program(pid, now_ns) {
            ProgramChange::Same => {}
            ProgramChange::Replaced(last_ns) => {
                self.polling.polled.ended(pid, true, &mut intervals);
                self.take_intervals(std::mem::take(&mut intervals));
                self.pythons.forget(pid);
                self.deliver();
                (self.emit)(SamplerEvent::Replaced(pid, last_ns));
                self.spaces.read(pid, last_ns);
                self.polling.maps_ns.remove(&pid);
            }
            ProgramChange::Gone => {
                self.lose_unseen(pid);
                let why = "the processes had ended at the next reading";
                (self.emit)(SamplerEvent::Lost("last moments of processes", why, 1));
                self.polling.polled.ended(pid, false, &mut intervals);
                self.take_intervals(intervals);
                self.pythons.forget(pid);
                self.deliver();
                self.spaces.gone(pid);
                self.polling.maps_ns.remove(&pid);
                return (self.emit)(SamplerEvent::Ended(pid, now_ns));
            }
        }
        let tids = self.polling.polled.tids(pid, now_ns);
        for tid in &tids {
            self.poll_thread(pid, *tid, &mut intervals);
        }
        self.polling.polled.keep_threads(pid, &tids, &mut intervals);
        self.polling.polled.read_clock(pid);
        self.take_intervals(intervals);
    }

    /// Counts as lost the time of a process that no known thread ran.
    pub(super) fn lose_unseen(&self, pid: u32) {
        let unseen_ms = self.polling.polled.unseen_ms(pid);
        if unseen_ms > 0 {
            let why = "the thread is unknown: it ended between two readings";
            (self.emit)(SamplerEvent::Lost("milliseconds on a core", why, unseen_ms));
        }
    }

    fn poll_thread(
        &mut self,
        pid: u32,
        tid: u32,
        intervals: &mut Vec<super::super::threads::ThreadInterval>,
    ) {
        let now_ns = sys::monotonic_ns();
        let (mut cpu, mut name) = (None, None);
        let runs = || {
            let Some(stat) = Stat::of_thread(pid, tid) else { return false };
            let Some(on) = stat.cpu() else { return false };
            (cpu, name) = (Some(on), Some(stat.name().into_owned()));
            stat.state() == b'R'
        };
        let found = self.polling.polled.observe(pid, tid, now_ns, runs, intervals);
        if let Some(name) = name.filter(|name| self.polling.polled.is_new_name(pid, tid, name)) {
            (self.emit)(SamplerEvent::Named(pid, tid, now_ns, name));
        }
        match found {
            None | Some(ThreadActivity::Still) => {}
            Some(ThreadActivity::Runs(ran_ns)) => {
                let python = match self.wanted.stacks {
                    StackMode::Off => None,
                    _ => self.pythons.stack(pid, tid, &mut self.spaces),
                };
                let gil = python.as_ref().and_then(|python| python.gil);
                let (frames, end) = self.with_python(pid, Vec::new(), StackEnd::Whole, python);
                // Without frames this is an interval and not a sample, so it has no processor.
                let cpu = cpu.filter(|_| !frames.is_empty());
                self.taken.push(CpuSample {
                    weight_ns: ran_ns,
                    cpu,
                    gil,
                    frames,
                    end: end as u8,
                    ..CpuSample::of(pid, tid, now_ns, Measure::Time)
                });
            }
            Some(ThreadActivity::Waits) => {
                if let Some(site) = self.site_of_wait(pid, tid, Some(now_ns)) {
                    self.polling.polled.waits_at(pid, tid, site);
                }
            }
        }
    }

    /// Reads the mappings of a process again, unless they were read a moment ago. Returns whether
    /// any mapping is new.
    pub(super) fn read_maps_again(&mut self, pid: u32, now_ns: u64) -> bool {
        let read_ns = self.polling.maps_ns.entry(pid).or_insert(0);
        if now_ns.saturating_sub(*read_ns) < MAPS_NS {
            return false;
        }
        *read_ns = now_ns;
        let mappings = read_code_maps(pid).unwrap_or_default();
        self.spaces.refresh(pid, mappings, now_ns)
    }
}
