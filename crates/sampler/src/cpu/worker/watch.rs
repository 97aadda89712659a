//! Begins to sample processes: opens their counters, or reads them from `/proc` if the kernel
//! refuses counters.

use super::super::refusal::why_refused;
use super::super::sample::SamplerEvent;
use super::queued_record::{QueuedEvent, QueuedRecord};
use super::{Watched, Worker};
use std::sync::atomic::Ordering::Release;
use tprof_os::proc::{self, Stat};
use tprof_os::sys;

impl Worker {
    /// Handles the result of opening counters. Everything that the kernel refuses is reported once.
    fn opened(&mut self, result: std::io::Result<()>) -> Result<(), String> {
        for (event, why) in self.counters.refused_events.drain(..) {
            (self.emit)(SamplerEvent::Missing(String::new(), event.name(), why));
        }
        if let Err(e) = result {
            return Err(why_refused(&e));
        }
        if self.counters.kernel_refused.is_some() && !self.refusal_explained {
            self.refusal_explained = true;
            let level = proc::setting("kernel/perf_event_paranoid").unwrap_or_default();
            (self.emit)(SamplerEvent::Missing(
                String::new(),
                "kernel frames, and where threads wait",
                format!(
                    "kernel.perf_event_paranoid is {level}; `sysctl kernel.perf_event_paranoid=1` \
                     or CAP_PERFMON permits them",
                ),
            ));
        }
        self.suspend_threads(sys::monotonic_ns());
        Ok(())
    }

    /// Samples a process from its next exec on.
    pub(super) fn launch(&mut self, pid: u32) {
        let result = self.counters.open(&self.wanted, &[pid], true);
        self.mapped_ns = sys::monotonic_ns();
        match self.opened(result) {
            Ok(()) => {
                self.watched = match self.watched {
                    Watched::Nobody => Watched::OneLaunched,
                    _ => Watched::Others,
                };
                self.spaces.replaced(pid);
            }
            // The next reading will notice the exec.
            Err(why) if self.fall_back_to_polling(pid, 0, &why) => {
                self.polling.is_on.store(true, Release)
            }
            Err(why) => (self.emit)(SamplerEvent::Missing(String::new(), "CPU samples", why)),
        }
    }

    /// Samples running processes. What they did since `since_ns` counts.
    pub(super) fn attach(&mut self, pids: &[u32], since_ns: u64) -> Result<(), String> {
        let mut result = Err("the process is gone".to_owned());
        for pid in pids {
            // Records that are still in the rings may show that the process is sampled through its
            // parent.
            self.drain();
            let began = |w: &QueuedRecord| matches!(w.what, QueuedEvent::Forked { pid: child, .. } if child == *pid);
            if self.spaces.knows(*pid) || self.waiting.iter().any(began) {
                result = Ok(());
                continue;
            }
            let tids = proc::threads_of(*pid);
            let opened = self.counters.open(&self.wanted, &tids, false);
            if let Err(why) = self.opened(opened) {
                // The kernel also refuses counters of a process that is exiting but still in
                // `/proc`. Such a process has nothing left to sample, and its refusal says nothing
                // about other processes.
                let ends = Stat::of(*pid).is_none_or(|stat| stat.is_ending()) && tids.len() <= 1;
                if !ends && self.fall_back_to_polling(*pid, since_ns, &why) {
                    result = Ok(());
                    continue;
                }
                // If a child has ended meanwhile, the whole request must not fail.
                if result.is_err() {
                    result = Err(why);
                }
                continue;
            }
            result = Ok(());
            self.watched = Watched::Others;
            let now = sys::monotonic_ns();
            let parent = proc::parent_of(*pid).unwrap_or(0);
            (self.emit)(SamplerEvent::Forked { pid: *pid, parent, time_ns: since_ns });
            self.spaces.read(*pid, since_ns);
            self.mapped_ns = now;
            for tid in tids {
                let waits = Stat::of_thread(*pid, tid).is_some_and(|stat| stat.state() != b'R');
                self.threads.found(*pid, tid, now, waits);
            }
        }
        result
    }
}
