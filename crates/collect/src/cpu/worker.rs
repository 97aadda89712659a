//! The sampler's thread: drains the rings, puts their records in order, unwinds.
//!
//! Rings are per processor, and a process moves between them: a mapping made on
//! one may be met by a sample from another. So records wait until every ring was
//! read past their time, one pass later.

mod frames;
mod poll;
mod watch;

use super::counters::{Counters, Purpose};
use super::polled::Polled;
use super::probe::why_kernel_names_are_hidden;
use super::sample::{CpuSample, Frame, Measure, SamplerEvent, ThreadTotals};
use super::threads::{Stretch, Threads, WaitSite};
use super::wanted::Wanted;
use crate::config::PerfEvent;
use crate::modules::Spaces;
use crate::os::maps::Mapping;
use crate::os::sys;
use crate::perf::record::{self, Origin, Record, Registers};
use crate::python::{PyStack, Pythons};
use nix::sys::eventfd::EventFd;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;
use tprof_trace::model::ThreadState;

/// Longest sleep; samples wake the thread sooner.
const PASS: Duration = Duration::from_millis(50);
/// Longest sleep where Python's frames must be read and samples do not wake the thread.
const PYTHON_PASS: Duration = Duration::from_millis(4);
/// A process that mapped code so lately may be about to run Python: its mappings must
/// be known before its frames can be read.
const STIR_NS: u64 = 200_000_000;
/// Waits of this length are looked at, if nothing else tells where they are.
const LONG_WAIT_NS: u64 = 10_000_000;
/// Python frames are read for samples that are no older.
const FRESH_NS: u64 = 10_000_000;
/// Looks in one pass, at most: some 10 us each.
const MOST_LOOKS: usize = 256;
/// Sleep while somebody waits.
const HURRY: Duration = Duration::from_millis(1);
/// A record's time is taken before it is written; a virtual processor may stand
/// still between.
const MARGIN_NS: u64 = 2_000_000;
/// How often short stretches are handed out.
const GIVE_NS: u64 = 200_000_000;

/// What the sampler is told to do.
pub enum Command {
    /// Watch a process that will exec, from then on.
    Launch(u32, Sender<()>),
    /// Watch processes that run already, with all their threads.
    Attach(Vec<u32>, Sender<Result<(), String>>),
    /// Watch a process that runs already, unless it is watched through its parent.
    Cover(u32),
    /// A process attached, and processes are looked at.
    Met(u32),
    /// Read what there is.
    Drain,
    /// Hand out everything and end.
    Finish,
}

/// What the thread is made of.
pub struct Parts {
    pub wanted: Wanted,
    pub orders: Receiver<Command>,
    pub emit: Box<dyn Fn(SamplerEvent) + Send>,
    pub wake: Arc<EventFd>,
    pub until_ns: Arc<AtomicU64>,
    /// Perf events are refused.
    pub polls: Arc<AtomicBool>,
}

/// A record that waits for its turn.
struct Waiting {
    origin: Origin,
    what: What,
}

enum What {
    Sample {
        purpose: Purpose,
        chain: Vec<u8>,
        registers: Option<Registers>,
        stack: Box<[u8]>,
        python: Option<PyStack>,
        /// Python was asked.
        asked: bool,
    },
    Events {
        event: PerfEvent,
        frame: Frame,
        count: u64,
    },
    Mapped(u32, Mapping),
    Named {
        pid: u32,
        tid: u32,
        name: String,
        exec: bool,
    },
    Began {
        pid: u32,
        parent: u32,
    },
    /// A thread of a process that goes on.
    Started {
        tid: u32,
    },
    Ended {
        pid: u32,
        tid: u32,
    },
    Switch {
        out: bool,
        preempted: bool,
    },
}

