//! Finds the blocks of a file through its index, or by walking from header to header.

use crate::columns::BlockWriter;
use crate::columns_read::Columns;
use crate::error::{Damage, Problem};
use crate::file::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, BlockHeader};
use crate::planes::PlaneReader;
use crate::tables::{Part, Row, rows, table};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Number of bytes that are read at once when searching for the next block.
const SEARCH_BYTES: usize = 1 << 20;
/// Maximum number of problems that are kept. The first ones are enough to describe a file full of
/// damage.
const MAX_PROBLEMS: usize = 1000;
/// Payload size of a block without columns: only the number of columns.
const END_PAYLOAD_BYTES: u64 = 2;

/// Memory that decoded blocks may take in any case, bytes.
const MEMORY_BYTES: u64 = 256 << 20;
/// Memory that decoded blocks may take in addition, for each byte of the file.
const MEMORY_BYTES_PER_BYTE: u64 = 256;

/// The offset of a block, and its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexRow {
    pub offset: u64,
    pub header: BlockHeader,
}

impl Row for IndexRow {
    const TABLE: u16 = table::INDEX;

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.time(1, rows, |r| r.offset);
        block.uint(2, rows, |r| r.header.table.into());
        block.uint(3, rows, |r| r.header.flags.into());
        block.uint(4, rows, |r| r.header.rows.into());
        block.uint(5, rows, |r| r.header.raw_len.into());
        block.uint(6, rows, |r| r.header.stored_len.into());
        block.uint(7, rows, |r| r.header.process.into());
        block.time(8, rows, |r| r.header.first_ns);
        block.time(9, rows, |r| r.header.last_ns);
        block.time(10, rows, |r| r.header.base);
        block.uint(11, rows, |r| r.header.payload_crc.into());
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (offset, table, flags) = (columns.uint(1)?, columns.narrow(2)?, columns.narrow(3)?);
        let (row_count, raw_len, stored_len) =
            (columns.narrow(4)?, columns.narrow(5)?, columns.narrow(6)?);
        let (process, first_ns, last_ns) = (columns.narrow(7)?, columns.uint(8)?, columns.uint(9)?);
        let (base, payload_crc) = (columns.uint(10)?, columns.narrow(11)?);
        Ok(rows(columns, |i| IndexRow {
            offset: offset[i],
            header: BlockHeader {
                table: table[i] as u16,
                flags: flags[i] as u16,
                rows: row_count[i],
                raw_len: raw_len[i],
                stored_len: stored_len[i],
                process: process[i],
                first_ns: first_ns[i],
                last_ns: last_ns[i],
                base: base[i],
                payload_crc: payload_crc[i],
            },
        }))
    }
}

/// An open file of fixed length, and the segments that belong to it ([`crate::kept`]), as if they
/// followed it. Bytes that are appended later aren't read.
#[derive(Debug)]
pub(crate) struct Source {
    files: Vec<SourceFile>,
    pub length: u64,
}

/// One of the files of a source. No block lies in two of them.
#[derive(Debug)]
struct SourceFile {
    file: File,
    /// Offset of the file's first byte in the source.
    start: u64,
    /// Offset of the end of the file in the source.
    end: u64,
}

impl Source {
    /// Returns a source of one file.
    pub fn of(file: File, length: u64) -> Source {
        Source { files: vec![SourceFile { file, start: 0, end: length }], length }
    }

    /// Adds a file behind the others.
    pub fn append(&mut self, file: File) -> io::Result<()> {
        let start = self.length;
        self.length += file.metadata()?.len();
        self.files.push(SourceFile { file, start, end: self.length });
        Ok(())
    }

    /// Returns the first file.
    pub fn file(&self) -> &File {
        &self.files[0].file
    }

    fn file_at(&self, offset: u64) -> &SourceFile {
        let after = self.files.partition_point(|file| file.start <= offset);
        &self.files[after.saturating_sub(1)]
    }

