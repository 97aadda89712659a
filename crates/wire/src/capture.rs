//! How `--capture-range`, which makes tprof record only a named range of the program, is stored in
//! the region.

/// The event that opens and closes the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CaptureTrigger {
    /// `cudaProfilerStart` and `cudaProfilerStop`.
    CudaProfiler = 1,
    /// An NVTX range with this name.
    Nvtx = 2,
    /// A `record_function` of PyTorch or a span of `tprof_abi` with this name.
    Range = 3,
}

/// Longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 120;
/// Number of words that [`pack`] returns.
pub const WORDS: usize = 1 + MAX_NAME_BYTES / 8;
const REPEATS: u64 = 1 << 8;

/// Packs the trigger into the words of [`crate::region::RegionHeader::capture`]; `None` if the name
/// is too long.
pub fn pack(opens: CaptureTrigger, name: &[u8], repeats: bool) -> Option<[u64; WORDS]> {
    let mut words = [0; WORDS];
    let [first, rest @ ..] = &mut words;
    if name.len() > rest.len() * 8 {
        return None;
    }
    *first = opens as u64 | (name.len() as u64) << 16 | if repeats { REPEATS } else { 0 };
    for (word, bytes) in rest.iter_mut().zip(name.chunks(8)) {
        let mut padded = [0; 8];
        padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        *word = u64::from_le_bytes(padded);
    }
    Some(words)
}

/// Whether a range with this trigger and name opens the capture that the words describe.
pub fn is_opened(words: &[u64; WORDS], by: CaptureTrigger, name: &[u8]) -> bool {
    let [first, ..] = words;
    pack(by, name, first & REPEATS != 0).is_some_and(|these| these == *words)
}

/// Returns the number of the [`CaptureTrigger`] in the first word; 0 if no capture is set.
pub fn opens(first: u64) -> u64 {
    first & 0xff
}

/// Whether every range with the name is captured, and not only the first one.
pub fn repeats(first: u64) -> bool {
    first & REPEATS != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_range_of_the_captures_name_and_kind_opens_it() {
        let words = pack(CaptureTrigger::Nvtx, b"a range of ten", true).unwrap();
        assert!(is_opened(&words, CaptureTrigger::Nvtx, b"a range of ten"));
        assert!(!is_opened(&words, CaptureTrigger::Nvtx, b"a range of te"));
        assert!(!is_opened(&words, CaptureTrigger::Range, b"a range of ten"));
        assert_eq!((opens(words[0]), repeats(words[0])), (2, true));
        assert!(pack(CaptureTrigger::Nvtx, &[b'x'; MAX_NAME_BYTES], false).is_some());
        assert!(pack(CaptureTrigger::Nvtx, &[b'x'; MAX_NAME_BYTES + 1], false).is_none());
    }
}
