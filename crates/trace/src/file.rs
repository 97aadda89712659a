//! Encodes and parses the headers of a `.tprof` file: the file's own header, and the header of each
//! block.
//!
//! All numbers are little-endian. A file is a header followed by blocks that are self-contained. If
//! the file is cut anywhere, the blocks before the cut stay readable, and a damaged block doesn't
//! affect any other.

use crate::error::{Damage, TraceError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The format that this build writes.
pub const FORMAT_VERSION: u16 = 2;
/// The oldest format that this build reads, which is the one before [`FORMAT_VERSION`].
pub const OLDEST_READABLE: u16 = 1;
/// The oldest format whose readers can read what this build writes. Format 2 stores stacks in
/// columns that readers of format 1 don't know.
const OLDEST_READER: u16 = 2;

/// The first bytes of a file. A copy in text mode changes the NUL or the line ends, so the reader
/// notices such a copy.
pub(crate) const MAGIC: [u8; 8] = *b"TPROF\0\r\n";
/// The first bytes of a block.
pub(crate) const BLOCK_MAGIC: [u8; 4] = *b"tpB\xf1";
/// Size of the fixed part of a file's header, bytes.
pub(crate) const PREFIX_BYTES: usize = 32;
/// Size of a block's header, bytes.
pub(crate) const BLOCK_HEADER_BYTES: usize = 64;
/// Maximum size of a block, stored or decoded, bytes.
pub(crate) const MAX_BLOCK_BYTES: usize = 64 << 20;
/// Maximum number of rows in a block.
pub(crate) const MAX_ROWS: usize = 1 << 20;
/// Bits of the required features that this reader knows: none yet.
pub(crate) const KNOWN_FEATURES: u64 = 0;
/// Value of [`BlockHeader::process`] for a block that belongs to no single process.
pub(crate) const NO_PROCESS: u32 = u32::MAX;

/// A file's description of itself, before its first block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceHeader {
    /// Name of the host on which the file was recorded.
    pub host: String,
    /// Rank, if it was known when the file was opened.
    pub rank: Option<u32>,
    /// Whether the file was opened before its rank was known. The rank is then in the file's name.
    pub provisional: bool,
    /// Number of times that an elastic launcher had started the rank before.
    pub instance: u32,
    /// Time when recording began, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// The same moment in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// Version of tprof that wrote the recording.
    pub tprof: String,
    /// Directory beside the file that has its last part in segments until the run ends
    /// ([`crate::KEEP_MARK`]); empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub segments: String,
}

impl TraceHeader {
    /// Encodes the header.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_of(0)
    }

    /// Like [`Self::to_bytes`], but pads the JSON with spaces to `body_bytes`.
    pub(crate) fn to_bytes_of(&self, body_bytes: usize) -> Vec<u8> {
        let mut body = serde_json::to_vec(self).unwrap_or_default();
        body.resize(body.len().max(body_bytes), b' ');
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&OLDEST_READER.to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&KNOWN_FEATURES.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }
}

/// The fixed part of a file's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    /// Size of the JSON that follows, bytes.
    pub body: u32,
    /// Checksum of the JSON.
    pub body_crc: u32,
    /// Whether the prefix matches its own checksum.
    pub sound: bool,
}

impl Prefix {
    /// Parses a file's first bytes, and checks that this build can read the file.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Prefix, TraceError> {
        let path = || path.to_path_buf();
        if bytes.is_empty() {
            return Err(TraceError::Empty { path: path() });
        }
        let seen = bytes.len().min(MAGIC.len());
        if bytes[..seen] != MAGIC[..seen] {
            return Err(TraceError::NotTprof { path: path() });
        }
        let Some(bytes) = bytes.first_chunk::<PREFIX_BYTES>() else {
            return Err(TraceError::CutOff { path: path() });
        };
        let written = u16_at(bytes, 8);
        let needed = u16_at(bytes, 10);
        let (oldest, newest) = (OLDEST_READABLE, FORMAT_VERSION);
        if needed > newest {
            return Err(TraceError::Newer { path: path(), written, needed, oldest, newest });
        }
        if written < oldest {
            return Err(TraceError::Older { path: path(), written, oldest, newest });
        }
        let bits = u64_at(bytes, 16) & !KNOWN_FEATURES;
        if bits != 0 {
            return Err(TraceError::Features { path: path(), bits, newest });
        }
        Ok(Prefix {
            body: u32_at(bytes, 12),
            body_crc: u32_at(bytes, 24),
            sound: u32_at(bytes, 28) == crc32fast::hash(&bytes[..28]),
        })
    }
}

/// The header of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// Number of the table (`tables.rs`). Blocks of unknown tables are skipped.
    pub table: u16,
    /// Reserved: no flags are defined.
    pub flags: u16,
    /// Number of rows.
    pub rows: u32,
    /// Size of the columns before encoding, bytes. Readers use it as a bound.
    pub raw_len: u32,
    /// Size of the payload that follows, bytes.
    pub stored_len: u32,
    /// The process of all rows; [`NO_PROCESS`] if each row has its own.
    pub process: u32,
    /// Earliest time in the block; 0 if its rows have no time.
    pub first_ns: u64,
    /// Latest time in the block.
    pub last_ns: u64,
    /// For heap blocks, the ordinal of the first allocation. For index and end blocks, the offset
    /// of the previous index part, or 0 if this is the first. Otherwise 0.
    pub base: u64,
    /// Checksum of the payload.
    pub payload_crc: u32,
}

impl BlockHeader {
    /// Returns the size of the block in the file, bytes.
    pub fn bytes(&self) -> u64 {
        BLOCK_HEADER_BYTES as u64 + u64::from(self.stored_len)
    }

    /// Encodes the header, with its own checksum at the end.
    pub fn to_bytes(self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&BLOCK_MAGIC);
        bytes[4..6].copy_from_slice(&self.table.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.rows.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.process.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first_ns.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.last_ns.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.base.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Parses a block's header, and checks its checksum and the bounds of its lengths.
    pub fn parse(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Result<BlockHeader, Damage> {
        if bytes[..4] != BLOCK_MAGIC {
            return Err(Damage::new("no block begins here"));
        }
        if crc32fast::hash(&bytes[..60]) != u32_at(bytes, 60) {
            return Err(Damage::new("a block's header does not match its checksum"));
        }
        let header = BlockHeader {
            table: u16_at(bytes, 4),
            flags: u16_at(bytes, 6),
            rows: u32_at(bytes, 8),
            raw_len: u32_at(bytes, 12),
            stored_len: u32_at(bytes, 16),
            process: u32_at(bytes, 20),
            first_ns: u64_at(bytes, 24),
            last_ns: u64_at(bytes, 32),
            base: u64_at(bytes, 40),
            payload_crc: u32_at(bytes, 48),
        };
        if header.raw_len as usize > MAX_BLOCK_BYTES || header.stored_len as usize > MAX_BLOCK_BYTES
        {
            return Err(Damage::new("a block claims more than 64 MiB"));
        }
        Ok(header)
    }
}

/// Reads two bytes. The caller must have checked the length.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes[at..].first_chunk().map_or(0, |b| u16::from_le_bytes(*b))
}

/// Reads four bytes. The caller must have checked the length.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
}

/// Reads eight bytes. The caller must have checked the length.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}
