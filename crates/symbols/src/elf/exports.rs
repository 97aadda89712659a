//! Looks up exported symbols in the hash tables that the loader uses. That takes a few small reads,
//! regardless of the number of symbols.

use super::{Elf, u16_at, u32_at, u64_at};

impl Elf {
    /// Whether the file defines a dynamic symbol with this name.
    pub fn exports(&self, name: &str) -> bool {
        self.exports_among(name, &self.dynamic())
    }

    /// Returns the ELF address and the size of a dynamic symbol; `None` if the file doesn't define
    /// it.
    pub fn export(&self, name: &str) -> Option<(u64, u64)> {
        self.export_among(name, &self.dynamic())
    }

    pub(super) fn exports_among(&self, name: &str, dynamic: &[(u64, u64)]) -> bool {
        self.export_among(name, dynamic).is_some()
    }

    fn export_among(&self, name: &str, dynamic: &[(u64, u64)]) -> Option<(u64, u64)> {
        let place = |tag: u64| {
            let address = dynamic.iter().find(|e| e.0 == tag)?.1;
            self.offset_of(address)
        };
        let (symbols, names) = (place(6)?, place(5)?);
        let matches = |index: u32| {
            let symbol = self.read_some(symbols.saturating_add(u64::from(index) * 24), 24);
            let defined = u16_at(&symbol, 6) != 0;
            let at = names.saturating_add(u64::from(u32_at(&symbol, 0)));
            let found = self.read_some(at, name.len() as u64 + 1);
            let same = defined && found.strip_suffix(b"\0") == Some(name.as_bytes());
            same.then(|| (u64_at(&symbol, 8), u64_at(&symbol, 16)))
        };
        if let Some(table) = place(0x6fff_fef5) {
            return self.gnu_hash_chain(table, name).into_iter().find_map(matches);
        }
        self.sysv_hash_chain(place(4)?, name).into_iter().find_map(matches)
    }

    /// Returns the indices of the symbols that have the same GNU hash as `name`.
    fn gnu_hash_chain(&self, table: u64, name: &str) -> Vec<u32> {
        let hash = name.bytes().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(b)));
        let head = self.read_some(table, 16);
        let (buckets, first, bloom) = (u32_at(&head, 0), u32_at(&head, 4), u32_at(&head, 8));
        if buckets == 0 {
            return Vec::new();
        }
        let bucket_at = table.saturating_add(16 + u64::from(bloom) * 8);
        let bucket = self.read_some(bucket_at.saturating_add(u64::from(hash % buckets) * 4), 4);
        let start = u32_at(&bucket, 0);
        if start < first {
            return Vec::new();
        }
        let chain_at = bucket_at
            .saturating_add(u64::from(buckets) * 4)
            .saturating_add(u64::from(start - first) * 4);
        let chain = self.read_some(chain_at, 4096);
        let mut found = Vec::new();
        for (index, entry) in (start..).zip(chain.chunks_exact(4)) {
            let entry = u32_at(entry, 0);
            if entry | 1 == hash | 1 {
                found.push(index);
            }
            if entry & 1 != 0 {
                break;
            }
        }
        found
    }

    /// Returns the indices of the symbols in the same System V hash bucket as `name`.
    fn sysv_hash_chain(&self, table: u64, name: &str) -> Vec<u32> {
        let hash = name.bytes().fold(0u32, |h, b| {
            let h = (h << 4).wrapping_add(u32::from(b));
            (h ^ ((h & 0xf000_0000) >> 24)) & 0x0fff_ffff
        });
        let word = |index: u64| {
            u32_at(&self.read_some(table.saturating_add(index.saturating_mul(4)), 4), 0)
        };
        let buckets = u64::from(word(0));
        if buckets == 0 {
            return Vec::new();
        }
        let mut found = Vec::new();
        let mut index = word(2 + u64::from(hash) % buckets);
        while index != 0 && found.len() < 1024 {
            found.push(index);
            index = word(2 + buckets + u64::from(index));
        }
        found
    }
}
