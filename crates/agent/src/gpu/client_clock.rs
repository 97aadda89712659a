//! Converts times to the clock that the other client chose for its records
//! (`cuptiActivityRegisterTimestampCallback`; Kineto registers the processor's ticks).
//!
//! CUPTI demands that a clock is chosen before any kind is enabled, and the agent's kinds are
//! always enabled. So CUPTI keeps its own clock. The times in the client's copies are converted by
//! linear interpolation between readings of both clocks.

use super::cupti::Cupti;
use super::guarded::Guarded;
use tprof_cupti_sys::CUPTI_SUCCESS;

type Clock = unsafe extern "C" fn() -> u64;

/// Number of readings that are stored. Each delivered buffer adds one.
const KEPT: usize = 64;

/// The client's clock, with pairs of readings of CUPTI's clock and of the client's.
#[derive(Clone, Copy)]
pub struct ClientClock {
    clock: Option<Clock>,
    count: usize,
    readings: [[u64; 2]; KEPT],
}

static CHOSEN: Guarded<ClientClock> =
    Guarded::new(ClientClock { clock: None, count: 0, readings: [[0; 2]; KEPT] });

/// Uses a client's clock from now on.
pub fn choose(clock: Clock) {
    CHOSEN.with(|chosen| {
        if chosen.clock.map(|known| known as usize) != Some(clock as usize) {
            chosen.count = 0;
        }
        chosen.clock = Some(clock);
    });
}

/// Goes back to CUPTI's own clock. Returns the clock that the client had chosen.
pub fn forget() -> Option<Clock> {
    CHOSEN.with(|chosen| chosen.clock.take())
}

/// A copy of the current state, with which to convert times.
pub fn chosen() -> ClientClock {
    CHOSEN.with(|chosen| *chosen)
}

fn clock() -> Option<Clock> {
    CHOSEN.with(|chosen| chosen.clock)
}

/// The current time on the client's clock; `None` if the client uses CUPTI's clock.
pub fn now() -> Option<u64> {
    // SAFETY: the client registered this function so that CUPTI can call it at any time, on any
    // thread.
    clock().map(|clock| unsafe { clock() })
}

/// Reads the client's clock between two readings of CUPTI's clock, three times, and stores the
/// attempt with the shortest distance between these two.
pub fn read(cupti: &Cupti) {
    let Some(clock) = clock() else { return };
    let mut best = (u64::MAX, [0, 0]);
    for _ in 0..3 {
        let (mut before, mut after) = (0, 0);
        // SAFETY: `cuptiGetTimestamp` writes to locals. The client registered its function so that
        // it can be called at any time.
        let (results, theirs) = unsafe {
            let first = (cupti.timestamp)(&raw mut before);
            let theirs = clock();
            ([first, (cupti.timestamp)(&raw mut after)], theirs)
        };
        let width = after.wrapping_sub(before);
        if results == [CUPTI_SUCCESS; 2] && width < best.0 {
            best = (width, [before + width / 2, theirs]);
        }
    }
    if best.0 == u64::MAX {
        return;
    }
    CHOSEN.with(|chosen| {
        // Another thread may have chosen a different clock in the meantime.
        if chosen.clock.map(|known| known as usize) == Some(clock as usize)
            && let Some(place) = chosen.readings.get_mut(chosen.count % KEPT)
        {
            *place = best.1;
            chosen.count += 1;
        }
    });
}

impl ClientClock {
    /// Converts a time of CUPTI's to the client's clock. Times that were not measured stay
    /// unchanged, and so do all times if the client uses CUPTI's clock.
    pub fn theirs(&self, cupti_ns: u64) -> u64 {
        if self.clock.is_none() || cupti_ns == 0 || cupti_ns == u64::MAX {
            return cupti_ns;
        }
        let reading = |at: usize| self.readings.get(at % KEPT).copied().unwrap_or_default();
        let mut at = self.count;
        // Finds the readings before and after the time. For a time outside of all readings, uses
        // the nearest two.
        while at > self.count.saturating_sub(KEPT) + 2 && reading(at - 2)[0] > cupti_ns {
            at -= 1;
        }
        match at {
            0 => cupti_ns,
            1 => reading(0)[1].wrapping_add(cupti_ns.wrapping_sub(reading(0)[0])),
            _ => on_line(reading(at - 2), reading(at - 1), cupti_ns),
        }
    }
}

fn on_line([ours, theirs]: [u64; 2], [ours_after, theirs_after]: [u64; 2], time: u64) -> u64 {
    let passed = ours_after.wrapping_sub(ours) as i64;
    if passed <= 0 {
        return theirs_after.wrapping_add(time.wrapping_sub(ours_after));
    }
    // The values are far below 2^53, since two readings are at most hours apart, and the result is
    // rounded to a unit. (A 128-bit division would pull in a library.)
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
        // The clock was set back between the readings, so the result is relative to the later
        // reading.
        assert_eq!(on_line(two, one, 1_010), 60);
    }
}
