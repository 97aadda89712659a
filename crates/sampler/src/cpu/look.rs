//! Reads once what the threads of a process do now, for a command that asks while the job runs. No
//! thread is stopped: what threads that wait do comes from `/proc` and from the process's memory, as
//! for the stack of a long wait. Threads that run are sampled, as a rule once.
//!
//! If the kernel refuses perf events, a running thread has no native frames.

use super::blocked::{self, BlockedThread};
use super::call::Call;
use super::descriptors::Descriptors;
use super::running::{self, RunningThread};
use super::sample::Frame;
use super::unwind;
use crate::python::{PythonProcesses, merge};
use std::time::Instant;
use tprof_os::proc::{self, Stat};
use tprof_os::sys;
use tprof_trace::model::ThreadState;
use tprof_unwind::modules::{AddressSpaces, ModuleLoad};
use tprof_wire::record::StackEnd;

/// Offset of the holder's tid in glibc's `pthread_mutex_t`.
const MUTEX_HOLDER: u64 = 8;

/// Number of further samples of a running thread whose stack could not be walked to its end. It may
/// have been in one of the few instructions for which no stack can be walked, such as those that
/// lead to a function of another library.
const MORE_SAMPLES: usize = 3;

/// What a thread does at one moment.
#[derive(Debug)]
pub struct SeenThread {
    /// Tid of the thread.
    pub tid: u32,
    /// The thread's name.
    pub name: String,
    /// The kernel's letter for its state: `R`, `S`, `D`, `T`, ….
    pub state: u8,
    /// What it waits for, if that is known.
    pub waits_for: Option<ThreadState>,
    /// The file or peer that it waits for, in words.
    pub target: Option<String>,
    /// The kernel's function in which it waits, if its system call does not show for what.
    pub kernel_function: Option<String>,
    /// The thread that holds the mutex that it waits for, if that is known.
    pub holder: Option<u32>,
    /// Whether it holds Python's lock; `None` if that is unknown, and for threads without Python.
    pub gil: Option<bool>,
    /// Its frames, innermost first.
    pub frames: Vec<Frame>,
    /// Whether its outermost frames are missing.
    pub is_cut: bool,
}

/// Reads threads, and remembers what it has read of their processes' files.
#[derive(Default)]
pub struct Looker {
    spaces: AddressSpaces,
    pythons: PythonProcesses,
    descriptors: Descriptors,
}

impl Looker {
    /// Reads up to `most` threads of a process, its main thread first. Threads that run are sampled
    /// only before `sampled_until`: each process may take 150 ms for that where processors are scarce.
    pub fn look(&mut self, pid: u32, most: usize, sampled_until: Instant) -> Vec<SeenThread> {
        self.spaces.read(pid, 0);
        let mut tids = proc::threads_of(pid);
        tids.sort_by_key(|tid| (*tid != pid, *tid));
        tids.truncate(most);
        let is_late = Instant::now() >= sampled_until;
        let is_running = |tid: &u32| {
            !is_late && Stat::of_thread(pid, *tid).is_some_and(|stat| stat.state() == b'R')
        };
        let mut running = running::sample(tids.iter().copied().filter(is_running));
        let mut sampled: Vec<u32> = running.keys().copied().collect();
        // The first reading of a thread with Python's frames tells where Python's lock is, which
        // must be known before the waits are judged.
        let read = tids.iter().filter_map(|tid| self.read(pid, *tid, running.remove(tid)));
        let mut read: Vec<_> = read.collect();
        for _ in 0..MORE_SAMPLES {
            let is_cut = |tid: &u32| read.iter().any(|(of, _)| of.tid == *tid && of.is_cut);
            sampled.retain(is_cut);
            if sampled.is_empty() || Instant::now() >= sampled_until {
                break;
            }
            let mut again = running::sample(sampled.iter().copied());
            for (thread, call) in &mut read {
                let Some(running) = again.remove(&thread.tid) else { continue };
                let other = self.read(pid, thread.tid, Some(running));
                if let Some(other) = other.filter(|(of, _)| of.frames.len() > thread.frames.len()) {
                    (*thread, *call) = other;
                }
            }
        }
        read.into_iter().map(|(thread, call)| self.judged(pid, &tids, thread, call)).collect()
    }

