//! Reads ELF files: headers, segments, sections, and bytes at an offset.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// `e_machine` of x86-64.
pub const EM_X86_64: u16 = 62;
/// `e_machine` of aarch64.
pub const EM_AARCH64: u16 = 183;
/// `e_machine` of programs that can load the injected libraries.
pub const EM_NATIVE: u16 = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };

pub(super) const ET_EXEC: u16 = 2;
pub(super) const ET_DYN: u16 = 3;
pub(super) const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
pub(super) const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// `p_type` of the segment with the search table, by which `.eh_frame` is found without section
/// headers.
pub const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const SHT_NOBITS: u32 = 8;
const SHF_COMPRESSED: u64 = 0x800;

/// Largest table of program headers, section headers, dynamic entries or notes that is read, bytes.
const MAX_TABLE: u64 = 4 << 20;
/// Largest length of a name, bytes.
const MAX_NAME: usize = 64 << 10;

/// The reason why a file could not be read as ELF.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file does not begin like an ELF file.
    #[error("is not an ELF file")]
    NotElf,
    /// A header points outside the file, or claims an implausible size.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    /// The file is a kind of ELF file that is not supported (32-bit or big-endian).
    #[error("is a 32-bit or big-endian ELF file")]
    OtherClass,
}

/// Where an ELF file's bytes come from: a file with its size, or memory.
#[derive(Clone, Debug)]
enum Source {
    File(Arc<File>, u64),
    Bytes(Arc<[u8]>),
}

/// One program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The header's `p_type`.
    pub kind: u32,
    /// Whether the segment is mapped executable.
    pub executable: bool,
    /// Offset in the file.
    pub offset: u64,
    /// ELF address of the segment.
    pub address: u64,
    /// Bytes in the file.
    pub file_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
}

impl Segment {
    /// Whether the segment is loaded as code.
    pub fn is_code(&self) -> bool {
        self.kind == PT_LOAD && self.executable
    }
}

/// One section header.
#[derive(Clone, Debug)]
pub struct Section {
    /// Name of the section.
    pub name: String,
    /// The header's `sh_type`.
    pub kind: u32,
    /// ELF address; 0 if the section isn't loaded.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// The header's `sh_link`.
    pub link: u32,
    flags: u64,
}

impl Section {
    /// Whether the section contains code.
    pub fn is_code(&self) -> bool {
        self.flags & 4 != 0
    }
    /// Whether the section's contents are compressed.
    pub fn is_compressed(&self) -> bool {
        self.flags & SHF_COMPRESSED != 0
    }
    /// Whether the section's contents are in the file.
    pub fn has_contents(&self) -> bool {
        self.kind != SHT_NOBITS && self.bytes > 0
    }
}

/// An open ELF file.
#[derive(Clone, Debug)]
pub struct Elf {
    source: Source,
    pub(super) is_64: bool,
    pub(super) machine: u16,
    pub(super) kind: u16,
    entry: u64,
    pub(super) segments: Vec<Segment>,
    section_table: (u64, u16, u16),
}

/// Opens a file for reading, without blocking if the file is a pipe.
pub fn open(path: &Path) -> std::io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Returns the `u16` at `at`, or 0 beyond the end.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

