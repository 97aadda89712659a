//! Reads the memory of a process that runs Python: this process's own memory, or another's.

/// Memory that can be read. Functions return `None` if the bytes can't be read.
pub trait Memory {
    /// Reads eight bytes.
    fn u64(&mut self, at: u64) -> Option<u64>;
    /// Reads four bytes.
    fn u32(&mut self, at: u64) -> Option<u32>;
    /// Reads one byte.
    fn u8(&mut self, at: u64) -> Option<u8>;

    /// Reads the words at these offsets from an object's address. Each offset is a multiple of 8
    /// and below [`OBJECT`].
    #[inline(always)]
    fn fields<const N: usize>(&mut self, object: u64, offsets: [u64; N]) -> Option<[u64; N]>
    where
        Self: Sized,
    {
        let mut fields = [0; N];
        for (field, offset) in fields.iter_mut().zip(offsets) {
            *field = self.u64(object.wrapping_add(offset))?;
        }
        Some(fields)
    }

    /// Passes `bytes` bytes, beginning with the word at `at`, to `give` in pairs of words. In the
    /// last pair, bytes beyond the end are 0.
    #[inline(always)]
    fn pairs(&mut self, at: u64, bytes: u64, mut give: impl FnMut([u64; 2])) -> Option<()>
    where
        Self: Sized,
    {
        let mut word = |word: u64| self.u64(at.wrapping_add(8 * word));
        for pair in 0..bytes / 16 {
            give([word(2 * pair)?, word(2 * pair + 1)?]);
        }
        let (next, rest) = (bytes / 16 * 2, bytes % 16);
        if rest > 8 {
            give([word(next)?, word(next + 1)? & below(rest - 8)]);
        } else if rest > 0 {
            give([word(next)? & below(rest), 0]);
        }
        Some(())
    }
}

/// All fields that tprof reads in objects are at offsets below this.
pub const OBJECT: u64 = 4096;

/// A mask of the lowest `bytes` bytes of a word; `bytes` is 1 to 8.
#[inline(always)]
pub fn below(bytes: u64) -> u64 {
    u64::MAX >> (64 - 8 * bytes)
}

/// The four-byte field at an offset, from the word that contains it.
#[inline(always)]
pub fn u32_in(word: u64, offset: u64) -> u32 {
    (word >> ((offset & 4) * 8)) as u32
}

/// The one-byte field at an offset, from the word that contains it.
#[inline(always)]
pub fn u8_in(word: u64, offset: u64) -> u8 {
    (word >> ((offset & 7) * 8)) as u8
}
