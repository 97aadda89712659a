//! Hashes of bytes of the interpreter's memory.

use tprof_wire::hash::spread;
use tprof_wire::python::Memory;

/// Bytes of a string or table that are hashed whole; of longer ones, half of this at
/// either end.
pub const HASHED: u64 = 256;

/// Hashes bytes that begin at an aligned address: whole words, the last one without what
/// lies behind.
pub fn bytes_hash(memory: &mut impl Memory, at: u64, bytes: u64, hash: u64) -> Option<u64> {
    let mut hash = mix(hash, bytes);
    let words = bytes / 8;
    let mut word = 0;
    while word < words {
        if word == HASHED / 16 && words > HASHED / 8 {
            word = words - HASHED / 16;
        }
        hash = mix(hash, memory.u64(at.wrapping_add(word * 8))?);
        word += 1;
    }
    if !bytes.is_multiple_of(8) {
        hash = mix(hash, rest(memory, at, bytes)?);
    }
    Some(hash)
}

/// The bytes behind the last whole word; 0 if there are none.
#[inline(always)]
pub fn rest(memory: &mut impl Memory, at: u64, bytes: u64) -> Option<u64> {
    let (words, rest) = (bytes / 8, bytes % 8);
    if rest == 0 {
        return Some(0);
    }
    Some(memory.u64(at.wrapping_add(words * 8))? & ((1 << (rest * 8)) - 1))
}

/// Mixes a word into a hash.
#[inline(always)]
pub fn mix(hash: u64, word: u64) -> u64 {
    let x = spread(hash ^ word);
    x ^ x >> 32
}
