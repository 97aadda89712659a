//! Handles `cuptiFinalize`, with which another client detaches CUPTI from the whole process.
//! Meanwhile the agent's thread doesn't call CUPTI, since the two calls can deadlock. Afterwards
//! the client's next call, or the agent's thread a moment later, sets CUPTI up again.

use super::notes::note;
use super::{buffers, deliver, kinds, stalls, started};
use tprof_cupti_sys::*;
use tprof_inject::{gate, sys};
use tprof_wire::gpu::trouble;
use tprof_wire::sync::{AtomicBool, AtomicU32, Ordering::*};

/// Which thread, if any, is using CUPTI or detaching it. Clients wait on it as a futex.
static STATE: AtomicU32 = AtomicU32::new(FREE);
/// The agent's thread may call CUPTI.
const FREE: u32 = 0;
/// The agent's thread is calling CUPTI.
const INSIDE: u32 = 1;
/// A client is detaching CUPTI.
const DETACHING: u32 = 2;
/// CUPTI is detached.
const DETACHED: u32 = 3;
/// A thread is setting CUPTI up again.
const ATTACHING: u32 = 4;

/// Set if a client detached CUPTI while the agent's thread was calling it.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// Maximum time that a client waits for the agent's thread, which may be flushing.
const WAIT_NS: u64 = 2_000_000_000;

/// Runs work of the agent's thread that calls CUPTI. Returns false without running it if CUPTI is
/// detached or a client is detaching it.
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

/// Sets the state after a detachment that happened while the agent's thread was calling CUPTI. That
/// thread and the client both call this, and the later call takes effect.
fn settle() {
    if IS_LATE.load(SeqCst) && STATE.compare_exchange(FREE, DETACHED, SeqCst, SeqCst).is_ok() {
        IS_LATE.store(false, SeqCst);
    }
}

/// Runs a call that detaches CUPTI, if possible while the agent's thread isn't calling CUPTI.
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

/// Resets what the agent knows about kinds and buffers after CUPTI was detached.
fn forget() {
    kinds::forget();
    stalls::forget();
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
