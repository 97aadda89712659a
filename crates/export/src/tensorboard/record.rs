//! Writes TFRecord, the format in which TensorBoard finds the records of a file and verifies them.
//!
//! A record consists of its length (8 bytes, little-endian), the length's masked CRC32C, the bytes,
//! and the bytes' masked CRC32C (`tensorflow/core/lib/io/record_writer.h`).

use std::io::{self, Write};

use crc::{CRC_32_ISCSI, Crc};

/// CRC32C: Castagnoli's polynomial.
const CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
/// Added to the rotated checksum. Without this mask, checksums of bytes that contain checksums
/// would be weaker.
const MASK: u32 = 0xa282_ead8;

fn masked_crc32c(bytes: &[u8]) -> u32 {
    CRC32C.checksum(bytes).rotate_right(15).wrapping_add(MASK)
}

/// Writes one record.
pub(super) fn write<W: Write>(to: &mut W, bytes: &[u8]) -> io::Result<()> {
    let length = (bytes.len() as u64).to_le_bytes();
    to.write_all(&length)?;
    to.write_all(&masked_crc32c(&length).to_le_bytes())?;
    to.write_all(bytes)?;
    to.write_all(&masked_crc32c(bytes).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_rfc_3720_and_are_masked() {
        // Test vectors of RFC 3720, B.4: 32 bytes of zeros, of ones, and rising.
        assert_eq!(CRC32C.checksum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(CRC32C.checksum(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(CRC32C.checksum(&rising), 0x46dd_794e);
        // The length is 24, as that of the first record in event files by TensorFlow and PyTorch.
        assert_eq!(masked_crc32c(&24_u64.to_le_bytes()).to_le_bytes(), [0xa3, 0x7f, 0x4b, 0x22]);
    }

    #[test]
    fn a_record_is_framed_by_its_length_and_checksums() {
        let mut bytes = Vec::new();
        write(&mut bytes, b"event").unwrap();
        assert_eq!(bytes.len(), 8 + 4 + 5 + 4);
        assert_eq!(bytes[..8], 5_u64.to_le_bytes());
        assert_eq!(bytes[12..17], *b"event");
        assert_eq!(bytes[17..], masked_crc32c(b"event").to_le_bytes());
    }
}
