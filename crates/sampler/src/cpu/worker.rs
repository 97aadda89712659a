//! The sampler's thread: reads the rings of the counters, puts their records in order of time, and
//! unwinds the stacks.
//!
//! There is one ring per processor, and processes move between processors, so a sample from one
//! ring may need a mapping from another. Therefore a record waits until every ring has been read
//! past its time, which is in the next pass.

mod deliver;
mod frames;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod poll;
mod queued_record;
mod records;
mod waits;
mod watch;

use super::counters::Counters;
use super::descriptors::Descriptors;
use super::options::SamplingOptions;
use super::polled::PolledProcesses;
use super::probe::why_kernel_names_are_hidden;
use super::sample::{CpuSample, Interruptions, SamplerEvent};
use super::threads::Threads;
use crate::python::PythonProcesses;
use nix::sys::eventfd::EventFd;
use queued_record::QueuedRecord;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;
use tprof_os::proc::{self, Stat};
use tprof_os::sys;
use tprof_unwind::modules::AddressSpaces;

#[cfg(feature = "fuzzing")]
pub use fuzzing::{RecordsRead, read_records};

/// Longest sleep between two passes. Samples wake the thread sooner.
const PASS: Duration = Duration::from_millis(50);
/// Longest sleep while threads leave and come back to processors. A wait without a sample can then
/// be read in the second pass after its beginning.
const BUSY_PASS: Duration = Duration::from_millis(10);
/// Threads count as leaving and coming back until this long after the last record, ns.
const BUSY_NS: u64 = 1_000_000_000;
/// Longest sleep if Python's frames must be read and samples don't wake the thread.
const PYTHON_PASS: Duration = Duration::from_millis(4);
/// If a process has mapped code within this time, it may be about to run Python, ns. Its mappings
/// must be known before its frames can be read, so the thread sleeps only briefly.
const STIR_NS: u64 = 200_000_000;
/// Python frames are read only for samples that are younger than this, ns.
const FRESH_NS: u64 = 10_000_000;
/// Longest sleep while a caller waits for [`Command::Drain`].
const AWAITED_PASS: Duration = Duration::from_millis(1);
/// The kernel reads the time of a record before it writes the record. A virtual processor may be
/// descheduled in between, so a record may be late by this much, ns.
const MARGIN_NS: u64 = 2_000_000;
/// Time between two deliveries of the short intervals that were added up, ns.
const EMIT_NS: u64 = 200_000_000;

/// The commands to the sampler.
pub enum Command {
    /// Sample a process from its next exec on.
    Launch(u32, Sender<()>),
    /// Sample running processes, with all their threads.
    Attach(Vec<u32>, Sender<Result<(), String>>),
    /// Sample a running process, unless it is already sampled through its parent.
    WatchAttached(u32),
    /// A process has attached. If perf events are refused, sample it from `/proc`.
    PollAttached(u32),
    /// Take no samples, or take them again.
    Pause(bool),
    /// Take so many samples per second, 0 for none.
    ChangeRate(u32),
    /// Deliver everything up to this time.
    Drain(u64),
    /// Deliver everything and end.
    Finish,
}

/// What the sampler's thread is created with.
pub struct SamplerParts {
    pub wanted: SamplingOptions,
    pub interruptions: Arc<Interruptions>,
    pub commands: Receiver<Command>,
    pub emit: Box<dyn Fn(SamplerEvent) + Send>,
    /// Called when everything that a caller waits for has been delivered.
    pub settled: Box<dyn Fn() + Send>,
    pub wake: Arc<EventFd>,
    pub until_ns: Arc<AtomicU64>,
    /// Set if perf events are refused.
    pub polls: Arc<AtomicBool>,
}

/// Losses that were not delivered yet.
#[derive(Default)]
struct LossCounts {
    records: u64,
    throttled: u64,
    refused: u64,
    /// Samples whose Python frames would have been read too late.
    late: u64,
    /// Whether any record was ever lost.
    ever: bool,
}

/// The state of reading processes from `/proc`, which replaces perf events where they are refused.
struct Polling {
    polled: PolledProcesses,
    /// Time of the last reading, ns. `next_ns` is the time of the next one.
    at_ns: u64,
    next_ns: u64,
    /// CPU time of one reading, ns: the mean of recent ones.
    took_ns: u64,
    /// Time of the last search for children of the processes, ns.
    children_ns: u64,
    /// Time of the last reading of each process's mappings, ns.
    maps_ns: HashMap<u32, u64>,
    /// Whether the run's report already names what this method can't record.
    explained: bool,
    /// Whether the sampler reads processes from `/proc`, for other threads to see.
    is_on: Arc<AtomicBool>,
}

