//! Checks whether the time of day can be trusted, by tprof itself and over a run.

use super::sys;
use nix::time::ClockId;
use std::time::{SystemTime, UNIX_EPOCH};

const FAKETIME: &[u8] = b"libfaketime";
/// Smaller differences may come from reading one clock after the other, and are not reported.
const SLACK_NS: u64 = 1_000_000_000;

/// Whether a list of libraries (`LD_PRELOAD`) contains libfaketime, which changes the time of
/// programs.
pub fn is_faketime(libraries: &[u8]) -> bool {
    libraries.windows(FAKETIME.len()).any(|part| part == FAKETIME)
}

/// Returns a sentence about the number of programs that saw another time.
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

/// The time of day at one moment.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    /// The kernel's time, ns since 1970.
    pub unix_ns: u64,
    /// The C library's time, ns since 1970.
    seen_ns: u64,
    /// Time since the machine's boot, including its sleep, ns.
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

    /// Returns a sentence if a library makes the C library's time differ from the kernel's.
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

    /// Returns a sentence if the clock was set between this moment and a later one.
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
    fn a_clock_that_only_goes_on_is_no_matter() {
        let begin = WallClock::now();
        assert_eq!((begin.faketime_note(), begin.set_until(&WallClock::now())), (None, None));
        // The clocks look like this after a night in which the machine slept.
        let at = |unix_s: u64, boot_s: u64| WallClock {
            unix_ns: unix_s * S,
            seen_ns: unix_s * S,
            boot_ns: boot_s * S,
        };
        assert_eq!(at(1000, 10).set_until(&at(30_000, 29_010)), None);
    }

    #[test]
    fn a_clock_that_was_bent_or_set_is_said() {
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
