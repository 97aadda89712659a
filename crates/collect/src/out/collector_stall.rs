//! Detects that the collector did not run for long: it was stopped by a signal, its machine was
//! suspended, its cgroup was frozen, or a disk blocked it.

/// Longest time between two passes that counts as progress. A pass and its sleep take less on any
/// machine.
const STANDSTILL_NS: u64 = 1_000_000_000;
/// Time after a standstill in which rings may still be full, ns.
const CATCHING_UP_NS: u64 = 300_000_000;

/// Detects standstills of the engine by the times of its passes.
#[derive(Default)]
pub struct CollectorStall {
    looked_at: u64,
    catching_up_until: u64,
}

impl CollectorStall {
    /// Whether losses that are found at this moment were caused by a standstill. The engine may
    /// have been stopped in the middle of anything, and may not have made a pass since.
    pub fn explains(&self, now: u64) -> bool {
        now < self.catching_up_until
            || self.looked_at != 0 && now.saturating_sub(self.looked_at) >= STANDSTILL_NS
    }

    /// Notes a pass. Returns the time of the last pass if that is long ago.
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
    fn a_standstill_explains_what_is_found_before_and_just_after_it_is_noticed() {
        let mut standstill = CollectorStall::default();
        let second = 1_000_000_000;
        assert_eq!((standstill.look(second), standstill.explains(second)), (None, false));
        assert_eq!(standstill.look(second + 10_000_000), None);
        assert!(!standstill.explains(second + 20_000_000));
        assert!(standstill.explains(4 * second), "not noticed yet");
        assert_eq!(standstill.look(4 * second), Some(second + 10_000_000));
        assert_eq!(standstill.look(4 * second + 10_000_000), None);
        assert!(standstill.explains(4 * second + 20_000_000), "catching up");
        assert_eq!(standstill.look(5 * second - 1), None);
        assert!(!standstill.explains(5 * second - 1));
    }
}
