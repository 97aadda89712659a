//! Samples what threads do, from outside: perf events of the whole process
//! tree, read and unwound on a thread of their own.
//!
//! The kernel interrupts a thread that runs, copies its registers and the top of
//! its stack, and goes on: nothing is stopped, nothing is loaded into the job,
//! and the job cannot tell. What a thread does while it waits follows from the
//! records of it leaving its processor.

mod blocked;
mod call;
pub mod counters;
mod events;
mod polled;
mod probe;
mod rows;
mod spaces;
mod threads;
mod unwind;
mod worker;

pub use counters::Wanted;
use probe::why_kernel_names_are_hidden;
pub use probe::{Permitted, permitted};
pub use spaces::Met;
pub(crate) use spaces::Spaces;
pub use threads::{Counts, Kind};

use crate::config::PerfEvent;
use crate::os::proc;
use crate::os::sys;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tprof_trace::model::ThreadState;

/// How long the launcher waits for counters to be open.
const OPEN_TIME: Duration = Duration::from_secs(2);
/// Samples a second by default: not a divisor of what timers use.
pub const DEFAULT_RATE: u32 = 99;

/// Most samples a second that the kernel grants.
pub fn highest_rate() -> u32 {
    let most = proc::setting("kernel/perf_event_max_sample_rate");
    most.and_then(|most| most.parse().ok()).unwrap_or(100_000)
}

/// What was counted of a thread until it ended, or the sampler.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// When.
    pub time_ns: u64,
    /// Switches; `None` if records of them were lost.
    pub counts: Option<Counts>,
    /// Minor and major page faults, if they are known.
    pub faults: Option<[u64; 2]>,
}

/// A sample, or a stretch of time without one.
#[derive(Clone, Debug)]
pub struct Taken {
    /// When.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Time that it stands for.
    pub weight_ns: u64,
    /// What the thread did.
    pub kind: Kind,
    /// What it waited for, if its system call told.
    pub waits_for: Option<ThreadState>,
    /// Processor, of a sample.
    pub cpu: Option<u32>,
    /// Whether it held Python's lock, where that is known.
    pub gil: Option<bool>,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// Why the frames end: a [`tprof_wire::record::StackEnd`].
    pub end: u8,
    /// What it tells.
    pub told: Told,
}

impl Taken {
    /// Of a thread that ran, and nothing else.
    fn of(pid: u32, tid: u32, time_ns: u64, told: Told) -> Taken {
        Taken {
            time_ns,
            pid,
            tid,
            weight_ns: 0,
            kind: Kind::Ran,
            waits_for: None,
            cpu: None,
            gil: None,
            frames: Vec::new(),
            end: 0,
            told,
        }
    }
}

/// What a [`Taken`] tells.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    /// What a thread did for a while.
    Time,
    /// What was counted of it so far.
    Counted(Counted),
    /// So many events since the last such row of the thread.
    Events(PerfEvent, u64),
}

/// One frame of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// A return address.
    Address(u64),
    /// An address in the kernel.
    Kernel(u64),
    /// A function of the kernel, by its name.
    KernelFunction(Arc<str>),
    /// A function of an interpreter.
    Named(Arc<Named>),
}

/// A function of an interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    /// Its name.
    pub function: String,
    /// Its file.
    pub file: String,
    /// The line that it was at.
    pub line: u32,
}

/// What the sampler tells.
#[derive(Debug)]
pub enum Heard {
    /// A process began by a fork, at a time.
    Forked {
        /// The child.
        pid: u32,
        /// Its parent.
        parent: u32,
        /// When.
        time_ns: u64,
    },
    /// A process runs another program since.
    Replaced(u32, u64),
    /// A process is gone since.
    Ended(u32, u64),
    /// A thread was given a name.
    Named(u32, u32, u64, String),
    /// A module that samples lie in.
    Met(Met),
    /// Samples, nearly in order.
    Taken(Vec<Taken>),
    /// Something was lost: what, why, how many.
    Lost(&'static str, &'static str, u64),
    /// For which share of the time events were counted.
    EventShares(Vec<(PerfEvent, f64)>),
    /// The kernel was sampled, but its functions have no names; why.
    KernelNamesHidden(String),
    /// Something cannot be seen: of whom (empty: of all), what, why.
    Missing(String, &'static str, String),
}

enum Command {
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

/// A running sampler.
pub struct Sampler {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    /// All that happened until then was handed out.
    until_ns: Arc<AtomicU64>,
    /// Perf events are refused: processes are looked at instead.
    polls: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sampler {
    /// Starts it. What it hears goes through `heard`.
    pub fn start(wanted: Wanted, heard: Box<dyn Fn(Heard) + Send>) -> io::Result<Sampler> {
        let (commands, orders) = channel();
        let wake = Arc::new(sys::eventfd()?);
        let until_ns = Arc::new(AtomicU64::new(0));
        let polls = Arc::new(AtomicBool::new(false));
        let parts = worker::Parts {
            wanted,
            orders,
            heard,
            wake: Arc::clone(&wake),
            until_ns: Arc::clone(&until_ns),
            polls: Arc::clone(&polls),
        };
        let named = std::thread::Builder::new().name("tprof-sampler".to_owned());
        let thread = named.spawn(move || worker::run(parts))?;
        Ok(Sampler { commands, wake, until_ns, polls, thread: Mutex::new(Some(thread)) })
    }

    fn tell(&self, command: Command) {
        let _ = self.commands.send(command);
        sys::signal_eventfd(self.wake.as_raw_fd());
    }

    /// Watches a process that waits to be let go, from its exec on.
    pub fn launch(&self, pid: u32) {
        let (done, wait) = channel();
        self.tell(Command::Launch(pid, done));
        let _ = wait.recv_timeout(OPEN_TIME);
    }

    /// Watches processes that run already.
    pub fn attach(&self, pids: Vec<u32>) -> Result<(), String> {
        let (done, wait): (_, Receiver<Result<(), String>>) = channel();
        self.tell(Command::Attach(pids, done));
        wait.recv_timeout(OPEN_TIME).unwrap_or_else(|_| Err("the sampler did not answer".into()))
    }

    /// Watches a process that attached by itself, unless it is watched already.
    pub fn cover(&self, pid: u32) {
        self.tell(Command::Cover(pid));
    }

    /// Whether perf events are refused, so that processes are looked at instead.
    pub fn polls(&self) -> bool {
        self.polls.load(Acquire)
    }

    /// A process attached that a launched one started: nobody else tells of it where
    /// perf events are refused.
    pub fn met(&self, pid: u32) {
        self.tell(Command::Met(pid));
    }

    /// Until when everything was handed out.
    pub fn until_ns(&self) -> u64 {
        self.until_ns.load(Acquire)
    }

    /// Asks for what there is, now.
    pub fn hurry(&self) {
        self.tell(Command::Drain);
    }

    /// Hands out everything and ends.
    pub fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.tell(Command::Finish);
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.finish();
    }
}
