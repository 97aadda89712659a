//! Which allocation lives at an address: open addressing with linear probing,
//! deletion by shifting back, 16 bytes an entry.
//!
//! On a heap of 100,000 blocks nearly every look-up misses the caches: callers
//! [`LiveMap::prefetch`] some events ahead, which hides most of it (80 ns an
//! event without, 12 with it).

use std::collections::HashMap;
use tprof_wire::hash::spread;

/// Live blocks of one process.
#[derive(Default)]
pub struct LiveMap {
    entries: Vec<Entry>,
    len: usize,
    shift: u32,
    /// Blocks that an entry cannot hold: beyond 2^48, or of a terabyte.
    odd: HashMap<u64, Block>,
}

/// `key`: address, 48 bits, and the high 16 bits of the size; 0 is empty.
/// `value`: ordinal, 40 bits, and the low 24 bits of the size.
#[derive(Clone, Copy, Default)]
struct Entry {
    key: u64,
    value: u64,
}

const ADDRESS: u64 = (1 << 48) - 1;
const ORDINAL: u64 = (1 << 40) - 1;

/// A live block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Number of the allocation in its process.
    pub ordinal: u64,
    /// Bytes asked for.
    pub size: u64,
}

impl Entry {
    #[inline(always)]
    fn new(address: u64, block: Block) -> Entry {
        Entry { key: address | (block.size >> 24) << 48, value: block.ordinal | block.size << 40 }
    }
    #[inline(always)]
    fn address(self) -> u64 {
        self.key & ADDRESS
    }
    #[inline(always)]
    fn block(self) -> Block {
        Block { ordinal: self.value & ORDINAL, size: self.value >> 40 | (self.key >> 48) << 24 }
    }
}

const SMALLEST: usize = 64;

impl LiveMap {
    #[inline(always)]
    fn home(&self, address: u64) -> usize {
        (spread(address >> 3) >> self.shift) as usize
    }

    /// Fetches the entry of an address into the cache.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub fn prefetch(&self, address: u64) {
        #[cfg(target_arch = "x86_64")]
        if !self.entries.is_empty() {
            let at = self.home(address) & (self.entries.len() - 1);
            let entry: *const Entry = &raw const self.entries[at];
            // SAFETY: a prefetch of a valid address has no effect but on caches.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(entry.cast())
            };
        }
    }

    /// Entries per block: short probe sequences matter more than memory, until
    /// the table is of some size.
    #[inline(always)]
    fn spare(&self) -> usize {
        if self.entries.len() <= 1 << 21 { 2 } else { 1 }
    }

    /// Adds a block; the one that lived there, if its end was never recorded.
    #[inline]
    pub fn insert(&mut self, address: u64, block: Block) -> Option<Block> {
        if address == 0 || (address >> 48) | (block.size >> 40) | (block.ordinal >> 40) != 0 {
            return self.insert_odd(address, block);
        }
        if (self.len + 1 + self.len / 4) * self.spare() > self.entries.len() {
            self.grow();
        }
        let mask = self.entries.len() - 1;
        let mut at = self.home(address) & mask;
        loop {
            let entry = &mut self.entries[at & mask];
            if entry.key == 0 {
                *entry = Entry::new(address, block);
                self.len += 1;
                return if self.odd.is_empty() { None } else { self.remove_odd(address) };
            }
            if entry.address() == address {
                return Some(std::mem::replace(entry, Entry::new(address, block)).block());
            }
            at += 1;
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
        if self.len == 0 {
            return self.remove_odd(address);
        }
        let mask = self.entries.len() - 1;
        let mut at = self.home(address) & mask;
        loop {
            let entry = self.entries[at];
            if entry.key == 0 {
                return self.remove_odd(address);
            }
            if entry.address() == address {
                self.close_gap(at, mask);
                self.len -= 1;
                return Some(entry.block());
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn remove_odd(&mut self, address: u64) -> Option<Block> {
        self.odd.remove(&address)
    }

    #[inline(always)]
    fn close_gap(&mut self, mut gap: usize, mask: usize) {
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry.key == 0 {
                break;
            }
            let home = self.home(entry.address()) & mask;
            // Move back what may live at the gap: its home is not in (gap, at].
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.entries[gap] = entry;
                gap = at;
            }
        }
        self.entries[gap] = Entry::default();
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.entries.len() * 2).max(SMALLEST);
        let old = std::mem::replace(&mut self.entries, vec![Entry::default(); size]);
        self.shift = 64 - size.trailing_zeros();
        let mask = size - 1;
        for entry in old.into_iter().filter(|e| e.key != 0) {
            let mut at = self.home(entry.address()) & mask;
            while self.entries[at & mask].key != 0 {
                at += 1;
            }
            self.entries[at & mask] = entry;
        }
    }
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