/// Returns the `u32` at `at`, or 0 beyond the end.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Returns the `u64` at `at`, or 0 beyond the end.
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Elf {
    /// Opens a file by path.
    pub fn open(path: &Path) -> Result<Elf, ElfError> {
        Elf::from_file(Arc::new(open(path)?))
    }

    /// Reads an open file.
    pub fn from_file(file: Arc<File>) -> Result<Elf, ElfError> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(ElfError::NotElf);
        }
        Elf::parse(Source::File(file, meta.len()))
    }

    /// Reads an image in memory, such as the vDSO.
    pub fn from_bytes(bytes: Arc<[u8]>) -> Result<Elf, ElfError> {
        Elf::parse(Source::Bytes(bytes))
    }

    fn parse(source: Source) -> Result<Elf, ElfError> {
        let mut elf = Elf {
            source,
            is_64: false,
            machine: 0,
            kind: 0,
            entry: 0,
            segments: Vec::new(),
            section_table: (0, 0, 0),
        };
        let head = elf.read(0, elf.len().min(64)).map_err(|_| ElfError::NotElf)?;
        if !head.starts_with(b"\x7fELF") || head.len() < 20 {
            return Err(ElfError::NotElf);
        }
        elf.is_64 = head[4] == 2 && head[5] == 1;
        elf.kind = u16_at(&head, 16);
        elf.machine = u16_at(&head, 18);
        if !elf.is_64 {
            return Ok(elf);
        }
        if head.len() < 64 {
            return Err(ElfError::Damaged("the header is cut short"));
        }
        elf.entry = u64_at(&head, 24);
        elf.section_table = (u64_at(&head, 40), u16_at(&head, 60), u16_at(&head, 62));
        let (entry_bytes, count) = (u16_at(&head, 54), u16_at(&head, 56));
        if count > 0 && entry_bytes != 56 {
            return Err(ElfError::Damaged("program headers have an unknown size"));
        }
        let table = elf.read(u64_at(&head, 32), u64::from(count) * 56)?;
        elf.segments = table.chunks_exact(56).map(parse_segment).collect();
        Ok(elf)
    }

    /// Returns the number of bytes in the file.
    pub fn len(&self) -> u64 {
        match &self.source {
            Source::File(_, bytes) => *bytes,
            Source::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the ELF address of the entry point; 0 if the file has none.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Returns the header's `e_machine`.
    pub fn machine(&self) -> u16 {
        self.machine
    }

    /// Whether the file is 64-bit and little-endian. If not, its headers are not read.
    pub fn is_64(&self) -> bool {
        self.is_64
    }

    /// Returns the program headers, one per segment.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the open file; `None` for an image in memory.
    pub(crate) fn file(&self) -> Option<&Arc<File>> {
        match &self.source {
            Source::File(file, _) => Some(file),
            Source::Bytes(_) => None,
        }
    }

    /// Reads `bytes` bytes at `offset`. Fails if they aren't all within the file.
    pub fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, ElfError> {
        const OUTSIDE: ElfError = ElfError::Damaged("an offset lies outside the file");
        let end = offset.checked_add(bytes).ok_or(OUTSIDE)?;
        if end > self.len() {
            return Err(OUTSIDE);
        }
        match &self.source {
            Source::File(file, _) => {
                let mut buffer = vec![0; usize::try_from(bytes).map_err(|_| OUTSIDE)?];
                file.read_exact_at(&mut buffer, offset)?;
                Ok(buffer)
            }
            Source::Bytes(all) => {
                all.get(offset as usize..end as usize).map(<[u8]>::to_vec).ok_or(OUTSIDE)
            }
        }
    }

    /// Reads up to `bytes` bytes at `offset`; fewer if the file ends earlier.
    pub(super) fn read_some(&self, offset: u64, bytes: u64) -> Vec<u8> {
        let there = self.len().saturating_sub(offset);
        self.read(offset, bytes.min(there)).unwrap_or_default()
    }

    /// Reads the NUL-terminated string at `offset`.
    pub(crate) fn string(&self, offset: u64) -> Option<Vec<u8>> {
        let mut bytes = 256;
        loop {
            let mut read = self.read_some(offset, bytes as u64);
            if let Some(end) = read.iter().position(|b| *b == 0) {
                read.truncate(end);
                return Some(read);
            }
            if read.len() < bytes || bytes >= MAX_NAME {
                return None;
            }
            bytes *= 8;
        }
    }

    /// Returns the file offset of the byte that is loaded at an ELF address.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments
            .iter()
            .filter(|s| s.kind == PT_LOAD)
            .find(|s| address >= s.address && address - s.address < s.file_bytes)
            .and_then(|s| s.offset.checked_add(address - s.address))
    }

    /// Returns the section headers; empty if the file has none or they are damaged.
    pub fn sections(&self) -> Vec<Section> {
        let (offset, count, names) = self.section_table;
        let bytes = u64::from(count) * 64;
        if !self.is_64 || bytes > MAX_TABLE {
            return Vec::new();
        }
        let table = self.read(offset, bytes).unwrap_or_default();
        let header = |index: usize| table.get(index * 64..index * 64 + 64);
        let names = header(usize::from(names))
            .map(|h| self.read_some(u64_at(h, 24), u64_at(h, 32).min(MAX_TABLE)))
            .unwrap_or_default();
        table.chunks_exact(64).map(|header| parse_section(header, &names)).collect()
    }

    /// Returns the contents of a section. Fails if they have more than `limit` bytes.
    pub fn contents(&self, section: &Section, limit: u64) -> Result<Vec<u8>, ElfError> {
        if section.bytes > limit {
            return Err(ElfError::Damaged("a section is too large"));
        }
        self.read(section.offset, section.bytes)
    }

    /// Returns the build id in hex; empty if the file has none.
    pub fn build_id(&self) -> String {
        let notes = self.segments.iter().filter(|s| s.kind == PT_NOTE);
        for segment in notes.take(16) {
            let bytes = self.read_some(segment.offset, segment.file_bytes.min(64 << 10));
            if let Some(id) = build_id_in(&bytes) {
                return id;
            }
        }
        // A separate debug file has the program headers of its original file, which aren't valid
        // for it, so the section with the id is read.
        let section = self.sections().into_iter().find(|s| s.name == ".note.gnu.build-id");
        section
            .and_then(|s| self.contents(&s, 64 << 10).ok())
            .and_then(|bytes| build_id_in(&bytes))
            .unwrap_or_default()
    }

    /// Returns the entries of the dynamic section: tag and value.
    pub(super) fn dynamic(&self) -> Vec<(u64, u64)> {
        let Some(segment) = self.segments.iter().find(|s| s.kind == PT_DYNAMIC) else {
            return Vec::new();
        };
        self.read_some(segment.offset, segment.file_bytes.min(MAX_TABLE))
            .chunks_exact(16)
            .map(|entry| (u64_at(entry, 0), u64_at(entry, 8)))
            .take_while(|entry| entry.0 != 0)
            .collect()
    }
}

