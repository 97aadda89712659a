//! Computes hashes of strings and line tables that the interpreter owns.

use crate::arch;
use tprof_wire::hash::{GOLDEN, spread};
use tprof_wire::python::Memory;

/// Strings and tables of at most this many bytes are hashed as a whole. Of longer ones, half this
/// number of bytes is hashed at either end, from the first byte of a word on.
const HASHED: u64 = 256;

/// Hashes bytes that begin at an aligned address. Each pair of words is hashed independently, so
/// that the processor can hash several pairs at the same time.
#[inline(always)]
pub fn bytes_hash(memory: &mut impl Memory, at: u64, bytes: u64, hash: u64) -> Option<u64> {
    let mut sum = Sum { sum: hash ^ bytes, key: GOLDEN };
    if bytes <= HASHED {
        memory.pairs(at, bytes, |pair| sum.add(pair))?;
    } else {
        let last = bytes / 8 * 8 - HASHED / 2;
        memory.pairs(at, HASHED / 2, |pair| sum.add(pair))?;
        memory.pairs(at.wrapping_add(last), bytes - last, |pair| sum.add(pair))?;
    }
    Some(sum.sum)
}

/// The sum of the hashes of pairs of words. Each pair is hashed with keys that depend on its
/// position.
struct Sum {
    sum: u64,
    key: u64,
}

impl Sum {
    #[inline(always)]
    fn add(&mut self, [first, second]: [u64; 2]) {
        let keys = [self.key, self.key.wrapping_add(GOLDEN)];
        self.key = arch::scalar(self.key.wrapping_add(GOLDEN.wrapping_mul(2)));
        self.sum = self.sum.wrapping_add(folded(first ^ keys[0], second ^ keys[1]));
    }
}

/// Combines two hashes into one.
#[inline(always)]
pub fn joined(first: u64, second: u64) -> u64 {
    folded(first ^ GOLDEN, second ^ !GOLDEN)
}

/// Multiplies, and combines the halves of the product, so that each bit depends on all bits of both
/// numbers.
#[inline(always)]
fn folded(first: u64, second: u64) -> u64 {
    let product = u128::from(first) * u128::from(second);
    product as u64 ^ (product >> 64) as u64
}

/// Mixes a word into a hash.
#[inline(always)]
pub fn mix(hash: u64, word: u64) -> u64 {
    let x = spread(hash ^ word);
    x ^ x >> 32
}

#[cfg(test)]
mod tests {
    use super::super::memory::OwnMemory;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_change_of_any_hashed_byte_changes_the_hash() {
        // SAFETY: the test reads only `text`, which outlives `here`.
        let mut here = unsafe { OwnMemory::vouched() };
        for bytes in [0, 1, 8, 17, 24, 255, 256, 257, 264, 600] {
            let mut text = [0x6161_6161_6161_6161u64; 100];
            let at = text.as_ptr() as u64;
            let mut hash = || bytes_hash(&mut here, at, bytes, 7).unwrap();
            let plain = hash();
            let mut others = BTreeSet::new();
            for byte in 0..text.len() * 8 {
                for change in 1..=255 {
                    text[byte / 8] ^= change << (byte % 8 * 8);
                    let changed = hash();
                    text[byte / 8] ^= change << (byte % 8 * 8);
                    if changed != plain {
                        others.insert(changed);
                    }
                }
            }
            // No two of the changes have the same hash.
            assert_eq!(
                others.len() as u64,
                255 * if bytes <= 256 { bytes } else { 256 + bytes % 8 },
                "{bytes}"
            );
        }
    }

    #[test]
    fn texts_that_differ_in_several_words_have_different_hashes() {
        // SAFETY: the test reads only `text`, which outlives the read.
        let mut here = unsafe { OwnMemory::vouched() };
        let mut met = BTreeSet::new();
        for (first, second) in
            (0..300u64).flat_map(|first| (0..300).map(move |second| (first, second)))
        {
            // Changes either the first character of each word, which is its lowest byte, or the
            // last ones.
            for shift in [0, 48] {
                let text = [first << shift, second << shift, 1, 2, second << shift, first << shift];
                met.insert(bytes_hash(&mut here, text.as_ptr() as u64, 48, 0));
            }
        }
        // With `first` and `second` 0, both shifts give the same text.
        assert_eq!(met.len(), 2 * 300 * 300 - 1);
    }
}
