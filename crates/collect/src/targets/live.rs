//! Which allocation lives at an address: buckets of one cache line, of four blocks each.
//!
//! On a heap of 100,000 blocks nearly every look-up misses the caches: callers
//! [`LiveMap::prefetch`] some events ahead, which hides most of it (80 ns an
//! event without, 12 with it). Nothing beside that line is read, but for blocks of a full
//! bucket, which are in one of the next.

use nix::sys::mman::{MmapAdvise, madvise};
use std::collections::HashMap;
use std::ptr::NonNull;
use tprof_wire::hash::spread;

/// Live blocks of one process.
#[derive(Default)]
pub struct LiveMap {
    buckets: Vec<Bucket>,
    /// By bucket: blocks of it or of an earlier one that are in a later one, as it was full. Once
    /// it has its highest value it keeps that.
    passed: Vec<u8>,
    len: usize,
    shift: u32,
    /// Blocks that an entry cannot hold: beyond 2^48, or of a terabyte.
    odd: HashMap<u64, Block>,
}

const WAYS: usize = 4;
/// The address of an entry without a block.
const EMPTY: u64 = 0;

/// One cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket {
    /// Address, 48 bits, and the high 16 bits of the size; 0 is empty.
    keys: [u64; WAYS],
    /// Ordinal, 40 bits, and the low 24 bits of the size.
    values: [u64; WAYS],
}

const ORDINAL: u64 = (1 << 40) - 1;

/// A live block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Number of the allocation in its process.
    pub ordinal: u64,
    /// Bytes asked for.
    pub size: u64,
}

impl Bucket {
    /// An entry of an address; [`WAYS`] if it has none. No branch depends on which it is.
    #[inline(always)]
    fn find(&self, address: u64) -> usize {
        let is_it = |way: usize| u32::from((self.keys[way] ^ address) << 16 == 0) << way;
        (is_it(0) | is_it(1) | is_it(2) | is_it(3) | 1 << WAYS).trailing_zeros() as usize
    }

    #[inline(always)]
    fn put(&mut self, way: usize, address: u64, block: Block) {
        self.keys[way] = address | (block.size >> 24) << 48;
        self.values[way] = block.ordinal | block.size << 40;
    }

    /// The block of an entry, which is empty from now on.
    #[inline(always)]
    fn take(&mut self, way: usize) -> Block {
        let key = std::mem::take(&mut self.keys[way]);
        let value = self.values[way];
        Block { ordinal: value & ORDINAL, size: value >> 40 | (key >> 48) << 24 }
    }
}

const SMALLEST: usize = 16;

impl LiveMap {
    #[inline(always)]
    fn home(&self, address: u64) -> usize {
        (spread(address >> 3) >> self.shift) as usize
    }

