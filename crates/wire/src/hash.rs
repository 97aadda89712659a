//! Hash functions whose results are the same in every process, run and version. tprof uses them as
//! ids of texts and as indexes of tables.

/// 2^64 divided by the golden ratio, rounded to an odd number.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The FNV-1a hash of an empty string.
pub const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// Spreads a number's bits upwards. Only the highest bits of the product depend on all bits of the
/// number, so callers should use those.
#[inline(always)]
pub const fn spread(value: u64) -> u64 {
    value.wrapping_mul(GOLDEN)
}

/// FNV-1a of some bytes.
#[inline]
pub fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_on(FNV_BASIS, bytes)
}

/// Continues the FNV-1a hash of earlier bytes with more bytes.
#[inline]
pub fn fnv1a_on(mut hash: u64, bytes: &[u8]) -> u64 {
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

/// Combines several numbers into one hash.
pub fn joined(values: &[u64]) -> u64 {
    let mut hash = GOLDEN;
    for value in values {
        hash = (hash ^ value).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_published_values() {
        assert_eq!(fnv1a(b""), FNV_BASIS);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_on(fnv1a(b"foo"), b"bar"), fnv1a(b"foobar"));
        assert_ne!(joined(&[1, 2]), joined(&[2, 1]));
    }
}
