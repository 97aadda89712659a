//! Watches for a job that hangs, for `--on-hang`: no step and no operation between ranks for some
//! time, in ranks that had some and that do nothing else. What `tprof where` says is then written
//! into the run, once for each hang.

use super::asker::Asker;
use super::control;
use super::idle_times::IdleTimes;
use crate::config::OnHang;
use crate::engine::inbox::{Event, HangReport, Request};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tprof_hang::{Answer, HostState, Progress};
use tprof_os::proc;
use tprof_os::sys::{self, Signal};

/// Shortest and longest time between two readings.
const BETWEEN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// Number of readings within the time after which a job hangs.
const READINGS: u32 = 8;
/// Time that the job has to end by itself, between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// Largest number of hangs that are written into a run.
const MAX_HANGS: u32 = 100;

/// Watches the ranks of one collector.
pub struct HangWatch {
    /// When the job counts as hanging, and what happens then.
    pub option: OnHang,
    /// Directory of the run.
    pub run: PathBuf,
    /// The way to ask the engine.
    pub asker: Asker,
    /// Which ranks do something, for requests too.
    pub idle_times: Arc<Mutex<IdleTimes>>,
    /// Set when the run is over.
    pub stop: Arc<AtomicBool>,
    /// Set when this has ended the job.
    pub has_ended_job: Arc<AtomicBool>,
}

impl HangWatch {
    /// Watches until the run is over.
    pub fn run(self) {
        let [least, most] = BETWEEN;
        let between = (self.option.after / READINGS).clamp(least, most);
        let limit_ns = u64::try_from(self.option.after.as_nanos()).unwrap_or(u64::MAX);
        // The progress of the ranks at the last hang.
        let mut hung: Option<Vec<Progress>> = None;
        while !self.stop.load(Acquire) {
            std::thread::sleep(between);
            let Some(state) = self.state() else { continue };
            let progress: Vec<Progress> = state.ranks.iter().map(|rank| rank.progress()).collect();
            if hung.as_ref() == Some(&progress) || !state.hangs(limit_ns) {
                continue;
            }
            // Another host's ranks may still do something, for which these wait.
            let Ok(answer) = control::standstill(&self.run) else { continue };
            if answer.hangs(limit_ns) && !self.stop.load(Acquire) {
                self.report(&answer, &state);
                hung = Some(progress);
            }
        }
    }

    /// Returns the state of the ranks, and how long each has done nothing.
    fn state(&self) -> Option<HostState> {
        let status = self.asker.ask(&Request::Where)?.status?;
        let mut state: HostState = serde_json::from_value(status).ok()?;
        let now_ns = sys::monotonic_ns();
        let mut idle_times = self.idle_times.lock().ok()?;
        idle_times.read(&state, now_ns);
        idle_times.tell(&mut state, now_ns);
        Some(state)
    }

    fn report(&self, answer: &Answer, own: &HostState) {
        let ends = if self.option.stop { ", so tprof ends it" } else { "" };
        let (kind, text) = (answer.verdict.kind.words(), &answer.verdict.text);
        // The hosts come to the same verdict. The one with the rank that is to blame reports it.
        let first = answer.hosts.iter().flat_map(|host| &host.ranks).map(|rank| rank.rank).min();
        let about = answer.verdict.rank.or(first);
        if own.ranks.iter().any(|rank| Some(rank.rank) == about) {
            let file = write(&self.run, &answer.whole(self.option.after));
            let place = file.as_ref().map(|file| format!(" ({})", self.run.join(file).display()));
            let place = place.unwrap_or_default();
            let line = format!("tprof: the job hangs{ends}: {kind}: {text}{place}\n");
            // If standard error is gone, the run still has it.
            let _ = std::io::stderr().write_all(line.as_bytes());
            let limit = self.option.after;
            let verdict = answer.verdict.clone();
            self.asker.tell(Event::Hung(HangReport { rank: about, verdict, file, limit }));
        }
        if self.option.stop {
            self.end_job();
        }
    }

    /// Ends the job: asks all processes to end, and kills those that still run after a while.
    fn end_job(&self) {
        self.has_ended_job.store(true, Release);
        self.signal(Signal::SIGTERM);
        let until = Instant::now() + GRACE;
        while Instant::now() < until && self.live().iter().any(|pid| proc::lives(*pid)) {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        for pid in self.live() {
            let _ = sys::send_signal(pid, signal);
        }
    }

    /// Returns the job's processes: those that record, and the descendants of the command.
    fn live(&self) -> Vec<u32> {
        let asked = || self.asker.ask(&Request::Where)?.status;
        let state: Option<HostState> =
            asked().and_then(|status| serde_json::from_value(status).ok());
        let Some(state) = state else { return Vec::new() };
        let mut pids: Vec<u32> = state.root.map(proc::with_descendants).unwrap_or_default();
        pids.extend(state.processes);
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// Writes a report of a hang under the next free name, and returns the name. A run directory that
/// can't be written has none.
fn write(run: &Path, report: &serde_json::Value) -> Option<String> {
    for number in 1..=MAX_HANGS {
        let name = format!("hang-{number}.json");
        match File::options().write(true).create_new(true).open(run.join(&name)) {
            Ok(mut file) => {
                let text = serde_json::to_string_pretty(report).ok()? + "\n";
                return file.write_all(text.as_bytes()).is_ok().then_some(name);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(_) => return None,
        }
    }
    None
}
