//! The format of a cached file, in this order: a magic number, the checksum of all that follows it,
//! the lengths of the key and of the content in bytes, the key, zeros up to a multiple of 8, and
//! the content.
//!
//! Numbers are in the machine's byte order, as in unwind tables. A file isn't meant for other
//! machines: there its key or its checksum doesn't match, so it has no content.

use rustc_hash::FxHasher;
use std::hash::Hasher;
use std::ops::Range;

const MAGIC: &[u8; 8] = b"tprofkpt";
/// Bytes of the magic number, the checksum, the length of the key and the length of the content.
const HEAD: usize = 8 + 8 + 4 + 8;

/// Returns the bytes of a cached file with this key and content, which may be in several parts.
pub(super) fn encode(key: &str, content: &[&[u8]]) -> Vec<u8> {
    let bytes: usize = content.iter().map(|part| part.len()).sum();
    let start = content_start(key.len());
    let mut file = Vec::with_capacity(start + bytes);
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&[0; 8]);
    file.extend_from_slice(&(key.len() as u32).to_ne_bytes());
    file.extend_from_slice(&(bytes as u64).to_ne_bytes());
    file.extend_from_slice(key.as_bytes());
    file.resize(start, 0);
    content.iter().for_each(|part| file.extend_from_slice(part));
    let sum = checksum(&file);
    file[8..16].copy_from_slice(&sum.to_ne_bytes());
    file
}

/// Returns the range of the content in the bytes of a cached file; `None` if the file is damaged or
/// has another key.
pub(super) fn content(file: &[u8], key: &str) -> Option<Range<usize>> {
    let (magic, rest) = file.split_first_chunk::<8>()?;
    let (sum, rest) = rest.split_first_chunk::<8>()?;
    let (key_bytes, rest) = rest.split_first_chunk::<4>()?;
    let (bytes, rest) = rest.split_first_chunk::<8>()?;
    let key_bytes = u32::from_ne_bytes(*key_bytes) as usize;
    let is_of_key = magic == MAGIC && rest.get(..key_bytes)? == key.as_bytes();
    let start = content_start(key_bytes);
    let end = start.checked_add(usize::try_from(u64::from_ne_bytes(*bytes)).ok()?)?;
    let is_whole = is_of_key && end == file.len() && checksum(file) == u64::from_ne_bytes(*sum);
    is_whole.then_some(start..end)
}

/// Returns the offset of the content, which is a multiple of 8, so that tables in it are aligned.
fn content_start(key_bytes: usize) -> usize {
    (HEAD + key_bytes).next_multiple_of(8)
}

/// Returns the checksum of everything after the place of the checksum. It detects damage. It
/// doesn't detect forgery, which isn't needed, because only the user's own programs can write here.
/// It is three times as fast as a CRC without the processor's CRC instruction.
fn checksum(file: &[u8]) -> u64 {
    let mut sum = FxHasher::default();
    sum.write(file.get(16..).unwrap_or_default());
    sum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_or_one_with_another_key_has_no_content() {
        let file = encode("rows ab", &[b"first ", b"second"]);
        let found = content(&file, "rows ab").unwrap();
        assert_eq!(&file[found.clone()], b"first second");
        assert_eq!(found.start % 8, 0);
        assert_eq!(content(&file, "rows ac"), None);
        assert_eq!(content(&file, "rows a"), None);
        for len in 0..file.len() {
            assert_eq!(content(&file[..len], "rows ab"), None, "cut to {len}");
        }
        for at in 0..file.len() {
            let mut other = file.clone();
            other[at] ^= 4;
            assert_eq!(content(&other, "rows ab"), None, "byte {at}");
        }
        let mut longer = file.clone();
        longer.push(0);
        assert_eq!(content(&longer, "rows ab"), None);
    }
}