struct Worker {
    wanted: Wanted,
    emit: Box<dyn Fn(SamplerEvent) + Send>,
    counters: Counters,
    spaces: Spaces,
    threads: Threads,
    waiting: Vec<Waiting>,
    taken: Vec<CpuSample>,
    /// All rings were read past this.
    read_ns: u64,
    /// Everything until then was handed out.
    settled_ns: u64,
    /// Somebody waits for everything until then.
    wanted_ns: u64,
    given_ns: u64,
    lost: u64,
    /// Records were lost.
    has_lost: bool,
    throttled: u64,
    refused: u64,
    late: u64,
    pythons: Pythons,
    told_missing: bool,
    told_polling: bool,
    /// Frames of the sample at hand.
    scratch: Vec<u64>,
    /// A processor's ring whose thread is gone is not waited for any more.
    hung_up: Vec<bool>,
    /// Processes that are looked at, as perf events are refused.
    polled: Polled,
    /// When they were last, and will be next.
    polled_ns: u64,
    poll_at_ns: u64,
    /// CPU time that a look takes, lately.
    took_ns: u64,
    /// When their children were last looked for.
    children_ns: u64,
    /// When the mappings of each were last read.
    maps_ns: HashMap<u32, u64>,
    polls: Arc<AtomicBool>,
    /// When code was last mapped, or a process began to be watched.
    mapped_ns: u64,
}

/// Runs until told to finish.
pub fn run(parts: Parts) {
    let Parts { wanted, orders, emit, wake, until_ns, polls } = parts;
    sys::raise_priority();
    let mut worker = Worker {
        wanted,
        emit,
        counters: Counters::default(),
        spaces: Spaces::default(),
        threads: Threads::default(),
        waiting: Vec::new(),
        taken: Vec::new(),
        read_ns: 0,
        settled_ns: 0,
        wanted_ns: 0,
        given_ns: 0,
        lost: 0,
        has_lost: false,
        throttled: 0,
        refused: 0,
        late: 0,
        pythons: Pythons::default(),
        told_missing: false,
        told_polling: false,
        scratch: Vec::new(),
        hung_up: Vec::new(),
        polled: Polled::default(),
        polled_ns: 0,
        poll_at_ns: 0,
        took_ns: 0,
        children_ns: 0,
        maps_ns: HashMap::new(),
        polls,
        mapped_ns: 0,
    };
    loop {
        worker.rest(&wake);
        let mut finish = false;
        while let Ok(order) = orders.try_recv() {
            match order {
                Command::Launch(pid, done) => {
                    worker.launch(pid);
                    let _ = done.send(());
                }
                Command::Attach(pids, done) => {
                    let _ = done.send(worker.attach(&pids, sys::monotonic_ns()));
                }
                // It is known by its own row; when it began does not matter.
                Command::Cover(pid) => {
                    if let Err(why) = worker.attach(&[pid], 0) {
                        (worker.emit)(SamplerEvent::Missing(pid.to_string(), "CPU samples", why));
                    }
                }
                Command::Met(pid) => worker.met(pid),
                Command::Drain => worker.wanted_ns = sys::monotonic_ns(),
                Command::Finish => finish = true,
            }
        }
        worker.pass();
        if finish {
            worker.end();
        }
        until_ns.store(worker.settled_ns(), Release);
        if finish {
            return;
        }
    }
}