/// Which processes have counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Watched {
    #[default]
    Nobody,
    /// One launched process with its descendants. When the owners of all rings have hung up, all
    /// these processes have ended, and their last records are in the rings.
    OneLaunched,
    Others,
}

struct Worker {
    wanted: SamplingOptions,
    interruptions: Arc<Interruptions>,
    emit: Box<dyn Fn(SamplerEvent) + Send>,
    counters: Counters,
    spaces: AddressSpaces,
    threads: Threads,
    descriptors: Descriptors,
    pythons: PythonProcesses,
    polling: Polling,
    waiting: Vec<QueuedRecord>,
    taken: Vec<CpuSample>,
    lost: LossCounts,
    /// All rings have been read past this time, ns.
    read_ns: u64,
    /// Everything up to this time has been delivered, ns.
    settled_ns: u64,
    /// A caller waits for everything up to this time, ns.
    wanted_ns: u64,
    /// Everything up to this time, and the short intervals that were added up, have been delivered,
    /// ns.
    given_ns: u64,
    /// Time of the last pass that read records, ns.
    stirred_ns: u64,
    /// Time when any process last mapped code or began to be sampled, ns.
    mapped_ns: u64,
    /// Whether the kernel's refusal of its frames has been reported.
    refusal_explained: bool,
    /// Frames of the sample that is being unwound. The memory is reused.
    scratch: Vec<u64>,
    /// For each ring, whether its owner has hung up, so that it must not be polled any more.
    hung_up: Vec<bool>,
    /// Which processes have counters.
    watched: Watched,
    /// Whether no samples are taken.
    is_paused: bool,
}

/// Runs the sampler until [`Command::Finish`].
pub fn run(parts: SamplerParts) {
    let SamplerParts { wanted, interruptions, commands, emit, settled, wake, until_ns, polls } =
        parts;
    sys::raise_priority();
    let mut worker = Worker::new(wanted, interruptions, emit, polls);
    loop {
        worker.sleep_until_next(&wake);
        let mut finish = false;
        while let Ok(order) = commands.try_recv() {
            match order {
                Command::Launch(pid, done) => {
                    worker.launch(pid);
                    let _ = done.send(());
                }
                Command::Attach(pids, done) => {
                    let _ = done.send(worker.attach(&pids, sys::monotonic_ns()));
                }
                // Such a process has its own row in the report, so the time of its beginning isn't
                // needed.
                Command::WatchAttached(pid) => {
                    if let Err(why) = worker.attach(&[pid], 0) {
                        (worker.emit)(SamplerEvent::Missing(pid.to_string(), "CPU samples", why));
                    }
                }
                Command::PollAttached(pid) => worker.poll_attached(pid),
                Command::Pause(is_paused) => worker.pause(is_paused),
                Command::ChangeRate(rate) => worker.change_rate(rate),
                Command::Drain(until_ns) => worker.wanted_ns = worker.wanted_ns.max(until_ns),
                Command::Finish => finish = true,
            }
        }
        let was_awaited = worker.is_awaited();
        worker.pass();
        if finish {
            worker.end();
        }
        until_ns.store(if finish { u64::MAX } else { worker.settled_ns() }, Release);
        if was_awaited && !worker.is_awaited() {
            settled();
        }
        if finish {
            return;
        }
    }
}

impl Worker {
    /// Creates a sampler that watches nothing yet. `polls` tells other threads whether processes
    /// are read from `/proc`.
    fn new(
        wanted: SamplingOptions,
        interruptions: Arc<Interruptions>,
        emit: Box<dyn Fn(SamplerEvent) + Send>,
        polls: Arc<AtomicBool>,
    ) -> Worker {
        Worker {
            wanted,
            interruptions,
            emit,
            counters: Counters::default(),
            spaces: AddressSpaces::default(),
            threads: Threads::default(),
            descriptors: Descriptors::default(),
            pythons: PythonProcesses::default(),
            polling: Polling {
                polled: PolledProcesses::default(),
                at_ns: 0,
                next_ns: 0,
                took_ns: 0,
                children_ns: 0,
                maps_ns: HashMap::new(),
                explained: false,
                is_on: polls,
            },
            waiting: Vec::new(),
            taken: Vec::new(),
            lost: LossCounts::default(),
            read_ns: 0,
            settled_ns: 0,
            wanted_ns: 0,
            given_ns: 0,
            stirred_ns: 0,
            mapped_ns: 0,
            refusal_explained: false,
            scratch: Vec::new(),
            hung_up: Vec::new(),
            watched: Watched::default(),
            is_paused: false,
        }
    }

