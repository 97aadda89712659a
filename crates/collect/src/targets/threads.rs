//! Finds the threads of a target that have ended, and frees their slots.

use super::target::{End, Target};
use crate::output::destination::Output;
use std::sync::atomic::Ordering::Acquire;
use tprof_os::{proc, sys};
use tprof_wire::region::slot_state;

/// One of a target's two regions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Hooks,
    Agent,
}

impl Target {
    /// Finds threads that have ended, and frees their slots.
    pub fn reap_threads(&mut self, out: &mut Output, now: u64) {
        if !self.watched && self.end.is_none() && !proc::lives(self.pid) {
            self.end = Some(End { time_ns: now, status: None, pidfd: None, exec: false });
        }
        self.count_lost_children(out);
        let all = now - self.threads_checked_ns > 1_000_000_000;
        if all {
            self.threads_checked_ns = now;
        }
        for of in [Side::Hooks, Side::Agent] {
            self.retire_threads(of, all, out, now);
        }
    }

    /// Retires the ended threads of one of the two regions. If `all` is set, asks the kernel about
    /// every thread; otherwise only about threads that have announced their end.
    fn retire_threads(&mut self, of: Side, all: bool, out: &mut Output, now: u64) {
        let mut at = 0;
        loop {
            let image = match of {
                Side::Hooks => Some(&self.hooks),
                Side::Agent => self.agent.as_ref(),
            };
            let Some(thread) = image.and_then(|image| image.threads.get(at)) else { return };
            let Some(image) = image else { return };
            let ending = image.region.slot(thread.slot).state.load(Acquire) == slot_state::ENDING;
            let gone = if self.cpu_rows.threads.has_kernel_tids() {
                (ending || all) && self.end.is_none() && !sys::thread_lives(self.pid, thread.tid)
            } else {
                thread.ended.is_some_and(|ended| now.saturating_sub(ended) > 2_000_000_000)
            };
            if !gone || image.threads.len() <= 1 {
                at += 1;
                continue;
            }
            // The thread has ended, so its last records are in its ring now.
            let ([hooks, agent], mut sink) = self.split(out);
            let image = match of {
                Side::Hooks => hooks,
                Side::Agent => agent,
            };
            let Some(image) = image else { return };
            image.drain_ended_thread(at, sink.clock, now, &mut sink);
            let thread = image.retire(at);
            self.count_lost_records(out);
            if of == Side::Agent {
                continue;
            }
            self.cpu_rows.threads.ended(thread.index);
            if let Some(open) = out.files.open.get_mut(self.file) {
                let (end_ns, writer) = (thread.ended.unwrap_or(now), &mut open.writer);
                self.spans.thread_ended(thread.index, end_ns, &mut self.interned, writer);
                writer.thread_end(thread.index, end_ns);
            }
        }
    }
}
