//! Notices that the engine was kept from its work.
//!
//! Meanwhile rings hold the first unread megabyte of each thread, and the rest is counted by
//! process. A program that begins then waits for five seconds once, and attaches when the
//! collector is back; its CUPTI agent doesn't try again, so that its device work and NVTX ranges
//! are named as not recorded.

use super::main_loop::Engine;
use tprof_trace::model::MarkKind;

impl Engine {
    /// Notices that the engine was kept from its work: it marks the time, and processes that
    /// got no answer meanwhile may come again.
    pub(super) fn notice_standstill(&mut self, now: u64) {
        let Some(last) = self.out.processes.losses.standstill.look(now) else { return };
        self.parts.socket.touch();
        let seconds = (now - last) as f64 / 1e9;
        self.mark_at(last, "the collector stands still", MarkKind::Mark);
        let text = format!("the collector goes on after {seconds:.1} s");
        self.mark_at(now, &text, MarkKind::Mark);
    }
}