    fn sleep_until_next(&mut self, wake: &EventFd) {
        let mut fds = vec![wake.as_fd()];
        let mut rings = Vec::new();
        for at in 0..self.counters.rings.len() {
            if !self.hung_up.get(at).copied().unwrap_or(false) {
                fds.push(self.counters.owner(at).fd().as_fd());
                rings.push(at);
            }
        }
        let mut time = match self.is_awaited() {
            true => AWAITED_PASS,
            false if self.is_paused => PASS,
            false if !self.wanted.wakes() && self.may_be_python() => PYTHON_PASS,
            false if self.read_ns.saturating_sub(self.stirred_ns) < BUSY_NS => BUSY_PASS,
            false => PASS,
        };
        if let Some(at_ns) = self.next_poll_ns() {
            time = time.min(Duration::from_nanos(at_ns.saturating_sub(sys::monotonic_ns())));
        }
        let hung_up = sys::poll_readable(&fds, time);
        self.hung_up.resize(self.counters.rings.len(), false);
        for (at, ring) in rings.into_iter().enumerate() {
            self.hung_up[ring] |= hung_up.get(at + 1).copied().unwrap_or(false);
        }
        let _ = wake.read();
    }

    /// Whether a caller waits for something that has not been delivered yet.
    fn is_awaited(&self) -> bool {
        self.settled_ns() < self.wanted_ns
    }

    /// Whether all processes with counters have ended, so that no ring gets another record. The
    /// kernel reports that a counter has hung up when its thread and all threads that inherited it
    /// have ended and their last records are written.
    fn have_all_ended(&self) -> bool {
        self.watched == Watched::OneLaunched
            && !self.hung_up.is_empty()
            && self.hung_up.iter().all(|over| *over)
    }

    /// Whether any sampled process may run Python.
    fn may_be_python(&self) -> bool {
        let stir_ns = sys::monotonic_ns().saturating_sub(self.mapped_ns);
        self.pythons.any() || stir_ns < STIR_NS
    }

    /// Returns the time up to which everything has been delivered, ns. It is never in the future,
    /// even if there is nothing to sample: a process that begins to be sampled after this pass may
    /// end before the next one, and then its samples are still to come.
    fn settled_ns(&self) -> u64 {
        match self.counters.rings.is_empty() {
            true if self.polling.polled.is_empty() => self.read_ns,
            true => self.polling.at_ns,
            false => self.settled_ns,
        }
    }

    /// Reads all rings, and handles the records that are old enough to be in order.
    fn pass(&mut self) {
        let now = sys::monotonic_ns();
        let kept = self.waiting.len();
        self.drain();
        if self.waiting.len() > kept {
            self.stirred_ns = now;
        }
        self.read_queued_waits(now);
        // If all processes have ended, no further record can come. Otherwise a record may still
        // come that is older than some of those that were read.
        self.settled_ns = match self.have_all_ended() {
            true => now,
            false => self.read_ns.saturating_sub(MARGIN_NS),
        };
        self.process_queued(self.settled_ns);
        self.read_ns = now;
        self.poll(now);
        self.read_long_waits(now);
        // If a caller's data is ready, the intervals that were added up are delivered too.
        let is_asked = self.given_ns < self.wanted_ns && self.settled_ns() >= self.wanted_ns;
        if is_asked || now - self.given_ns > EMIT_NS {
            self.given_ns = self.settled_ns();
            let mut intervals = Vec::new();
            self.threads.emit(&mut intervals);
            self.polling.polled.emit(&mut intervals);
            self.take_intervals(intervals);
        }
        self.deliver();
    }

