//! The layout of the records that define a name or a list of sizes. Other records refer to these by
//! an id.

use crate::gpu::{MAX_TEXT_BYTES, TEXT_WORDS, pack_text};

/// Maximum number of bytes of a name or list that a definition stores. The rest is cut off.
pub const MAX_KEPT_BYTES: usize = MAX_TEXT_BYTES;
/// Maximum number of words of a definition's payload.
pub const WORDS: usize = TEXT_WORDS;

/// Packs a definition: stored bytes | all bytes << 32, then the bytes, cut at [`MAX_KEPT_BYTES`]
/// and padded with NULs. Returns the number of words.
pub fn pack(bytes: &[u8], words: &mut [u64; WORDS]) -> usize {
    let used = pack_text(bytes, words);
    let whole = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let [first, ..] = words;
    *first |= u64::from(whole) << 32;
    used
}

/// Returns a definition's words after the first, the number of bytes stored in them, and the number
/// of bytes before the cut. Returns `None` if fewer bytes follow than the first word says.
pub fn unpack(payload: &[u64]) -> Option<(&[u64], usize, usize)> {
    let (first, words) = payload.split_first()?;
    let (kept, whole) = (*first as u32 as usize, (*first >> 32) as usize);
    (kept <= words.len() * 8 && kept <= whole).then_some((words, kept, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_round_trip_and_contain_the_length_before_the_cut() {
        let mut words = [0; WORDS];
        let used = pack(b"aten::addmm", &mut words);
        let (rest, kept, whole) = unpack(&words[..used]).unwrap();
        assert_eq!((rest[0].to_ne_bytes(), kept, whole, used), (*b"aten::ad", 11, 11, 3));
        let long = [7; MAX_KEPT_BYTES + 9];
        let used = pack(&long, &mut words);
        let (_, kept, whole) = unpack(&words[..used]).unwrap();
        assert_eq!((kept, whole), (MAX_KEPT_BYTES, MAX_KEPT_BYTES + 9));
        assert_eq!(unpack(&words[..2]), None);
        assert_eq!(unpack(&[]), None);
    }
}
