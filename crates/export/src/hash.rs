//! Numbers made of several, for ids that must differ.

/// The same for the same values, in every run and version.
pub(crate) fn of(values: &[u64]) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15u64;
    for value in values {
        hash = (hash ^ value).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
    }
    hash
}
