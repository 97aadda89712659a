//! Reads numbers in DWARF's encodings from a slice of bytes.

/// The bytes that have not been read yet.
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes }
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*first)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Reads an unsigned number of at most 63 bits.
    pub fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a signed number of at most 63 bits.
    pub fn sleb(&mut self) -> Option<i64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.u8()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let unused = 64 - 7 - shift;
                return Some(value << unused >> unused);
            }
        }
        None
    }

    /// Reads an unsigned number and multiplies it by `align`.
    pub fn factored(&mut self, align: i64) -> Option<i64> {
        self.uleb()?.cast_signed().checked_mul(align)
    }

    /// Reads `length` bytes.
    pub fn slice(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(usize::try_from(length).ok()?)?;
        self.bytes = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_dwarfs_examples_are_decoded() {
        // These are the examples of DWARF 5, 7.6.
        for (value, bytes) in
            [(2, &[2][..]), (127, &[127]), (128, &[0x80, 1]), (12857, &[0xb9, 100])]
        {
            assert_eq!(Input::new(bytes).uleb(), Some(value));
        }
        let signed = [
            (2, &[2][..]),
            (-2, &[0x7e]),
            (127, &[0xff, 0]),
            (-127, &[0x81, 0x7f]),
            (128, &[0x80, 1]),
            (-129, &[0xff, 0x7e]),
        ];
        for (value, bytes) in signed {
            assert_eq!(Input::new(bytes).sleb(), Some(value));
        }
        assert_eq!(Input::new(&[0x80]).uleb(), None);
        assert_eq!(Input::new(&[0xff; 12]).uleb(), None);
        assert_eq!(Input::new(&[0xff; 12]).sleb(), None);
    }
}
