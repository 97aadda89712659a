//! The frames and hashes that a walk finds.

use tprof_wire::hash::spread;
use tprof_wire::record::{MAX_FRAMES, StackEnd};

/// A stack being taken.
pub struct Walk {
    /// Return addresses, innermost first.
    pub frames: [u64; MAX_FRAMES],
    /// Number of frames in `frames`.
    pub len: usize,
    /// Number of further frames, the outermost, that are not in `frames` but in the memory of the
    /// walk of this number.
    pub rest: usize,
    /// Number of the walk whose memory has the `rest`.
    pub number: usize,
    /// Hash over them.
    pub hash: u64,
    /// Why it ends.
    pub end: StackEnd,
    /// Whether it goes through a signal handler.
    pub interrupted: bool,
}

/// The part of a walk that was taken by rows, and where that ends.
pub struct ByRows {
    /// Hash over the frames that it took.
    pub hash: HashSoFar,
    /// Number of frames of the last walk that follow.
    pub rest: usize,
    /// The frame pointer at its end.
    pub fp: usize,
    /// The stack pointer past a return address of zero; 0 if it ends otherwise.
    pub zero: usize,
}

/// The hash of a stack: its frames, from the outermost, are the digits of a number in the system
/// of base [`BASE`]. So the hash over its outer frames is part of the hash over all, and digits
/// can be added from the inner end without waiting for one another.
pub struct HashSoFar {
    sum: u64,
    power: u64,
}

/// Odd: no two stacks that differ in one frame have the same hash.
const BASE: u64 = 0xd133_7d5a_9e25_cdab;

impl HashSoFar {
    /// The hash of no frames.
    pub const NONE: HashSoFar = HashSoFar { sum: 0, power: 1 };

    /// Adds the next frame outwards.
    #[inline(always)]
    pub fn add(&mut self, frame: u64) {
        self.sum = self.sum.wrapping_add(digit(frame).wrapping_mul(self.power));
        self.power = self.power.wrapping_mul(BASE);
    }

    /// The hash of these frames within others of this hash, or within [`outermost`].
    #[inline(always)]
    pub fn within(&self, outer: u64) -> u64 {
        self.sum.wrapping_add(outer.wrapping_mul(self.power))
    }
}

/// The hash of a frame within others of this hash.
#[inline(always)]
pub fn grown(outer: u64, frame: u64) -> u64 {
    outer.wrapping_mul(BASE).wrapping_add(digit(frame))
}

/// The hash that the outermost frame lies within: the generation of the code that is loaded.
#[inline(always)]
pub fn outermost(code: u64) -> u64 {
    // The generation's bits are the upper 16; those of a hash must all depend on them.
    digit(code >> 48)
}

#[inline(always)]
fn digit(frame: u64) -> u64 {
    let x = spread(frame);
    x ^ x >> 29
}