    /// Fetches the bucket of an address into the cache.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub fn prefetch(&self, address: u64) {
        #[cfg(target_arch = "x86_64")]
        if let Some(bucket) = self.buckets.get(self.home(address)) {
            // SAFETY: a prefetch of a valid address has no effect but on caches.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                    (&raw const *bucket).cast(),
                )
            };
        }
    }

    /// Entries per block: buckets that are rarely full matter more than memory, until
    /// the table is of some size.
    #[inline(always)]
    fn spare(&self) -> usize {
        if self.buckets.len() <= (1 << 21) / WAYS { 2 } else { 1 }
    }

    /// Adds a block; the one that lived there, if its end was never recorded.
    #[inline]
    pub fn insert(&mut self, address: u64, block: Block) -> Option<Block> {
        if address == 0 || (address >> 48) | (block.size >> 40) | (block.ordinal >> 40) != 0 {
            return self.insert_odd(address, block);
        }
        if (self.len + 1 + self.len / 4) * self.spare() > self.buckets.len() * WAYS {
            self.grow();
        }
        let home = self.home(address);
        let way = self.buckets[home].find(address);
        if way < WAYS {
            let old = self.buckets[home].take(way);
            self.buckets[home].put(way, address, block);
            return Some(old);
        }
        let old = if self.passed[home] > 0 { self.remove_passed(address) } else { None };
        self.len += 1;
        self.place(address, block);
        if self.odd.is_empty() { old } else { self.remove_odd(address).or(old) }
    }

    /// Puts a block, which has no entry, into the first bucket with room.
    #[inline(always)]
    fn place(&mut self, address: u64, block: Block) {
        let mut at = self.home(address);
        loop {
            let way = self.buckets[at].find(EMPTY);
            if way < WAYS {
                return self.buckets[at].put(way, address, block);
            }
            self.passed[at] = self.passed[at].saturating_add(1);
            at = (at + 1) & (self.buckets.len() - 1);
        }
    }

    #[cold]
    fn insert_odd(&mut self, address: u64, block: Block) -> Option<Block> {
        let old = self.remove(address);
        self.odd.insert(address, block).or(old)
    }

    /// Takes a block out.
    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<Block> {
        if self.len == 0 || (address >> 48) != 0 || address == 0 {
            return self.remove_odd(address);
        }
        let home = self.home(address);
        let way = self.buckets[home].find(address);
        if way < WAYS {
            self.len -= 1;
            return Some(self.buckets[home].take(way));
        }
        if self.passed[home] > 0
            && let Some(block) = self.remove_passed(address)
        {
            return Some(block);
        }
        self.remove_odd(address)
    }

    /// Takes out a block that is not in its own bucket.
    #[cold]
    #[inline(never)]
    fn remove_passed(&mut self, address: u64) -> Option<Block> {
        let (home, mask) = (self.home(address), self.buckets.len() - 1);
        for distance in 0..mask {
            if self.passed[(home + distance) & mask] == 0 {
                return None;
            }
            let at = (home + distance + 1) & mask;
            let way = self.buckets[at].find(address);
            if way < WAYS {
                for passed in (0..=distance).map(|nth| (home + nth) & mask) {
                    let count = self.passed[passed];
                    self.passed[passed] = if count == u8::MAX { count } else { count - 1 };
                }
                self.len -= 1;
                return Some(self.buckets[at].take(way));
            }
        }
        None
    }

    #[cold]
    fn remove_odd(&mut self, address: u64) -> Option<Block> {
        self.odd.remove(&address)
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.buckets.len() * 2).max(SMALLEST);
        let old = std::mem::replace(&mut self.buckets, empty(size));
        self.passed = vec![0; size];
        self.shift = 64 - size.trailing_zeros();
        for mut bucket in old {
            for way in 0..WAYS {
                let address = bucket.keys[way] << 16 >> 16;
                if address != 0 {
                    let block = bucket.take(way);
                    self.place(address, block);
                }
            }
        }
    }
}

/// Empty buckets, in large pages where that is worth it: each look-up in small ones would miss the
/// processor's table of pages as well.
#[allow(unsafe_code)]
fn empty(size: usize) -> Vec<Bucket> {
    const LARGE_PAGE: usize = 2 << 20;
    let mut buckets = Vec::with_capacity(size);
    let room = buckets.spare_capacity_mut().as_mut_ptr_range();
    let first = room.start.addr().next_multiple_of(LARGE_PAGE);
    let bytes = room.end.addr().saturating_sub(first) & !(LARGE_PAGE - 1);
    if let Some(first) = NonNull::new(room.start.with_addr(first))
        && bytes > 0
    {
        // SAFETY: within the memory just taken, which holds nothing yet. If it fails, pages are
        // small.
        let _ = unsafe { madvise(first.cast(), bytes, MmapAdvise::MADV_HUGEPAGE) };
    }
    buckets.resize(size, Bucket::default());
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_a_hash_map() {
        let mut map = LiveMap::default();
        let mut model = HashMap::new();
        let mut x = 88_172_645_463_325_252u64;
        for step in 0..200_000u64 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let far = if x >> 20 & 63 == 0 { 1 << 50 } else { 0 };
            let address = (x % 5000 + 1) * 16 + far;
            if x >> 60 < 8 {
                let size = if x >> 30 & 63 == 0 { x } else { x & 0xff_ffff_ffff };
                let block = Block { ordinal: step, size };
                assert_eq!(map.insert(address, block), model.insert(address, block));
            } else {
                assert_eq!(map.remove(address), model.remove(&address));
            }
        }
        for (address, block) in model {
            assert_eq!(map.remove(address), Some(block));
        }
    }
}
