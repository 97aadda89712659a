//! The clock that the other client chose for its records (`cuptiActivityRegisterTimestampCallback`;
//! Kineto registers the processor's ticks). CUPTI demands that it is chosen before any kind is
//! enabled, and the agent's always are, so CUPTI keeps its own clock, and the times of the
//! client's copies are converted: on straight lines between readings of both clocks.

use super::cupti::Cupti;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use tprof_cupti_sys::CUPTI_SUCCESS;

type Clock = unsafe extern "C" fn() -> u64;
static CLOCK: AtomicUsize = AtomicUsize::new(0);

/// Readings that are kept: one per delivered buffer.
const KEPT: usize = 64;
static COUNT: AtomicUsize = AtomicUsize::new(0);
static READINGS: [[AtomicU64; 2]; KEPT] = [const { [const { AtomicU64::new(0) }; 2] }; KEPT];

/// Takes a client's clock.
pub fn choose(clock: Clock, cupti: &Cupti) {
    if CLOCK.swap(clock as usize, AcqRel) != clock as usize {
        COUNT.store(0, Release);
    }
    read(cupti);
}

/// Back to CUPTI's own.
pub fn forget() {
    CLOCK.store(0, Release);
}

/// The client's clock now; none if it has CUPTI's.
pub fn now() -> Option<u64> {
    let clock = CLOCK.load(Acquire);
    // SAFETY: `choose` stored a function of this type.
    (clock != 0).then(|| unsafe { core::mem::transmute::<usize, Clock>(clock)() })
}

/// Reads both clocks, the client's between two readings of CUPTI's; the closest of three.
pub fn read(cupti: &Cupti) {
    let mut best = (u64::MAX, [0, 0]);
    for _ in 0..3 {
        let (mut before, mut after) = (0, 0);
        // SAFETY: places for the answers.
        let Some(theirs) =
            (unsafe { (cupti.timestamp)(&raw mut before) == CUPTI_SUCCESS }).then(now).flatten()
        else {
            return;
        };
        // SAFETY: as above.
        let result = unsafe { (cupti.timestamp)(&raw mut after) };
        let width = after.wrapping_sub(before);
        if result == CUPTI_SUCCESS && width < best.0 {
            best = (width, [before + width / 2, theirs]);
        }
    }
    if best.0 == u64::MAX {
        return;
    }
    let at = COUNT.load(Acquire);
    if let Some(place) = READINGS.get(at % KEPT) {
        for (to, from) in place.iter().zip(best.1) {
            to.store(from, Relaxed);
        }
        COUNT.store(at + 1, Release);
    }
}

/// CUPTI's time on the client's clock; as it is where the client has CUPTI's, and for times that
/// were not measured.
pub fn theirs(cupti_ns: u64) -> u64 {
    if CLOCK.load(Acquire) == 0 || cupti_ns == 0 || cupti_ns == u64::MAX {
        return cupti_ns;
    }
    let count = COUNT.load(Acquire);
    let reading = |at: usize| {
        let place = READINGS.get(at % KEPT);
        place.map_or([0, 0], |[ours, theirs]| [ours.load(Relaxed), theirs.load(Relaxed)])
    };
    let mut at = count;
    // The line through the reading after it and the one before that; beyond all, the last line.
    while at > count.saturating_sub(KEPT) + 2 && reading(at - 2)[0] > cupti_ns {
        at -= 1;
    }
    match at {
        0 => cupti_ns,
        1 => reading(0)[1].wrapping_add(cupti_ns.wrapping_sub(reading(0)[0])),
        _ => on_line(reading(at - 2), reading(at - 1), cupti_ns),
    }
}

fn on_line([ours, theirs]: [u64; 2], [ours_after, theirs_after]: [u64; 2], time: u64) -> u64 {
    let passed = ours_after.wrapping_sub(ours) as i64;
    if passed <= 0 {
        return theirs_after.wrapping_add(time.wrapping_sub(ours_after));
    }
    // Far below 2^53: the readings of a line lie hours apart at most, and the result is rounded
    // to a unit. (Division of 128 bits would bring in a library.)
    let rate = theirs_after.wrapping_sub(theirs) as i64 as f64 / passed as f64;
    let part = time.wrapping_sub(ours) as i64 as f64;
    theirs.wrapping_add_signed((part * rate) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_on_the_line_through_two_readings() {
        let (one, two) = ([1_000, 50], [2_000, 3_050]);
        assert_eq!(on_line(one, two, 1_500), 1_550);
        assert_eq!(on_line(one, two, 900), (50i64 - 300) as u64);
        assert_eq!(on_line(one, two, 2_100), 3_350);
        // The clock was set back between them: the distance to the later reading.
        assert_eq!(on_line(two, one, 1_010), 60);
    }
}
