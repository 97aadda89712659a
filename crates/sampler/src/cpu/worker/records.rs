//! Reads records from the rings, and handles them in order of time.

use super::super::counters::Purpose;
use super::super::sample::{CpuSample, Frame, Measure, SamplerEvent};
use super::super::threads::{ThreadInterval, WaitSite};
use super::queued_record::{QueuedEvent, QueuedRecord};
use super::{FRESH_NS, Worker};
use crate::perf::record::{self, Origin, Record};
use crate::python::PyStack;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use tprof_os::maps::Mapping;
use tprof_os::sys;
use tprof_trace::model::ThreadState;

impl Worker {
    pub(super) fn drain(&mut self) {
        let mut rings = std::mem::take(&mut self.counters.rings);
        for (_, _, ring) in &mut rings {
            ring.drain(|kind, misc, body| {
                match record::decode(kind, misc, body, |id| self.counters.layout(id)) {
                    Some((origin, record)) => self.keep(origin, record),
                    None => self.lost.refused += u64::from(kind == 9),
                }
            });
        }
        self.counters.rings = rings;
        self.read_python();
    }

    /// Reads the Python frames of threads that have hardly run since they were sampled: the sample
    /// was taken a moment ago, or just before the thread left its processor.
    fn read_python(&mut self) {
        let now = sys::monotonic_ns();
        self.waiting.sort_by_key(|w| w.origin.time_ns);
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut read: HashMap<u32, Option<PyStack>> = HashMap::new();
        // The loop goes from the last record backwards. For each thread, `ran` has the time that
        // the thread has run after the current record, and the time until which it ran before that.
        let mut ran: HashMap<u32, (u64, u64)> = HashMap::new();
        for QueuedRecord { origin, what } in waiting.iter_mut().rev() {
            let Origin { pid, tid, time_ns, .. } = *origin;
            let (ran_ns, until_ns) = ran.entry(tid).or_insert((0, now));
            match what {
                QueuedEvent::SwitchedOut { .. } => *until_ns = time_ns,
                QueuedEvent::SwitchedIn => {
                    *ran_ns += until_ns.saturating_sub(time_ns);
                    *until_ns = time_ns;
                }
                QueuedEvent::Sample { python, is_python_tried: is_tried @ false, .. } => {
                    *is_tried = true;
                    let since_ns = *ran_ns + until_ns.saturating_sub(time_ns);
                    if since_ns > FRESH_NS {
                        self.lost.late += u64::from(self.pythons.is_python(pid));
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
            Record::Sample(sample) => {
                self.interruptions.samples.fetch_add(1, Relaxed);
                QueuedEvent::Sample {
                    purpose: self.counters.purpose(sample.id),
                    chain: sample.chain.to_vec(),
                    registers: sample.registers,
                    stack: sample.stack.into(),
                    python: None,
                    is_python_tried: false,
                }
            }
            Record::Events { id, address, kernel, count } => {
                let Purpose::Event(event) = self.counters.purpose(id) else { return };
                let frame = match kernel {
                    true => Frame::Kernel(address),
                    // One is added to the address, so that it looks like a return address.
                    false => Frame::Address(address.wrapping_add(1)),
                };
                QueuedEvent::Events { event, frame, count }
            }
            Record::Mapped { pid, start, len, offset, inode, path } => {
                self.mapped_ns = self.mapped_ns.max(origin.time_ns);
                let path = PathBuf::from(OsStr::from_bytes(path));
                let end = start.saturating_add(len);
                let mapping =
                    Mapping { start, end, offset, dev: 0, inode, path, exec: true, deleted: false };
                QueuedEvent::Mapped(pid, mapping)
            }
            Record::Named { pid, tid, name, exec } => {
                QueuedEvent::Named { pid, tid, name: text(name), exec }
            }
            Record::Began { pid, parent, tid } if pid == tid && pid != parent => {
                QueuedEvent::Forked { pid, parent }
            }
            Record::Began { tid, .. } => QueuedEvent::ThreadBegan { tid },
            Record::Ended { pid, tid } => QueuedEvent::Ended { pid, tid },
            Record::Switch { out, preempted } => {
                self.interruptions.switches.fetch_add(out.into(), Relaxed);
                match out {
                    true => QueuedEvent::SwitchedOut { preempted, reading: None },
                    false => QueuedEvent::SwitchedIn,
                }
            }
            Record::Lost(count) => {
                self.lost.records = self.lost.records.saturating_add(count);
                self.lost.ever = true;
                return;
            }
            Record::Throttled => {
                self.lost.throttled += 1;
                return;
            }
        };
        self.waiting.push(QueuedRecord { origin, what });
    }

    pub(super) fn process_queued(&mut self, until_ns: u64) {
        self.waiting.sort_by_key(|w| w.origin.time_ns);
        let ready = self.waiting.partition_point(|w| w.origin.time_ns <= until_ns);
        let ready: Vec<QueuedRecord> = self.waiting.drain(..ready).collect();
        let mut intervals = Vec::new();
        for QueuedRecord { origin, what } in ready {
            self.take(origin, what, &mut intervals);
        }
        self.take_intervals(intervals);
    }

    fn take(&mut self, origin: Origin, what: QueuedEvent, intervals: &mut Vec<ThreadInterval>) {
        let Origin { pid, tid, time_ns, cpu } = origin;
        match what {
            // These are the kernel's last records of a process that has ended and was already
            // forgotten.
            QueuedEvent::Sample { .. } | QueuedEvent::Events { .. }
                if self.threads.is_gone(tid, time_ns) && !self.spaces.knows(pid) => {}
            QueuedEvent::Sample { purpose, chain, registers, stack, python, .. } => {
                let (frames, end) = self.frames(pid, &chain, registers, &stack);
                let in_library = self.is_in_library(pid, registers, &frames);
                let gil = python.as_ref().and_then(|python| python.gil);
                let (frames, end) = self.with_python(pid, frames, end, python);
                match purpose {
                    Purpose::Clock => {
                        let period_ns = self.wanted.period_ns();
                        self.interruptions.clocked(period_ns, in_library);
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
                        self.threads.leaves(pid, tid, time_ns, place, registers);
                    }
                }
            }
            QueuedEvent::Events { event, frame, count } => {
                let frames = vec![frame];
                self.report_modules(pid, &frames);
                self.taken.push(CpuSample {
                    frames,
                    ..CpuSample::of(pid, tid, time_ns, Measure::Events(event, count))
                });
            }
            QueuedEvent::Mapped(pid, mapping) => self.spaces.mapped(pid, mapping, time_ns),
            QueuedEvent::Named { pid, tid, name, exec } => {
                if exec {
                    // Nothing told of the first thread of a launched program.
                    self.threads.began(pid, tid, time_ns);
                    // Earlier records belong to the previous program. All other threads of that
                    // program have ended, even if this thread was one of them and has now taken the
                    // pid as its tid.
                    let others: Vec<u32> =
                        self.threads.of_process(pid).filter(|other| *other != tid).collect();
                    for other in others {
                        let faults = self.counters.faults_of_ended(other);
                        self.count(pid, other, time_ns, faults);
                        self.threads.ended(other, time_ns, intervals);
                    }
                    // The faults of this thread count for the new program, so they are left out
                    // here.
                    self.count(pid, tid, time_ns, None);
                    self.threads.replaced(tid, time_ns, intervals);
                    self.take_intervals(std::mem::take(intervals));
                    self.pythons.forget(pid);
                    self.deliver();
                    self.spaces.replaced(pid);
                    (self.emit)(SamplerEvent::Replaced(pid, time_ns));
                }
                (self.emit)(SamplerEvent::Named(pid, tid, time_ns, name));
            }
            QueuedEvent::ThreadBegan { tid } => self.threads.began(pid, tid, time_ns),
            QueuedEvent::Forked { pid, parent } => {
                self.threads.began(pid, pid, time_ns);
                self.spaces.forked(pid, parent);
                (self.emit)(SamplerEvent::Forked { pid, parent, time_ns });
            }
            QueuedEvent::Ended { pid, tid } => {
                let faults = self.counters.faults_of_ended(tid);
                self.count(pid, tid, time_ns, faults);
                self.threads.ended(tid, time_ns, intervals);
                self.pythons.thread_ended(pid, tid);
                if self.threads.of_process(pid).next().is_none() {
                    self.take_intervals(std::mem::take(intervals));
                    self.pythons.forget(pid);
                    self.deliver();
                    self.spaces.gone(pid);
                    (self.emit)(SamplerEvent::Ended(pid, time_ns));
                }
            }
            QueuedEvent::SwitchedOut { preempted, reading } => {
                self.threads.left(pid, tid, time_ns, preempted);
                if let Some(reading) = reading {
                    let site = self.site_of(pid, *reading, None);
                    self.threads.waits_at(tid, site);
                }
            }
            QueuedEvent::SwitchedIn => self.threads.came(pid, tid, cpu, time_ns, intervals),
        }
    }
}
