//! Memory of a process that runs Python, its own or another's.

/// Memory that can be read; `None` where it cannot.
pub trait Memory {
    /// Eight bytes.
    fn u64(&mut self, at: u64) -> Option<u64>;
    /// Four bytes.
    fn u32(&mut self, at: u64) -> Option<u32>;
    /// One byte.
    fn u8(&mut self, at: u64) -> Option<u8>;

    /// Whether these words are there, one after the other.
    #[inline(always)]
    fn has(&mut self, at: u64, words: &[u64]) -> Option<bool> {
        for (index, word) in words.iter().enumerate() {
            if self.u64(at.wrapping_add(8 * index as u64))? != *word {
                return Some(false);
            }
        }
        Some(true)
    }
}
