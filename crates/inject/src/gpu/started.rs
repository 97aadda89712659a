//! The CUPTI in use: set once when the agent starts, read by its thread and by the calls of
//! other clients.

use super::cupti::Cupti;
use crate::state::WIPED;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::*};

/// The process's generation when it started; 0 before. A forked child has another.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// CUPTI's functions, written once before [`GENERATION`].
struct CuptiCell(UnsafeCell<MaybeUninit<Cupti>>);
// SAFETY: written by one thread, read only after GENERATION has changed.
unsafe impl Sync for CuptiCell {}
static CUPTI: CuptiCell = CuptiCell(UnsafeCell::new(MaybeUninit::uninit()));

/// Sets it: by the thread that starts the agent, once.
pub fn start(cupti: Cupti) {
    // SAFETY: no reader before GENERATION changes, and no second call.
    unsafe { (*CUPTI.0.get()).write(cupti) };
    GENERATION.store(WIPED.generation.load(Acquire), Release);
}

/// The CUPTI that the agent uses in this process; none in a forked child.
pub fn cupti() -> Option<Cupti> {
    let generation = GENERATION.load(Acquire);
    if generation == 0 || WIPED.generation.load(Acquire) != generation {
        return None;
    }
    // SAFETY: written before GENERATION changed, and never again.
    Some(unsafe { (*CUPTI.0.get()).assume_init() })
}
