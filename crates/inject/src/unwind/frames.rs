//! What a walk finds.

use tprof_wire::hash::spread;
use tprof_wire::record::{MAX_FRAMES, StackEnd};

/// A stack being taken.
pub struct Walk {
    /// Return addresses, innermost first.
    pub frames: [u64; MAX_FRAMES],
    /// How many.
    pub len: usize,
    /// Hash over them.
    pub hash: u64,
    /// Why it ends.
    pub end: StackEnd,
    /// It goes through a signal handler.
    pub interrupted: bool,
}

/// Mixes a frame into a stack's hash.
#[inline(always)]
pub fn mix(hash: u64, frame: u64) -> u64 {
    let x = spread(hash ^ frame);
    x ^ x >> 29
}
