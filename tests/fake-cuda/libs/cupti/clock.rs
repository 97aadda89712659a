//! Converts times to the clock that a client chose for its records, with two readings of that clock
//! and of CUPTI's own.

use crate::{KINDS, complain, enter, lock};
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tprof_cupti_sys::bindings::*;
use tprof_fake_cuda::engine;

type Clock = unsafe extern "C" fn() -> u64;

/// A clock that a client chose: one instant on CUPTI's own clock and on this clock, and this
/// clock's rate.
#[derive(Clone, Copy)]
struct Chosen {
    own: u64,
    theirs: u64,
    rate: f64,
}

static CHOSEN: Mutex<Option<Chosen>> = Mutex::new(None);

fn own() -> u64 {
    let engine = engine();
    (engine.stamp)((engine.now)())
}

/// Returns both clocks' times at one instant, from the closest pair of several readings.
fn both(clock: Clock) -> (u64, u64) {
    let read = || {
        // SAFETY: the client registered this function, which takes no arguments.
        let (before, theirs, after) = (own(), unsafe { clock() }, own());
        (after - before, before + (after - before) / 2, theirs)
    };
    let (_, own, theirs) = (0..20).map(|_| read()).min().unwrap_or_default();
    (own, theirs)
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterTimestampCallback(
    clock: CUpti_TimestampCallbackFunc,
) -> CUptiResult {
    let Some(clock) = clock else { return CUPTI_ERROR_INVALID_PARAMETER };
    let result = enter("cuptiActivityRegisterTimestampCallback");
    if result == CUPTI_SUCCESS {
        if KINDS.load(SeqCst) != 0 {
            complain("a timestamp callback after kinds were enabled");
        }
        let (own, theirs) = both(clock);
        std::thread::sleep(Duration::from_millis(5));
        let (later, theirs_later) = both(clock);
        let rate = theirs_later.wrapping_sub(theirs) as f64 / (later - own) as f64;
        *lock(&CHOSEN) = Some(Chosen { own, theirs, rate });
    }
    result
}

/// Goes back to CUPTI's own clock.
pub fn forget() {
    *lock(&CHOSEN) = None;
}

/// Converts a time of CUPTI's own clock to the chosen clock.
pub fn of(time: u64) -> u64 {
    let Some(chosen) = *lock(&CHOSEN) else { return time };
    let since = time as f64 - chosen.own as f64;
    chosen.theirs.wrapping_add_signed((since * chosen.rate) as i64)
}
