//! Answers requests of `tprof ctl` and `tprof where`, however they came: the engine's part of it,
//! and what is done on the thread of the request.

use super::asker::Asker;
use super::standstill::Standstill;
use crate::engine::inbox::{Reply, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};
use tprof_hang::HostState;
use tprof_os::proc;
use tprof_os::sys::{self, Signal};

/// Time that the job has to end by itself, between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// Answers the requests of one collector.
pub struct Answerer {
    /// The way to ask the engine.
    pub asker: Asker,
    /// Reads what ranks do.
    pub standstill: Standstill,
    /// Set when the job was ended because it hung.
    pub has_ended_job: Arc<AtomicBool>,
}

impl Answerer {
    /// Returns the reply to a request; `None` if the engine has ended.
    pub fn answer(self: &Arc<Self>, request: &Request) -> Option<Reply> {
        match request {
            Request::Where => self.standstill.gather(|request| self.asker.ask(request)),
            Request::EndJob => Some(self.begin_to_end_job()),
            request => self.asker.ask(request),
        }
    }

    /// Returns the state of all ranks at once, with all of their threads.
    pub fn states_now(&self) -> Option<HostState> {
        self.standstill.gather_now(|request| self.asker.ask(request))
    }

    /// Ends the job on a thread of its own: asks all processes to end, and kills those that still
    /// run after a while.
    fn begin_to_end_job(self: &Arc<Self>) -> Reply {
        let ender = Arc::clone(self);
        let body = move || {
            ender.has_ended_job.store(true, Release);
            ender.signal(Signal::SIGTERM);
            let until = Instant::now() + GRACE;
            while Instant::now() < until && ender.live().iter().any(|pid| proc::lives(*pid)) {
                std::thread::sleep(Duration::from_millis(50));
            }
            ender.signal(Signal::SIGKILL);
        };
        match std::thread::Builder::new().name("tprof-end".to_owned()).spawn(body) {
            Ok(_) => Reply::new(true, "the job is being ended".to_owned()),
            Err(error) => Reply::new(false, error.to_string()),
        }
    }

    fn signal(&self, signal: Signal) {
        for pid in self.live() {
            let _ = sys::send_signal(pid, signal);
        }
    }

    /// Returns the job's processes: those that record, and the descendants of the command.
    fn live(&self) -> Vec<u32> {
        let status = self.asker.ask(&Request::Where).and_then(|reply| reply.status);
        let state = status.and_then(|status| serde_json::from_value::<HostState>(status).ok());
        let Some(state) = state else { return Vec::new() };
        let mut pids: Vec<u32> = state.root.map(proc::with_descendants).unwrap_or_default();
        pids.extend(state.processes);
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}