impl Worker {
    fn rest(&mut self, wake: &EventFd) {
        let mut fds = vec![wake.as_fd()];
        let mut rings = Vec::new();
        for at in 0..self.counters.rings.len() {
            if !self.hung_up.get(at).copied().unwrap_or(false) {
                fds.push(self.counters.owner(at).fd().as_fd());
                rings.push(at);
            }
        }
        // Somebody waits for what happened until a moment ago.
        let hurry = self.settled_ns() < self.wanted_ns;
        let mut time = match hurry {
            true => HURRY,
            false if !self.wanted.wakes() && self.may_be_python() => PYTHON_PASS,
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

    /// Whether samples may be of Python.
    fn may_be_python(&self) -> bool {
        let stir_ns = sys::monotonic_ns().saturating_sub(self.mapped_ns);
        self.pythons.any() || stir_ns < STIR_NS
    }

    /// Everything until then was handed out.
    fn settled_ns(&self) -> u64 {
        match self.counters.rings.is_empty() {
            true if self.polled.is_empty() => u64::MAX,
            true => self.polled_ns,
            false => self.settled_ns,
        }
    }

    /// Reads all rings, and works off what every ring was read past.
    fn pass(&mut self) {
        let now = sys::monotonic_ns();
        self.drain();
        self.settled_ns = self.read_ns.saturating_sub(MARGIN_NS);
        self.work_off(self.settled_ns);
        self.read_ns = now;
        self.poll(now);
        self.look_at_waits(now);
        if now - self.given_ns > GIVE_NS {
            self.given_ns = now;
            let mut stretches = Vec::new();
            self.threads.give(&mut stretches);
            self.polled.give(&mut stretches);
            self.take_stretches(stretches);
        }
        self.hand_out();
    }

    /// Long waits that were not sampled as they began are looked at while they last.
    fn look_at_waits(&mut self, now: u64) {
        let waits = self.threads.waits_unseen(now.saturating_sub(LONG_WAIT_NS));
        for (pid, tid) in waits.into_iter().take(MOST_LOOKS) {
            if let Some(place) = self.place_of_wait(pid, tid, None) {
                self.threads.waits_at(tid, place);
            }
        }
    }

    fn drain(&mut self) {
        let mut rings = std::mem::take(&mut self.counters.rings);
        for (_, _, ring) in &mut rings {
            ring.drain(|kind, misc, body| {
                match record::decode(kind, misc, body, |id| self.counters.layout(id)) {
                    Some((origin, record)) => self.keep(origin, record),
                    None => self.refused += u64::from(kind == 9),
                }
            });
        }
        self.counters.rings = rings;
        self.read_python();
    }

    /// Reads the Python frames of threads that have hardly run since they were
    /// sampled: just now, or just before they lost their processor.
    fn read_python(&mut self) {
        let now = sys::monotonic_ns();
        self.waiting.sort_by_key(|w| w.origin.time_ns);
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut read: HashMap<u32, Option<PyStack>> = HashMap::new();
        // From the last record back: how long each thread has run since, and
        // until when it ran before that.
        let mut ran: HashMap<u32, (u64, u64)> = HashMap::new();
        for Waiting { origin, what } in waiting.iter_mut().rev() {
            let Origin { pid, tid, time_ns, .. } = *origin;
            let (ran_ns, until_ns) = ran.entry(tid).or_insert((0, now));
            match what {
                What::Switch { out: true, .. } => *until_ns = time_ns,
                What::Switch { .. } => {
                    *ran_ns += until_ns.saturating_sub(time_ns);
                    *until_ns = time_ns;
                }
                What::Sample { python, asked: asked @ false, .. } => {
                    *asked = true;
                    let since_ns = *ran_ns + until_ns.saturating_sub(time_ns);
                    if since_ns > FRESH_NS {
                        self.late += u64::from(self.pythons.is_python(pid));
                        continue;
                    }
                    let stack = read
                        .entry(tid)
                        .or_insert_with(|| self.pythons.stack(pid, tid, &mut self.spaces));
                    python.clone_from(stack);
                }
                _ => {}
            }
        }
        self.waiting = waiting;
    }

    fn keep(&mut self, origin: Origin, record: Record<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let what = match record {
            Record::Sample(sample) => What::Sample {
                purpose: self.counters.purpose(sample.id),
                chain: sample.chain.to_vec(),
                registers: sample.registers,
                stack: sample.stack.into(),
                python: None,
                asked: false,
            },
            Record::Events { id, address, kernel, count } => {
                let Purpose::Event(event) = self.counters.purpose(id) else { return };
                let frame = match kernel {
                    true => Frame::Kernel(address),
                    // As a return address: one past it.
                    false => Frame::Address(address.wrapping_add(1)),
                };
                What::Events { event, frame, count }
            }
            Record::Mapped { pid, start, len, offset, inode, path } => {
                self.mapped_ns = self.mapped_ns.max(origin.time_ns);
                let path = PathBuf::from(OsStr::from_bytes(path));
                let end = start.saturating_add(len);
                let mapping =
                    Mapping { start, end, offset, dev: 0, inode, path, exec: true, deleted: false };
                What::Mapped(pid, mapping)
            }
            Record::Named { pid, tid, name, exec } => {
                What::Named { pid, tid, name: text(name), exec }
            }
            Record::Began { pid, parent, tid } if pid == tid && pid != parent => {
                What::Began { pid, parent }
            }
            Record::Began { tid, .. } => What::Started { tid },
            Record::Ended { pid, tid } => What::Ended { pid, tid },
            Record::Switch { out, preempted } => What::Switch { out, preempted },
            Record::Lost(count) => {
                self.lost += count;
                self.has_lost = true;
                return;
            }
            Record::Throttled => {
                self.throttled += 1;
                return;
            }
        };
        self.waiting.push(Waiting { origin, what });
    }

    fn work_off(&mut self, until_ns: u64) {
        self.waiting.sort_by_key(|w| w.origin.time_ns);
        let ready = self.waiting.partition_point(|w| w.origin.time_ns <= until_ns);
        let ready: Vec<Waiting> = self.waiting.drain(..ready).collect();
        let mut stretches = Vec::new();
        for Waiting { origin, what } in ready {
            self.take(origin, what, &mut stretches);
        }
        self.take_stretches(stretches);
    }

    fn take(&mut self, origin: Origin, what: What, stretches: &mut Vec<Stretch>) {
        let Origin { pid, tid, time_ns, cpu } = origin;
        match what {
            // The kernel's last work for a process of which nothing is left.
            What::Sample { .. } | What::Events { .. }
                if self.threads.is_gone(tid, time_ns) && !self.spaces.knows(pid) => {}
            What::Sample { purpose, chain, registers, stack, python, .. } => {
                let (frames, end) = self.frames(pid, &chain, registers, &stack);
                let gil = python.as_ref().and_then(|python| python.gil);
                let (frames, end) = self.with_python(pid, frames, end, python);
                match purpose {
                    Purpose::Clock => {
                        let period_ns = self.wanted.period_ns();
                        self.threads.sampled(pid, tid, time_ns, period_ns);
                        self.taken.push(CpuSample {
                            weight_ns: period_ns,
                            cpu: Some(cpu),
                            gil,
                            frames,
                            end: end as u8,
                            ..CpuSample::of(pid, tid, time_ns, Measure::Time)
                        });
                    }
                    Purpose::Event(_) => {}
                    Purpose::Leave => {
                        let gil = self.is_at_lock(pid, registers).then_some(ThreadState::Gil);
                        let place = WaitSite { frames, end: end as u8, waits_for: gil };
                        self.threads.leaves(pid, tid, time_ns, place);
                    }
                }
            }
            What::Events { event, frame, count } => {
                let frames = vec![frame];
                self.meet(pid, &frames);
                self.taken.push(CpuSample {
                    frames,
                    ..CpuSample::of(pid, tid, time_ns, Measure::Events(event, count))
                });
            }
            What::Mapped(pid, mapping) => self.spaces.mapped(pid, mapping, time_ns),
            What::Named { pid, tid, name, exec } => {
                if exec {
                    // What came before belongs to the old program, whose other
                    // threads are gone; one of them may have become this one.
                    let others: Vec<u32> =
                        self.threads.of_process(pid).filter(|other| *other != tid).collect();
                    for other in others {
                        let faults = self.counters.faults_of_ended(other);
                        self.count(pid, other, time_ns, faults);
                        self.threads.ended(other, time_ns, stretches);
                    }
                    // Its faults are counted with the program that it becomes.
                    self.count(pid, tid, time_ns, None);
                    self.threads.replaced(tid, time_ns, stretches);
                    self.take_stretches(std::mem::take(stretches));
                    self.hand_out();
                    self.spaces.replaced(pid);
                    self.pythons.forget(pid);
                    (self.emit)(SamplerEvent::Replaced(pid, time_ns));
                }
                (self.emit)(SamplerEvent::Named(pid, tid, time_ns, name));
            }
            What::Started { tid } => self.threads.began(tid),
            What::Began { pid, parent } => {
                self.threads.began(pid);
                self.spaces.forked(pid, parent);
                (self.emit)(SamplerEvent::Forked { pid, parent, time_ns });
            }
            What::Ended { pid, tid } => {
                let faults = self.counters.faults_of_ended(tid);
                self.count(pid, tid, time_ns, faults);
                self.threads.ended(tid, time_ns, stretches);
                if self.threads.of_process(pid).next().is_none() {
                    self.take_stretches(std::mem::take(stretches));
                    self.hand_out();
                    self.spaces.gone(pid);
                    self.pythons.forget(pid);
                    (self.emit)(SamplerEvent::Ended(pid, time_ns));
                }
            }
            What::Switch { out: true, preempted } => {
                self.threads.left(pid, tid, time_ns, preempted);
            }
            What::Switch { .. } => self.threads.came(pid, tid, cpu, time_ns, stretches),
        }
    }

    fn take_stretches(&mut self, stretches: Vec<Stretch>) {
        for s in stretches {
            let WaitSite { frames, end, waits_for } = s.place.unwrap_or_default();
            self.taken.push(CpuSample {
                weight_ns: s.length_ns,
                kind: s.kind,
                waits_for,
                frames,
                end,
                ..CpuSample::of(s.pid, s.tid, s.time_ns, Measure::Time)
            });
        }
    }

    /// Hands out what was counted of a thread.
    fn count(&mut self, pid: u32, tid: u32, time_ns: u64, faults: Option<[u64; 2]>) {
        let Some(counts) = self.threads.take_counts(tid) else { return };
        let counts = (!self.has_lost).then_some(counts);
        let counted = ThreadTotals { time_ns, counts, faults };
        self.taken.push(CpuSample::of(pid, tid, time_ns, Measure::Counted(counted)));
    }

    fn hand_out(&mut self) {
        for (process, why) in self.pythons.refused.drain(..) {
            (self.emit)(SamplerEvent::Missing(process, "Python frames", why));
        }
        for met in self.spaces.met.drain(..) {
            (self.emit)(SamplerEvent::Met(met));
        }
        if !self.taken.is_empty() {
            (self.emit)(SamplerEvent::Samples(std::mem::take(&mut self.taken)));
        }
        let lost = [
            (&mut self.lost, "records of perf events", "the ring was full"),
            (&mut self.throttled, "CPU samples for a moment", "the kernel throttled the clock"),
            (&mut self.refused, "CPU samples", "they could not be read"),
            (
                &mut self.late,
                "Python frames of CPU samples",
                "the sampler came too late to read them",
            ),
        ];
        for (count, what, why) in lost {
            if *count > 0 {
                (self.emit)(SamplerEvent::Lost(what, why, std::mem::take(count)));
            }
        }
    }

    fn end(&mut self) {
        self.counters.disable();
        self.drain();
        self.work_off(u64::MAX);
        let (mut stretches, now) = (Vec::new(), sys::monotonic_ns());
        for (pid, tid) in self.threads.all() {
            let faults = self.counters.faults_of_live(pid, tid);
            self.count(pid, tid, now, faults);
        }
        self.threads.end(now, &mut stretches);
        for pid in self.polled.pids() {
            self.poll_process(pid, now);
            self.lose_unseen(pid);
            self.polled.ended(pid, false, &mut stretches);
        }
        self.take_stretches(stretches);
        self.hand_out();
        (self.emit)(SamplerEvent::EventShares(self.counters.event_shares()));
        let sampled = !self.counters.rings.is_empty();
        let sees_kernel = sampled && self.counters.kernel_refused.is_none();
        if let Some(why) = why_kernel_names_are_hidden().filter(|_| sees_kernel) {
            (self.emit)(SamplerEvent::KernelNamesHidden(why));
        }
        self.settled_ns = u64::MAX;
    }
}
