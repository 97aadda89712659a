//! Memory of a process that runs Python, its own or another's.

/// Memory that can be read; `None` where it cannot.
pub trait Memory {
    /// Eight bytes.
    fn u64(&mut self, at: u64) -> Option<u64>;
    /// Four bytes.
    fn u32(&mut self, at: u64) -> Option<u32>;
    /// One byte.
    fn u8(&mut self, at: u64) -> Option<u8>;
}