fn parse_segment(header: &[u8]) -> Segment {
    Segment {
        kind: u32_at(header, 0),
        executable: u32_at(header, 4) & 1 != 0,
        offset: u64_at(header, 8),
        address: u64_at(header, 16),
        file_bytes: u64_at(header, 32),
        memory_bytes: u64_at(header, 40),
    }
}

fn parse_section(header: &[u8], names: &[u8]) -> Section {
    let name = names.get(u32_at(header, 0) as usize..).unwrap_or_default();
    let name = name.split(|b| *b == 0).next().unwrap_or_default();
    Section {
        name: String::from_utf8_lossy(&name[..name.len().min(256)]).into_owned(),
        kind: u32_at(header, 4),
        flags: u64_at(header, 8),
        address: u64_at(header, 16),
        offset: u64_at(header, 24),
        bytes: u64_at(header, 32),
        link: u32_at(header, 40),
    }
}

/// Returns the GNU build id in hex, from the bytes of a note segment.
pub(crate) fn build_id_in(mut bytes: &[u8]) -> Option<String> {
    while bytes.len() >= 12 {
        let (name, desc) = (u32_at(bytes, 0) as usize, u32_at(bytes, 4) as usize);
        let kind = u32_at(bytes, 8);
        let desc_at = name.checked_next_multiple_of(4)?.checked_add(12)?;
        let end = desc_at.checked_add(desc)?;
        let content = bytes.get(desc_at..end)?;
        if kind == 3 && bytes.get(12..16) == Some(b"GNU\0") && desc <= 64 {
            return Some(content.iter().map(|b| format!("{b:02x}")).collect());
        }
        bytes = bytes.get(end.checked_next_multiple_of(4)?..)?;
    }
    None
}
