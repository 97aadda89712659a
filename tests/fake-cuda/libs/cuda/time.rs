//! Reads the host's clock, and computes CUPTI's clock from it.

use std::sync::OnceLock;
use tprof_fake_cuda::number;

/// Returns the nanoseconds of CLOCK_MONOTONIC.
pub extern "C" fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid local variable to write to.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Difference {
    start: u64,
    offset: i64,
    drift_ppm: i64,
    step: i64,
    step_after: u64,
}

/// Returns CUPTI's time at a time of the host: CLOCK_REALTIME, unless `FAKE_CUPTI_*` changes it.
pub extern "C" fn stamp(ns: u64) -> u64 {
    static DIFFERENCE: OnceLock<Difference> = OnceLock::new();
    let d = DIFFERENCE.get_or_init(|| {
        let start = now();
        Difference {
            start,
            offset: read(libc::CLOCK_REALTIME) as i64 - start as i64
                + number("FAKE_CUPTI_OFFSET_NS", 0),
            drift_ppm: number("FAKE_CUPTI_DRIFT_PPM", 0),
            step: number("FAKE_CUPTI_STEP_NS", 0),
            step_after: number("FAKE_CUPTI_STEP_AFTER_NS", 0) as u64,
        }
    });
    let since = ns as i64 - d.start as i64;
    let drift = i128::from(since) * i128::from(d.drift_ppm) / 1_000_000;
    let step = if since as u64 > d.step_after && since > 0 { d.step } else { 0 };
    (ns as i64 + d.offset + drift as i64 + step) as u64
}

/// Waits until a time. Sleeps as long as sleeping is exact enough, and then spins.
pub fn until(end: u64) {
    const SHARP_NS: u64 = 150_000;
    loop {
        let left = end.saturating_sub(now());
        if left == 0 {
            return;
        }
        if left > SHARP_NS {
            std::thread::sleep(std::time::Duration::from_nanos(left - SHARP_NS));
        } else {
            std::thread::yield_now();
        }
    }
}
