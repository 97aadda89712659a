//! A bucket of the hash table of live blocks: four blocks in one cache line.

use super::Block;

/// Number of blocks in a bucket.
pub const WAYS: usize = 4;
/// The address in an entry without a block.
pub const EMPTY: u64 = 0;

/// A cache line with four entries, which share a count of passed blocks.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub struct Bucket {
    /// One key per entry: the address in 48 bits (0 if the entry is empty) and bits 24 to 39 of the
    /// size. The low 3 bits of the four keys together are the number of [passed](Bucket::passed)
    /// blocks.
    keys: [u64; WAYS],
    /// One value per entry: the ordinal in 40 bits, and the low 24 bits of the size.
    values: [u64; WAYS],
}

const ORDINAL: u64 = (1 << 40) - 1;
/// The bits of a key that store the address.
pub const ADDRESS: u64 = 0xffff_ffff_fff8;
/// Number of bits of a key that store a part of the number of passed blocks.
const PASSED_BITS: u32 = 3;
const PASSED: u64 = (1 << PASSED_BITS) - 1;
/// The largest number of passed blocks that can be stored. A bucket that has reached it stays
/// there, because from then on the true number is unknown.
const MAX_PASSED: u64 = (1 << (PASSED_BITS * WAYS as u32)) - 1;

impl Bucket {
    /// Returns which entries have this address, one bit per entry.
    #[inline(always)]
    pub fn find(&self, address: u64) -> u32 {
        zeros(self.keys.map(|key| (key ^ address) & ADDRESS))
    }

    /// Returns the address of an entry's block; [`EMPTY`] if the entry has no block.
    pub fn address(&self, way: usize) -> u64 {
        self.keys[way] & ADDRESS
    }

    /// Stores a block in an empty entry.
    #[inline(always)]
    pub fn put(&mut self, way: usize, address: u64, block: Block) {
        self.keys[way] = self.keys[way] & PASSED | address | (block.size >> 24) << 48;
        self.values[way] = block.ordinal | block.size << 40;
    }

    /// Removes the block of an entry and returns it.
    #[inline(always)]
    pub fn take(&mut self, way: usize) -> Block {
        let (key, value) = (self.keys[way], self.values[way]);
        self.keys[way] = key & PASSED;
        Block { ordinal: value & ORDINAL, size: value >> 40 | (key >> 48) << 24 }
    }

    /// Whether any block is in a later bucket because this one was full when the block was added.
    #[inline(always)]
    pub fn was_passed(&self) -> bool {
        (self.keys[0] | self.keys[1] | self.keys[2] | self.keys[3]) & PASSED != 0
    }

    /// Returns the number of blocks that are in later buckets because this bucket was full.
    fn passed(&self) -> u64 {
        self.keys.iter().rev().fold(0, |all, key| all << PASSED_BITS | key & PASSED)
    }

    /// Counts one more passed block, or one less.
    #[cold]
    pub fn pass(&mut self, is_more: bool) {
        let mut passed = match (self.passed(), is_more) {
            (MAX_PASSED, _) => return,
            (passed, true) => passed + 1,
            (passed, false) => passed.saturating_sub(1),
        };
        for key in &mut self.keys {
            *key = *key & !PASSED | passed & PASSED;
            passed >>= PASSED_BITS;
        }
    }
}

/// Returns which of four numbers are 0, one bit per number. The function doesn't branch on the
/// numbers, because the processor couldn't predict such branches.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unsafe_code)]
fn zeros(numbers: [u64; WAYS]) -> u32 {
    use std::arch::x86_64::*;
    let [a, b, c, d] = numbers.map(|number| number as i64);
    // SAFETY: these intrinsics need SSE2, which every x86-64 processor has.
    unsafe {
        let one = _mm_castsi128_ps(_mm_set_epi64x(b, a));
        let two = _mm_castsi128_ps(_mm_set_epi64x(d, c));
        // A number is 0 if both of its halves are. `low` contains the lower halves of all numbers,
        // `high` the upper halves.
        let low = _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(one, two));
        let high = _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(one, two));
        let zero = _mm_cmpeq_epi32(_mm_or_si128(low, high), _mm_setzero_si128());
        _mm_movemask_ps(_mm_castsi128_ps(zero)) as u32
    }
}

/// The same function for other processors.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn zeros(numbers: [u64; WAYS]) -> u32 {
    let bit = |at: usize| u32::from(numbers[at] == 0) << at;
    bit(0) | bit(1) | bit(2) | bit(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_with_only_one_zero_half_is_not_zero() {
        for numbers in (0..256usize)
            .map(|of| [0, 2, 4, 6].map(|shift| [0, 1, 1 << 32, 1 << 63 | 1][of >> shift & 3]))
        {
            let expected =
                (0..WAYS).filter(|at| numbers[*at] == 0).fold(0, |all, at| all | 1 << at);
            assert_eq!(zeros(numbers), expected, "{numbers:x?}");
        }
    }
}
