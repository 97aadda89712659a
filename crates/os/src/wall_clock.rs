//! Checks whether the time of day can be trusted: whether a library changes it, and whether it was
//! set during a run.

use crate::sys;
use nix::time::ClockId;
use std::time::{SystemTime, UNIX_EPOCH};

const FAKETIME: &[u8] = b"libfaketime";
/// Smaller differences are not reported, because the clocks are read one after the other, ns.
const SLACK_NS: u64 = 1_000_000_000;

/// Whether a list of libraries (the value of `LD_PRELOAD`) contains libfaketime, which shows
/// programs another time.
pub fn is_faketime(libraries: &[u8]) -> bool {
    libraries.windows(FAKETIME.len()).any(|part| part == FAKETIME)
}

/// Returns a sentence that this number of programs saw another time; `None` for 0.
pub fn faketime_programs(count: u64) -> Option<String> {
    let them = match count {
        0 => return None,
        1 => "one program".to_owned(),
        many => format!("{many} programs"),
    };
    Some(format!(
        "libfaketime gave {them} other times than the machine's, by which all is recorded here"
    ))
}

/// The time of day at one moment, from different sources.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    /// The kernel's time, ns since 1970.
    pub unix_ns: u64,
    /// The C library's time, ns since 1970.
    seen_ns: u64,
    /// Time since the machine's boot, including time in which it slept, ns.
    boot_ns: u64,
}

impl WallClock {
    /// Reads the clocks now.
    pub fn now() -> WallClock {
        let seen = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seen_ns = seen.as_nanos() as u64;
        let kernel = |clock| sys::kernel_clock_ns(clock);
        WallClock {
            unix_ns: kernel(ClockId::CLOCK_REALTIME).unwrap_or(seen_ns),
            seen_ns,
            boot_ns: kernel(ClockId::CLOCK_BOOTTIME).unwrap_or(0),
        }
    }

    /// Returns a sentence if the C library's time differs from the kernel's, because a library
    /// changes it.
    pub fn faketime_note(&self) -> Option<String> {
        let off_ns = self.seen_ns.abs_diff(self.unix_ns);
        (off_ns > SLACK_NS).then(|| {
            format!(
                "a library in LD_PRELOAD (libfaketime?) puts tprof's clock {} {} the machine's: times \
                 of day here are the machine's, and durations are right only if that library leaves \
                 CLOCK_MONOTONIC as it is",
                seconds(off_ns),
                if self.seen_ns > self.unix_ns { "ahead of" } else { "behind" },
            )
        })
    }

    /// Returns a sentence if the clock was set between this moment and `later`.
    pub fn set_until(&self, later: &WallClock) -> Option<String> {
        let expected_ns = self.unix_ns + later.boot_ns.saturating_sub(self.boot_ns);
        let off_ns = later.unix_ns.abs_diff(expected_ns);
        (off_ns > SLACK_NS && self.boot_ns > 0 && later.boot_ns > 0).then(|| {
            format!(
                "the machine's time of day was set {} by {} during the run: times of day here go by its \
                 beginning",
                if later.unix_ns > expected_ns { "forward" } else { "back" },
                seconds(off_ns),
            )
        })
    }
}

fn seconds(ns: u64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_clock_that_was_not_changed_is_not_reported() {
        let begin = WallClock::now();
        assert_eq!((begin.faketime_note(), begin.set_until(&WallClock::now())), (None, None));
        // The machine slept for a night between these moments.
        let at = |unix_s: u64, boot_s: u64| WallClock {
            unix_ns: unix_s * S,
            seen_ns: unix_s * S,
            boot_ns: boot_s * S,
        };
        assert_eq!(at(1000, 10).set_until(&at(30_000, 29_010)), None);
    }

    #[test]
    fn a_faked_or_set_clock_is_reported() {
        let at = |unix_s: u64, boot_s: u64| WallClock {
            unix_ns: unix_s * S,
            seen_ns: (unix_s - 500) * S,
            boot_ns: boot_s * S,
        };
        let bent = at(1000, 10).faketime_note().unwrap();
        assert!(bent.contains("behind the machine's"), "{bent}");
        let back = at(1000, 10).set_until(&at(900, 20)).unwrap();
        assert!(back.contains("set back by 110.0 s"), "{back}");
        let forward = at(1000, 10).set_until(&at(5010, 20)).unwrap();
        assert!(forward.contains("set forward by 4000.0 s"), "{forward}");
    }
}
