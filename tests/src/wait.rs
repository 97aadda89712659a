//! Waits until a condition holds.

use std::time::{Duration, Instant};

/// Waits until something holds, and fails the test if it doesn't within half a minute. On a loaded
/// machine, any fixed pause is too short for some run, and too long for most.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}
