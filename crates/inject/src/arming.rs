//! How far this process has come with the registration of callbacks with PyTorch, which
//! [`crate::operators`] does: what a forked child must know of it when it begins.

use crate::state;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Where a process stands.
pub mod phase {
    /// PyTorch is not loaded, as far as is known.
    pub const NONE: u32 = 0;
    /// A thread finds out how to register the callbacks.
    pub const BUSY: u32 = 1;
    /// It registers them: PyTorch's lock may be taken.
    pub const REGISTERS: u32 = 2;
    /// They are registered, or cannot be.
    pub const DONE: u32 = 3;
}

static PHASE: AtomicU32 = AtomicU32::new(phase::NONE);
/// The process of the thread that registers: in a child that another thread forked meanwhile
/// nothing goes on.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Its [`phase`].
pub fn now() -> u32 {
    PHASE.load(Acquire)
}

/// Goes on to another.
pub fn set(phase: u32) {
    PHASE.store(phase, Release);
}

/// Begins, unless another thread has.
pub fn begin() -> bool {
    PROCESS.store(state::PID.load(Relaxed), Relaxed);
    PHASE.compare_exchange(phase::NONE, phase::BUSY, AcqRel, Relaxed).is_ok()
}

/// How far a thread of the parent had come when this process was forked, if it was not done.
pub fn cut_off() -> Option<u32> {
    let phase = now();
    let is_cut = matches!(phase, phase::BUSY | phase::REGISTERS)
        && PROCESS.load(Relaxed) != state::PID.load(Relaxed);
    is_cut.then_some(phase)
}
