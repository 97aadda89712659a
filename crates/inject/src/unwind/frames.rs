//! The result of a walk: its frames and its hash.

use tprof_wire::hash::spread;
use tprof_wire::record::{MAX_FRAMES, StackEnd};

/// A stack that is being taken.
pub struct Walk {
    /// Return addresses, innermost first.
    pub frames: [u64; MAX_FRAMES],
    /// Number of frames in `frames`.
    pub len: usize,
    /// Number of further frames, the outermost ones. They are not in `frames`, but in the thread's
    /// memory of the walk with this [`number`](Walk::number).
    pub rest: usize,
    /// Number of the walk whose memory contains the `rest` frames.
    pub number: usize,
    /// Hash over all frames.
    pub hash: u64,
    /// How the walk ended.
    pub end: StackEnd,
    /// Whether the stack contains a signal handler's frame.
    pub interrupted: bool,
}

/// The result of the part of a walk that used rows, and the state in which that part ended.
pub struct ByRows {
    /// Hash over the frames that were walked by rows.
    pub hash: HashSoFar,
    /// Number of further frames, which are the same as in the thread's last walk.
    pub rest: usize,
    /// The frame pointer at the end of that part.
    pub fp: usize,
    /// If a return address of zero ended the walk, the stack pointer just above it; otherwise 0.
    pub zero: usize,
}

/// The hash of a stack. From the outermost one on, the stack's frames are the digits of a number in
/// base [`BASE`]. So the hash of the outer frames is a part of the hash of all frames, and the
/// digits of inner frames can be added independently of each other.
pub struct HashSoFar {
    sum: u64,
    power: u64,
}

/// The base is odd, so that stacks that differ in one frame never have the same hash.
const BASE: u64 = 0xd133_7d5a_9e25_cdab;

impl HashSoFar {
    /// The hash of a stack without frames.
    pub const NONE: HashSoFar = HashSoFar { sum: 0, power: 1 };

    /// Adds the next frame outwards.
    #[inline(always)]
    pub fn add(&mut self, frame: u64) {
        self.sum = self.sum.wrapping_add(digit(frame).wrapping_mul(self.power));
        self.power = self.power.wrapping_mul(BASE);
    }

    /// The hash of these frames if their callers have the hash `outer`. If they have no callers,
    /// `outer` is [`outermost`].
    #[inline(always)]
    pub fn within(&self, outer: u64) -> u64 {
        self.sum.wrapping_add(outer.wrapping_mul(self.power))
    }
}

/// The hash of a frame together with its callers, whose hash is `outer`.
#[inline(always)]
pub fn grown(outer: u64, frame: u64) -> u64 {
    outer.wrapping_mul(BASE).wrapping_add(digit(frame))
}

/// The hash with which the outermost frame is combined. It depends on the generation of the loaded
/// code.
#[inline(always)]
pub fn outermost(code: u64) -> u64 {
    // The generation is in the upper 16 bits of `code`. All bits of the hash must depend on it.
    digit(code >> 48)
}

#[inline(always)]
fn digit(frame: u64) -> u64 {
    let x = spread(frame);
    x ^ x >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(frames: &[u64], code: u64) -> u64 {
        let mut hash = HashSoFar::NONE;
        frames.iter().for_each(|frame| hash.add(*frame));
        hash.within(outermost(code))
    }

    #[test]
    fn the_hash_of_a_stack_is_that_of_its_inner_frames_within_its_outer_ones() {
        let mut inner = HashSoFar::NONE;
        inner.add(1);
        inner.add(2);
        assert_eq!(inner.within(hash_of(&[3, 4], 0)), hash_of(&[1, 2, 3, 4], 0));
        assert_eq!(grown(grown(outermost(0), 4), 3), hash_of(&[3, 4], 0));
    }

    #[test]
    fn the_order_of_frames_and_the_loaded_code_change_the_hash() {
        assert_ne!(hash_of(&[1, 2], 0), hash_of(&[2, 1], 0));
        assert_ne!(hash_of(&[1, 2], 0), hash_of(&[1, 2], 1 << 48));
        assert_eq!(hash_of(&[1, 2], 0), hash_of(&[1, 2], 5), "only the upper bits count");
    }
}
