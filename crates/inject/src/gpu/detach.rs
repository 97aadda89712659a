//! `cuptiFinalize`, called by another client, takes CUPTI from the whole process. The agent's
//! thread stays out of CUPTI meanwhile (the two can deadlock), and CUPTI is set up again by the
//! next call of a client, or by that thread a moment later.

use super::notes::note;
use super::{buffers, deliver, kinds, started};
use crate::{gate, sys};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use tprof_cupti_sys::*;
use tprof_wire::gpu::trouble;

/// Who is in CUPTI. A futex.
static STATE: AtomicU32 = AtomicU32::new(FREE);
/// The agent's thread may enter.
const FREE: u32 = 0;
/// The agent's thread is inside CUPTI.
const INSIDE: u32 = 1;
/// A client detaches CUPTI.
const DETACHING: u32 = 2;
/// CUPTI is detached.
const DETACHED: u32 = 3;
/// A thread sets CUPTI up again.
const ATTACHING: u32 = 4;

/// CUPTI was detached while the agent's thread was inside.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// How long a client waits for the agent's thread: a flush.
const WAIT_NS: u64 = 2_000_000_000;

/// Runs a part of the agent's thread that calls CUPTI; false if it may not.
pub fn inside(work: impl FnOnce()) -> bool {
    if STATE.compare_exchange(FREE, INSIDE, AcqRel, Acquire).is_err() {
        return false;
    }
    work();
    STATE.store(FREE, Release);
    settle();
    sys::futex_wake(STATE.as_ptr(), u32::MAX >> 1);
    true
}

/// Completes a detachment that happened while the agent's thread was inside: of that thread and the
/// client, the one that comes later does this.
fn settle() {
    if IS_LATE.load(SeqCst) && STATE.compare_exchange(FREE, DETACHED, SeqCst, SeqCst).is_ok() {
        IS_LATE.store(false, SeqCst);
    }
}

/// Runs what detaches CUPTI, while the agent's thread is outside.
pub fn detached(finalize: impl FnOnce() -> CUptiResult) -> CUptiResult {
    const ROUND_NS: u64 = 1_000_000;
    let mut left = WAIT_NS;
    while STATE.compare_exchange(FREE, DETACHING, AcqRel, Acquire).is_err() {
        if STATE.load(Acquire) == DETACHED {
            return finalize();
        }
        if left == 0 {
            let result = finalize();
            if result == CUPTI_SUCCESS {
                forget();
                IS_LATE.store(true, SeqCst);
                settle();
            }
            return result;
        }
        sys::futex_wait(STATE.as_ptr(), INSIDE, ROUND_NS);
        left = left.saturating_sub(ROUND_NS);
    }
    let result = finalize();
    let after = if result == CUPTI_SUCCESS { DETACHED } else { FREE };
    if after == DETACHED {
        forget();
    }
    STATE.store(after, Release);
    buffers::wake();
    result
}

/// Forgets what CUPTI collected and the buffers that it held.
fn forget() {
    kinds::forget();
    let lost = buffers::abandon();
    if let Some(thread) = gate::recording() {
        note(thread, trouble::DETACHED, lost, b"");
    }
}

/// Sets CUPTI up again, if it is detached.
pub fn attach_again() {
    if STATE.compare_exchange(DETACHED, ATTACHING, AcqRel, Acquire).is_err() {
        return;
    }
    if let (Some(cupti), Some(thread)) = (started::cupti(), gate::recording()) {
        cupti.set_up();
        if deliver::register(&cupti) == CUPTI_SUCCESS {
            kinds::enable(thread, &cupti);
            note(thread, trouble::ATTACHED, 1, b"");
        }
    }
    STATE.store(FREE, Release);
}