    /// Returns the modules that contain frames of the threads that were read.
    pub fn modules(&mut self) -> Vec<ModuleLoad> {
        std::mem::take(&mut self.spaces.loaded)
    }

    /// Reads one thread. `running` is a sample of it if it has just run.
    fn read(
        &mut self,
        pid: u32,
        tid: u32,
        running: Option<RunningThread>,
    ) -> Option<(SeenThread, Option<Call>)> {
        let stat = Stat::of_thread(pid, tid).filter(Stat::lives)?;
        let blocked = match running {
            Some(RunningThread { registers, stack }) => {
                Some(BlockedThread { registers: Some(registers), stack, ..Default::default() })
            }
            None => blocked::inspect(pid, tid, true),
        };
        let python = self.pythons.stack(pid, tid, &mut self.spaces);
        let BlockedThread { waits_for, call, descriptor, function, registers, stack } =
            blocked.unwrap_or_default();
        let (mut native, mut end) = (Vec::new(), StackEnd::OutsideStack);
        if let Some(registers) = registers.filter(|at| self.spaces.holds(pid, at.pc)) {
            end = unwind::walk(&mut self.spaces, pid, registers, &stack, &mut native);
        }
        let native = native.into_iter().map(Frame::Address).collect();
        let gil = python.as_ref().and_then(|python| python.gil);
        let (frames, is_cut) = match python {
            None => (native, end != StackEnd::Whole),
            Some(python) => {
                let cut = python.cut;
                let named = python.frames.into_iter().map(|f| (Frame::Python(f.named), f.entry));
                let is_loop = |frame: &Frame| match frame {
                    Frame::Address(at) => self.pythons.is_loop(pid, *at),
                    _ => false,
                };
                (merge(native, named, end == StackEnd::Whole, cut, is_loop), cut)
            }
        };
        let target = descriptor.and_then(|of| self.descriptors.name(pid, tid, of));
        let (name, state) = (stat.name().into_owned(), stat.state());
        let thread = SeenThread {
            tid,
            name,
            state,
            waits_for,
            target,
            kernel_function: function,
            holder: None,
            gil,
            frames,
            is_cut,
        };
        Some((thread, call))
    }

    /// Adds which lock a thread waits for.
    fn judged(
        &self,
        pid: u32,
        tids: &[u32],
        mut thread: SeenThread,
        call: Option<Call>,
    ) -> SeenThread {
        let Some(call) = call else { return thread };
        if call.futex().is_some_and(|at| self.pythons.is_lock(pid, at)) {
            thread.waits_for = Some(ThreadState::Gil);
        } else if let Some(mutex) = call.mutex() {
            let holder = word(pid, mutex + MUTEX_HOLDER);
            let is_other = |tid: &u32| *tid != thread.tid && tids.contains(tid);
            let is_locked = word(pid, mutex).is_some_and(|lock| lock != 0);
            thread.holder = holder.filter(|tid| is_locked && is_other(tid));
        }
        thread
    }
}

fn word(pid: u32, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    (sys::read_memory(pid, at, &mut bytes) == bytes.len()).then(|| u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_thread_that_waits_has_a_state_and_its_native_frames() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || {
            sender.send(sys::own_tid()).unwrap();
            std::io::Read::read(&mut reader, &mut [0]).unwrap()
        });
        let (pid, tid): (_, u32) = (std::process::id(), receiver.recv().unwrap());
        let mut looker = Looker::default();
        let seen = loop {
            let mut all = looker.look(pid, 256, Instant::now() + Duration::from_secs(60));
            let at = all.iter().position(|seen| seen.tid == tid).unwrap();
            if all[at].waits_for == Some(ThreadState::Io) {
                break all.swap_remove(at);
            }
            std::thread::yield_now();
        };
        drop(writer);
        assert_eq!(thread.join().unwrap(), 0);
        assert_eq!(seen.target.as_deref(), Some("a pipe"));
        assert!(matches!(seen.frames.first(), Some(Frame::Address(_))), "{seen:?}");
        assert!(looker.modules().iter().any(|load| load.pid == pid));
        assert_eq!((seen.holder, seen.gil), (None, None));
    }
}