    /// Stops or starts the samples, if the run's options pause the sampler. Programs, threads and
    /// mappings are still followed meanwhile.
    fn pause(&mut self, is_paused: bool) {
        if !self.wanted.pauses {
            return;
        }
        let is_paused = is_paused || self.wanted.rate == 0;
        self.is_paused = is_paused;
        self.counters.pause(is_paused);
        let now = sys::monotonic_ns();
        if is_paused {
            self.suspend_threads(now);
        } else if !is_paused && self.threads.are_suspended() {
            // Records that are still queued show which threads there are.
            self.drain();
            self.process_queued(now);
            let tids = |pid| proc::threads_of(pid).into_iter().map(move |tid| (pid, tid));
            let polled = &self.polling.polled;
            let threads = self.spaces.pids().filter(|pid| !polled.has(*pid)).flat_map(tids);
            let waits = |(pid, tid)| {
                let stat = Stat::of_thread(pid, tid)?;
                (!stat.is_ending()).then(|| (pid, tid, stat.state() != b'R'))
            };
            let threads: Vec<(u32, u32, bool)> = threads.filter_map(waits).collect();
            self.threads.resume(threads.into_iter(), now);
        }
    }

    /// Takes so many samples per second from now on, if the run's options pause the sampler. If the
    /// kernel refuses counters with the new rate, no samples are taken any more.
    fn change_rate(&mut self, rate: u32) {
        if !self.wanted.pauses {
            return;
        }
        let was_paused = self.is_paused;
        // This also handles the records that have the old rate.
        self.pause(true);
        self.wanted.rate = rate;
        if rate > 0 && !self.counters.rings.is_empty() && !self.reopen() {
            self.wanted.rate = 0;
        }
        self.pause(was_paused);
        (self.emit)(SamplerEvent::RateChanged(self.wanted.rate, sys::monotonic_ns()));
    }

    /// Opens the counters of all sampled threads again. Returns whether the kernel permits that.
    fn reopen(&mut self) -> bool {
        let pids: Vec<u32> =
            self.spaces.pids().filter(|pid| !self.polling.polled.has(*pid)).collect();
        let tids = || pids.iter().flat_map(|pid| proc::threads_of(*pid)).collect::<HashSet<u32>>();
        let known = tids();
        let opened = self.counters.reopen(&self.wanted, &Vec::from_iter(known.iter().copied()));
        // A thread has the counters of the thread that started it, which may have had none yet.
        let begun = tids().difference(&known).count();
        if begun > 0 && opened.is_ok() {
            let why = format!("{begun} threads began while the rate of samples changed");
            (self.emit)(SamplerEvent::Missing(String::new(), "some CPU samples, perhaps", why));
        }
        opened.is_ok()
    }

    /// Suspends the threads if no counter reports when they run and wait.
    fn suspend_threads(&mut self, now: u64) {
        if self.threads.are_suspended() || !self.counters.lacks_switches() {
            return;
        }
        self.drain();
        self.process_queued(now);
        let mut intervals = Vec::new();
        self.threads.suspend(now, &mut intervals);
        self.take_intervals(intervals);
        self.deliver();
    }

    fn end(&mut self) {
        self.counters.disable();
        self.drain();
        self.process_queued(u64::MAX);
        let (mut intervals, now) = (Vec::new(), sys::monotonic_ns());
        for (pid, tid) in self.threads.all() {
            let faults = self.counters.faults_of_live(pid, tid);
            self.count(pid, tid, now, faults);
        }
        self.threads.end(now, &mut intervals);
        for pid in self.polling.polled.pids() {
            self.poll_process(pid, now);
            self.lose_unseen(pid);
            self.polling.polled.ended(pid, false, &mut intervals);
        }
        self.take_intervals(intervals);
        self.pythons.forget_all();
        self.deliver();
        (self.emit)(SamplerEvent::EventShares(self.counters.event_shares()));
        let sampled = !self.counters.rings.is_empty();
        let sees_kernel = sampled && self.counters.kernel_refused.is_none();
        if let Some(why) = why_kernel_names_are_hidden().filter(|_| sees_kernel) {
            (self.emit)(SamplerEvent::KernelNamesHidden(why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StackMode;

    #[test]
    fn nothing_that_is_still_to_come_counts_as_delivered() {
        let wanted = SamplingOptions {
            rate: 99,
            stacks: StackMode::Auto,
            events: Vec::new(),
            pauses: false,
        };
        let mut worker = Worker::new(wanted, Arc::default(), Box::new(|_| {}), Arc::default());
        let before_ns = sys::monotonic_ns();
        worker.pass();
        let settled_ns = worker.settled_ns();
        assert!((before_ns..=sys::monotonic_ns()).contains(&settled_ns), "{settled_ns}");
        worker.wanted_ns = sys::monotonic_ns();
        assert!(worker.is_awaited());
        worker.pass();
        assert!(!worker.is_awaited());
    }
}
