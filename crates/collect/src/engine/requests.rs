//! Handles requests to a live run: start, stop, mark, step, snapshot, write, where and
//! status.

use super::inbox::{Reply, Request};
use super::main_loop::Engine;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use tprof_os::sys;
use tprof_trace::model::MarkKind;

impl Engine {
    /// Marks this moment in every file.
    pub(super) fn mark(&mut self, name: &str, kind: MarkKind) {
        self.mark_at(sys::monotonic_ns(), name, kind);
    }

    /// Marks a moment in every file.
    pub(super) fn mark_at(&mut self, time_ns: u64, name: &str, kind: MarkKind) {
        for file in &mut self.out.files.open {
            file.writer.mark_named((None, time_ns), kind, name);
        }
    }

    /// Carries out a request of a program or of `tprof ctl`, and replies now or later.
    pub(super) fn control(&mut self, request: Request, to: Sender<Reply>) {
        let on = self.parts.session.page().off.load(Relaxed) == 0;
        let done = |message: &str| Reply::new(true, message.to_owned());
        let reply = match request {
            Request::Write { until_ns } => return self.add_write_request(until_ns, to),
            Request::Start if on && self.recording.steps.is_none() => {
                done("recording is on already")
            }
            Request::Steps { count, first, asker } => self.start_steps(count, first, asker, on),
            Request::Start => {
                self.end_counting();
                self.end_steps();
                self.switch(true, "tprof ctl start");
                done("recording is on")
            }
            Request::Stop if !on => done("recording is off already"),
            Request::Stop => {
                self.recording.counted_ns = None;
                self.stop_steps("tprof ctl stop");
                done("recording is off")
            }
            Request::Mark { name } => {
                self.mark(&name, MarkKind::Mark);
                done("marked")
            }
            Request::Step { number } => self.step(number),
            Request::Dump { name, why, rule } => self.dump(name, why, rule),
            Request::Status => Reply::with(self.status(on)),
            Request::EndJob => Reply::new(false, "the engine ends no job".to_owned()),
            Request::Where => match serde_json::to_value(self.standstill()) {
                Ok(state) => Reply::with(state),
                Err(error) => Reply::new(false, error.to_string()),
            },
        };
        let _ = to.send(reply);
    }

    /// Writes the waiting rows, and returns the numbers that `tprof ctl status` shows.
    fn status(&mut self, on: bool) -> serde_json::Value {
        self.flush(sys::monotonic_ns());
        self.refresh_info();
        let seconds = (sys::monotonic_ns() - self.parts.info.start_ns) as f64 / 1e9;
        let mut status = serde_json::json!({
            "recording": on,
            "steps": self.targets.values().map(|target| target.steps()).max().unwrap_or(0),
            "counted_steps": self.counted_steps(),
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
        });
        if let Some((option, kept_ns)) = self.kept(sys::monotonic_ns()) {
            status["keep"] = option.into();
            status["kept_ns"] = kept_ns.into();
        }
        status
    }
}
