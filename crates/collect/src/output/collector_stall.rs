//! Detects that the collector did not run for long. It may have been stopped by a signal, its
//! machine suspended, its cgroup frozen, or a disk may have blocked it.

/// If two passes are further apart than this, the collector stood still, ns. A pass and its sleep
/// take less time on any machine.
const STANDSTILL_NS: u64 = 1_000_000_000;
/// Time after a standstill in which rings may still be full because of it, ns.
const CATCHING_UP_NS: u64 = 300_000_000;

/// Detects standstills of the engine, from the times of its passes.
#[derive(Default)]
pub struct CollectorStall {
    looked_at: u64,
    catching_up_until: u64,
}

impl CollectorStall {
    /// Whether a standstill caused the losses that are found at this moment. The standstill may not
    /// have been noticed yet, because the engine may have stood still since its last pass.
    pub fn explains(&self, now: u64) -> bool {
        now < self.catching_up_until
            || self.looked_at != 0 && now.saturating_sub(self.looked_at) >= STANDSTILL_NS
    }

    /// Notes a pass. If it ends a standstill, returns the time of the pass before.
    pub fn look(&mut self, now: u64) -> Option<u64> {
        let last = std::mem::replace(&mut self.looked_at, now);
        if last == 0 || now.saturating_sub(last) < STANDSTILL_NS {
            return None;
        }
        self.catching_up_until = now + CATCHING_UP_NS;
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_explains_losses_until_the_rings_are_read() {
        let mut standstill = CollectorStall::default();
        let second = 1_000_000_000;
        assert_eq!((standstill.look(second), standstill.explains(second)), (None, false));
        assert_eq!(standstill.look(second + 10_000_000), None);
        assert!(!standstill.explains(second + 20_000_000));
        assert!(standstill.explains(4 * second), "the standstill is not noticed yet");
        assert_eq!(standstill.look(4 * second), Some(second + 10_000_000));
        assert_eq!(standstill.look(4 * second + 10_000_000), None);
        assert!(standstill.explains(4 * second + 20_000_000), "rings may still be full");
        assert_eq!(standstill.look(5 * second - 1), None);
        assert!(!standstill.explains(5 * second - 1));
    }
}
