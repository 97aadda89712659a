//! What the engine does when it was kept from its work for long: stopped by a signal, on a
//! suspended machine, in a frozen cgroup, or held up by a disk.

use super::Engine;
use tprof_trace::model::MarkKind;

/// Longer than a pass and its sleep take on any machine that gets on.
const STANDSTILL_NS: u64 = 1_000_000_000;

/// Rings are full for a moment longer.
const CATCHING_UP_NS: u64 = 300_000_000;

impl Engine {
    /// Notices that the last look at the clock was long ago: what was lost since is due to
    /// that, and processes that nobody answered meanwhile may come again.
    pub(super) fn notice_standstill(&mut self, now: u64) {
        let last = std::mem::replace(&mut self.state.looked_at, now);
        if last == 0 || now.saturating_sub(last) < STANDSTILL_NS {
            return;
        }
        self.story.stood_still = true;
        self.state.still_until = now + CATCHING_UP_NS;
        self.door.touch();
        let seconds = (now - last) as f64 / 1e9;
        self.mark_at(last, "the collector stands still", MarkKind::Mark);
        let text = format!("the collector goes on after {seconds:.1} s");
        self.mark_at(now, &text, MarkKind::Mark);
    }
}
