//! Detects that the collector was kept from its work for long: stopped by a signal, on a suspended
//! machine, in a frozen cgroup, or held up by a disk.

/// Longer than a pass and its sleep take on any machine that makes progress.
const STANDSTILL_NS: u64 = 1_000_000_000;
/// Rings are full for a moment longer.
const CATCHING_UP_NS: u64 = 300_000_000;

/// Detects by the times of its passes whether the engine makes progress.
#[derive(Default)]
pub struct CollectorStall {
    looked_at: u64,
    catching_up_until: u64,
}

impl CollectorStall {
    /// Whether losses that are found at this moment happened while the engine stood still: it may
    /// have been stopped in the middle of anything, without a pass since.
    pub fn explains(&self, now: u64) -> bool {
        now < self.catching_up_until
            || self.looked_at != 0 && now.saturating_sub(self.looked_at) >= STANDSTILL_NS
    }

    /// Notes a pass; the time of the last one, if that is long ago.
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
