//! Notices that the engine did not run for a while, for example because its process was stopped,
//! and marks the interval in the files.
//!
//! While the engine stands still, the ring of each thread stores the first unread megabyte, and
//! everything after that is counted as lost, per process. A program that begins in this time waits
//! for five seconds, once, and attaches when the collector runs again. Its CUPTI agent doesn't try
//! again, so the program's device work and NVTX ranges are reported as not recorded.

use super::main_loop::Engine;
use tprof_trace::model::MarkKind;

impl Engine {
    /// Notices whether the engine did not run for a while. If so, marks both ends of that time, and
    /// lets processes that got no answer meanwhile try again.
    pub(super) fn notice_standstill(&mut self, now: u64) {
        let Some(last) = self.out.processes.losses.standstill.look(now) else { return };
        self.parts.socket.touch();
        let seconds = (now - last) as f64 / 1e9;
        self.mark_at(last, "the collector stands still", MarkKind::Mark);
        let text = format!("the collector goes on after {seconds:.1} s");
        self.mark_at(now, &text, MarkKind::Mark);
    }
}
