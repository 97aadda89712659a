//! Handles requests to a live run: start, stop, mark, step, snapshot, write and status.

use super::inbox::{Reply, Request};
use super::main_loop::Engine;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::mpsc::Sender;
use tprof_os::sys;
use tprof_trace::model::{Mark, MarkKind};

impl Engine {
    /// Switches recording on or off, unless it is so already. Marks that in every file, and notes
    /// that totals have a gap.
    pub(super) fn switch(&mut self, on: bool, why: &str) {
        match on {
            true => self.set_off(0, why, MarkKind::RecordingOn),
            false => self.stop(self.parts.config.session_off(), why),
        }
    }

    /// Switches recording off for these reasons, bits of [`tprof_wire::region::off`].
    pub(super) fn stop(&mut self, reasons: u32, why: &str) {
        self.set_off(reasons, why, MarkKind::RecordingOff);
    }

    fn set_off(&mut self, off: u32, why: &str, mark: MarkKind) {
        let page = self.parts.session.page();
        if (page.off.load(Relaxed) == 0) == (off == 0) {
            return;
        }
        // The sampler is told first, so that it misses as little as possible of the first step.
        let sampler = self.parts.sampler.as_ref();
        if let Some(sampler) = sampler.filter(|_| off == 0) {
            sampler.pause(false);
        }
        if off != 0 {
            self.recording.off_since_ns = sys::monotonic_ns();
        }
        page.off.store(off, SeqCst);
        if let Some(sampler) = sampler.filter(|_| off != 0) {
            sampler.pause(true);
        }
        let now = sys::monotonic_ns();
        for target in self.targets.values_mut() {
            target.switch(off);
            target.observe_heap(&mut self.out, now);
        }
        self.recording.always_on = false;
        self.mark(why, mark);
    }

    /// Marks this moment in every file.
    pub(super) fn mark(&mut self, name: &str, kind: MarkKind) {
        self.mark_at(sys::monotonic_ns(), name, kind);
    }

    /// Marks a moment in every file.
    pub(super) fn mark_at(&mut self, time_ns: u64, name: &str, kind: MarkKind) {
        for file in &mut self.out.files.open {
            let name = file.writer.name(name);
            file.writer.mark(Mark { time_ns, process: None, name, kind });
        }
    }

    /// Carries out a request of a program or of `tprof ctl`, and replies now or later.
    pub(super) fn control(&mut self, request: Request, to: Sender<Reply>) {
        let on = self.parts.session.page().off.load(Relaxed) == 0;
        let done = |message: &str| Reply::new(true, message.to_owned());
        let reply = match request {
            Request::Write { until_ns } => return self.write_until(until_ns, to),
            Request::Start if on && self.recording.steps.is_none() => {
                done("recording is on already")
            }
            Request::Steps { count, first } => self.start_steps(count, first, on),
            Request::Start => {
                self.end_steps();
                self.switch(true, "tprof ctl start");
                done("recording is on")
            }
            Request::Stop if !on => done("recording is off already"),
            Request::Stop => {
                self.stop_steps("tprof ctl stop");
                done("recording is off")
            }
            Request::Mark { name } => {
                self.mark(&name, MarkKind::Mark);
                done("marked")
            }
            Request::Step { number } => self.step(number),
            Request::Snapshot => self.snapshot(),
            Request::Status => Reply::with(self.status(on)),
        };
        let _ = to.send(reply);
    }

    /// Writes everything that has arrived into the files, for a report of the live run.
    fn snapshot(&mut self) -> Reply {
        let now = sys::monotonic_ns();
        self.pass(now);
        self.flush(now);
        let status = serde_json::json!({ "time_ns": now - self.parts.info.start_ns });
        Reply::with(status)
    }

    /// Writes the waiting rows, and returns the numbers that `tprof ctl status` shows.
    fn status(&mut self, on: bool) -> serde_json::Value {
        self.flush(sys::monotonic_ns());
        self.refresh_info();
        let seconds = (sys::monotonic_ns() - self.parts.info.start_ns) as f64 / 1e9;
        serde_json::json!({
            "recording": on,
            "steps": self.targets.values().map(|target| target.steps()).max().unwrap_or(0),
            "following": self.ending.follows,
            "seconds": seconds,
            "processes": self.targets.values().filter(|image| image.end.is_none()).count(),
            "threads": self.targets.values().map(|t| t.hooks.threads.len()).sum::<usize>(),
            "recorded": self.parts.info.completeness.recorded,
            "samples": self.parts.info.completeness.samples,
            "events_per_second": self.parts.info.completeness.recorded as f64 / seconds.max(1e-9),
            "lost": self.parts.info.completeness.lost,
            "bytes": self.out.files.bytes(),
            "wait_ns": self.parts.info.overhead.wait_ns,
            "collector_cpu_ns": self.parts.info.overhead.collector_cpu_ns,
        })
    }
}
