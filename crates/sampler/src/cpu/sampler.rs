//! The engine's handle to the sampler, which starts the sampler's thread and sends commands to it.

use super::options::SamplingOptions;
use super::sample::{Interruptions, SamplerEvent};
use super::worker::{self, Command};
use nix::sys::eventfd::EventFd;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tprof_os::sys;

/// Longest time that the launcher waits until the sampler has opened its counters.
const OPEN_TIME: Duration = Duration::from_secs(2);
/// A running sampler.
pub struct CpuSampler {
    /// Number of times that the kernel interrupted the job's threads for the sampler.
    pub interruptions: Arc<Interruptions>,
    /// The options of sampling.
    pub wanted: SamplingOptions,
    commands: Sender<Command>,
    wake: Arc<EventFd>,
    /// The sampler has delivered everything up to this time, ns.
    until_ns: Arc<AtomicU64>,
    /// Whether perf events are refused, so that the sampler reads processes from `/proc` instead.
    polls: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CpuSampler {
    /// Starts the sampler. It passes its events to `emit`. When it has delivered everything that
    /// [`CpuSampler::deliver_now`] requested, it calls `settled`.
    pub fn start(
        wanted: SamplingOptions,
        emit: Box<dyn Fn(SamplerEvent) + Send>,
        settled: Box<dyn Fn() + Send>,
    ) -> io::Result<CpuSampler> {
        let (commands, orders) = channel();
        let wake = Arc::new(sys::eventfd()?);
        let until_ns = Arc::new(AtomicU64::new(0));
        let polls = Arc::new(AtomicBool::new(false));
        let interruptions = Arc::new(Interruptions::default());
        let parts = worker::SamplerParts {
            wanted: wanted.clone(),
            interruptions: Arc::clone(&interruptions),
            commands: orders,
            emit,
            settled,
            wake: Arc::clone(&wake),
            until_ns: Arc::clone(&until_ns),
            polls: Arc::clone(&polls),
        };
        let named = std::thread::Builder::new().name("tprof-sampler".to_owned());
        let thread = named.spawn(move || worker::run(parts))?;
        let thread = Mutex::new(Some(thread));
        Ok(CpuSampler { interruptions, wanted, commands, wake, until_ns, polls, thread })
    }

    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
        // The write fails only if the eventfd's counter is full, and then the sampler is woken as
        // well.
        let _ = self.wake.write(1);
    }

    /// Samples a process that has not started its program yet, from its next exec on.
    pub fn launch(&self, pid: u32) {
        let (done, wait) = channel();
        self.send(Command::Launch(pid, done));
        let _ = wait.recv_timeout(OPEN_TIME);
    }

    /// Samples processes that are already running.
    pub fn attach(&self, pids: Vec<u32>) -> Result<(), String> {
        let (done, wait): (_, Receiver<Result<(), String>>) = channel();
        self.send(Command::Attach(pids, done));
        wait.recv_timeout(OPEN_TIME).unwrap_or_else(|_| Err("the sampler did not answer".into()))
    }

    /// Samples a process that attached on its own, unless it is sampled already.
    pub fn watch_attached(&self, pid: u32) {
        self.send(Command::WatchAttached(pid));
    }

    /// Whether perf events are refused, so that the sampler reads processes from `/proc` instead.
    pub fn polls(&self) -> bool {
        self.polls.load(Acquire)
    }

    /// Samples a process that attached and that belongs to a launched job. If perf events are
    /// refused, nothing else tells the sampler about such a process.
    pub fn poll_attached(&self, pid: u32) {
        self.send(Command::PollAttached(pid));
    }

    /// Stops the samples while recording is off, or starts them again.
    pub fn pause(&self, is_paused: bool) {
        self.send(Command::Pause(is_paused));
    }

    /// Takes so many samples per second from now on, 0 for none, if the run's options pause the
    /// sampler. [`SamplerEvent::RateChanged`] has the rate that the machine permits.
    pub fn change_rate(&self, rate: u32) {
        self.send(Command::ChangeRate(rate));
    }

    /// Returns the time up to which the sampler has delivered everything, ns.
    pub fn until_ns(&self) -> u64 {
        self.until_ns.load(Acquire)
    }

    /// Asks the sampler to deliver everything up to now, and returns that time.
    /// [`CpuSampler::until_ns`] reaches it when that is done.
    pub fn deliver_now(&self) -> u64 {
        let now = sys::monotonic_ns();
        self.send(Command::Drain(now));
        now
    }

    /// Makes the sampler deliver everything and end, and waits for that.
    pub fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.send(Command::Finish);
            let _ = thread.join();
        }
    }
}

impl Drop for CpuSampler {
    fn drop(&mut self) {
        self.finish();
    }
}