    /// Reads bytes of one file.
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let from = self.file_at(offset);
        from.file.read_exact_at(bytes, offset - from.start)
    }

    fn header(&self, offset: u64) -> io::Result<Result<BlockHeader, Damage>> {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        self.read_exact_at(&mut bytes, offset)?;
        let header = BlockHeader::parse(&bytes);
        let end = self.file_at(offset).end;
        Ok(header.and_then(|header| match offset + header.bytes() <= end {
            true => Ok(header),
            false => Err(Damage::new("the last block was cut off")),
        }))
    }

    /// Returns how many bytes decoded blocks may take at once. Every file that tprof wrote fits,
    /// and a small hostile file can't take much memory.
    pub fn memory_limit(&self) -> u64 {
        MEMORY_BYTES.saturating_add(self.length.saturating_mul(MEMORY_BYTES_PER_BYTE))
    }

    /// Returns how many bytes the rows of one large table may decode to, all blocks together.
    /// Kernels that repeat evenly take only a 20,000th of their decoded size in the file, so the
    /// file's size says little. The limit is therefore at least half of the machine's memory.
    pub fn rows_limit(&self) -> u64 {
        static HALF: OnceLock<u64> = OnceLock::new();
        self.memory_limit().max(*HALF.get_or_init(|| machine_memory().unwrap_or(0) / 2))
    }

    /// Reads a block's payload and verifies its checksum.
    pub fn payload(&self, block: &IndexRow, out: &mut Vec<u8>) -> Result<(), Damage> {
        out.resize(block.header.stored_len as usize, 0);
        self.read_exact_at(out, block.offset + BLOCK_HEADER_BYTES as u64)
            .map_err(|error| Damage::new(format!("a block cannot be read: {error}")))?;
        match crc32fast::hash(out) == block.header.payload_crc {
            true => Ok(()),
            false => Err(Damage::new("a block does not match its checksum")),
        }
    }

    /// Reads and decodes all rows of a block.
    pub fn rows<R: Part>(
        &self,
        block: &IndexRow,
        payload: &mut Vec<u8>,
        planes: &mut PlaneReader,
    ) -> Result<Vec<R>, Damage> {
        self.payload(block, payload)?;
        R::read(&mut Columns::parse(payload, &block.header, planes)?)
    }

    /// Returns the blocks that the index of a finished file lists; `None` if there is no valid
    /// index.
    pub fn indexed(&self, start: u64, planes: &mut PlaneReader) -> Option<Vec<IndexRow>> {
        let end = self.length.checked_sub(BLOCK_HEADER_BYTES as u64 + END_PAYLOAD_BYTES)?;
        let header = self.header(end).ok()?.ok()?;
        if header.table != table::END || header.base == 0 {
            return None;
        }
        let mut payload = Vec::new();
        let (mut parts, mut offset) = (Vec::new(), header.base);
        let mut limit = end;
        let mut most = self.length / BLOCK_HEADER_BYTES as u64;
        while offset != 0 {
            if offset < start || offset >= limit {
                return None;
            }
            let header = self.header(offset).ok()?.ok()?;
            if header.table != table::INDEX {
                return None;
            }
            most = most.checked_sub(u64::from(header.rows))?;
            let mut part: Vec<IndexRow> =
                self.rows(&IndexRow { offset, header }, &mut payload, planes).ok()?;
            part.reverse();
            parts.append(&mut part);
            // An index part lies before the blocks that follow it. So offsets that don't decrease
            // along the chain mean damage.
            (limit, offset) = (offset, header.base);
        }
        parts.reverse();
        let mut free = start;
        for block in &parts {
            if block.offset < free || block.offset.checked_add(block.header.bytes())? > end {
                return None;
            }
            free = block.offset + block.header.bytes();
        }
        Some(parts)
    }

    /// Returns the blocks found by walking from one to the next. Damaged bytes are skipped.
    pub fn walked(&self, start: u64, problems: &mut Vec<Problem>) -> io::Result<Vec<IndexRow>> {
        let mut blocks = Vec::new();
        for file in &self.files {
            let mut offset = start.max(file.start);
            while offset < file.end {
                let left = file.end - offset;
                let damage = if left < BLOCK_HEADER_BYTES as u64 {
                    Damage::new("the last block was cut off within its header")
                } else {
                    match self.header(offset)? {
                        Ok(header) => {
                            blocks.push(IndexRow { offset, header });
                            offset += header.bytes();
                            continue;
                        }
                        Err(damage) => damage,
                    }
                };
                let next = self.search(offset + 1)?;
                let skipped = next.unwrap_or(file.end) - offset;
                note(problems, offset, format!("{}: {skipped} bytes skipped", damage.0));
                offset = next.unwrap_or(file.end);
            }
        }
        Ok(blocks)
    }

    /// Returns the offset of the first valid block header at or after `offset`, in the same file.
    pub fn search(&self, mut offset: u64) -> io::Result<Option<u64>> {
        let mut bytes = Vec::new();
        let end = self.file_at(offset).end;
        while offset + (BLOCK_HEADER_BYTES as u64) <= end {
            let size = (end - offset).min(SEARCH_BYTES as u64) as usize;
            bytes.resize(size, 0);
            self.read_exact_at(&mut bytes, offset)?;
            let headers = bytes.len() + 1 - BLOCK_HEADER_BYTES;
            for at in 0..headers {
                if bytes[at..].starts_with(&BLOCK_MAGIC) && self.header(offset + at as u64)?.is_ok()
                {
                    return Ok(Some(offset + at as u64));
                }
            }
            offset += headers as u64;
        }
        Ok(None)
    }
}

/// Adds a problem, unless there are too many already.
pub(crate) fn note(problems: &mut Vec<Problem>, offset: u64, what: String) {
    match problems.len() {
        0..MAX_PROBLEMS => problems.push(Problem { offset, what }),
        MAX_PROBLEMS => problems.push(Problem { offset, what: "and more of the kind".to_owned() }),
        _ => (),
    }
}

/// Returns this machine's memory size, bytes.
fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
