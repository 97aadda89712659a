//! Looks up inlined functions and source lines in a file's `.debug_info`.
//!
//! Debug information is mapped instead of read, because a look-up touches few of its pages. The
//! file belongs to the job, which may truncate it while it is mapped. Therefore its size is checked
//! before each look-up, and a file that has shrunk isn't used any more.
//!
//! Everything that addr2line has parsed stays in memory. If the estimated size exceeds
//! [`MAX_PARSED`], all of it is dropped and parsing starts over.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{EndianReader, LittleEndian, Reader as _, Section as _, SectionId};

use crate::ResolvedFrame;
use crate::demangle::{MAX_NAME, cut, demangle, is_mangled};
use crate::elf::{self, Elf, u32_at, u64_at};

/// Largest `.debug_info` from which functions are looked up, bytes. If it is larger, only lines are
/// looked up, and functions come from the symbol table.
const MAX_FUNCTIONS_INFO: u64 = 64 << 20;
/// Largest `.debug_info` that is used at all, bytes.
const MAX_INFO: u64 = 1 << 30;
/// Largest total size of a module's compressed sections after decompression, bytes.
const MAX_UNFOLDED: u64 = 64 << 20;
/// Largest estimated size of a module's parsed units, bytes.
const MAX_PARSED: u64 = 32 << 20;
/// Memory that a parsed unit takes regardless of its size, for file names and abbreviations, bytes.
/// This and the factors in [`DebugInfo::account`] were measured with libc (912 units, 39 MB),
/// libpython (150, 26 MB) and a Rust program (245, 26 MB).
const UNIT_BYTES: u64 = 36 << 10;
/// Sections about variables and macros. They aren't needed, and decompressing them would take time.
const UNUSED: [SectionId; 6] = [
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugNames,
    SectionId::DebugTypes,
];
/// Largest number of inlined functions at one address.
const MAX_INLINED: usize = 64;

type Reader = EndianReader<LittleEndian, Contents>;

/// The bytes of a section: mapped with the whole file, or decompressed.
#[derive(Clone, Debug)]
enum Contents {
    Mapped(Arc<memmap2::Mmap>),
    Unfolded(Arc<Vec<u8>>),
}

impl Deref for Contents {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Contents::Mapped(map) => map,
            Contents::Unfolded(bytes) => bytes,
        }
    }
}

// SAFETY: both variants are an `Arc`, and `deref` returns bytes that the `Arc` owns. Moving a
// `Contents` doesn't move these bytes, and nothing resizes them, because no other code has mutable
// access.
#[allow(unsafe_code, reason = "gimli's owned reader asks for this promise")]
unsafe impl gimli::StableDeref for Contents {}
// SAFETY: a clone is another handle of the same `Arc`, so its bytes have the same address.
#[allow(unsafe_code, reason = "gimli's owned reader asks for this promise")]
unsafe impl gimli::CloneStableDeref for Contents {}

/// A mapped file. Its size may change after it was mapped.
struct MappedFile {
    file: Arc<File>,
    map: Arc<memmap2::Mmap>,
}

impl MappedFile {
    fn open(elf: &Elf) -> Option<MappedFile> {
        let file = Arc::clone(elf.file()?);
        // SAFETY: the mapping is private and read-only, but others may write to the file. If bytes
        // change between two reads, gimli sees malformed data, which it handles, because it copies
        // each value with a bounds check. `is_whole` notices a truncated file before each look-up.
        // If the file is truncated during a look-up, the collector may still get SIGBUS.
        #[allow(unsafe_code, reason = "debug information is too large to be read")]
        let map = unsafe { memmap2::Mmap::map(&*file) }.ok()?;
        Some(MappedFile { file, map: Arc::new(map) })
    }

    /// Whether the file is still as long as the mapping.
    fn is_whole(&self) -> bool {
        self.file.metadata().is_ok_and(|m| m.len() >= self.map.len() as u64)
    }
}

/// The debug information for one address.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Frames {
    /// Frames, innermost first.
    pub frames: Vec<ResolvedFrame>,
    /// Whether the name of the last frame comes from a mangled name, so that it has its namespace.
    /// If a compiler was asked for lines only, its names lack the namespace.
    pub outermost_is_full: bool,
}

/// The debug information of one module.
pub(crate) struct DebugInfo {
    sections: Arc<gimli::Dwarf<Reader>>,
    /// The parsed units; `None` only if the context could not be created again.
    context: Option<addr2line::Context<Reader>>,
    files: Vec<MappedFile>,
    functions: bool,
    unfolded: u64,
    /// Estimated memory of the parsed abbreviations, which addr2line parses for all units at the
    /// start.
    abbreviations: u64,
    /// Offsets of the units that were parsed since the context was last created.
    units: HashSet<usize>,
    parsed: u64,
}

impl DebugInfo {
    /// Whether a file itself contains debug information.
    pub fn is_in(elf: &Elf) -> bool {
        elf.sections().iter().any(|s| s.name == ".debug_info" && s.has_contents())
    }

    /// Whether a file's debug information has to be decompressed.
    pub fn is_compressed_in(elf: &Elf) -> bool {
        elf.sections().iter().any(|s| s.name == ".debug_info" && s.is_compressed())
    }

    /// Maps the debug information of a file. `path` is the path of `elf`.
    pub fn open(elf: &Elf, path: &Path) -> Option<DebugInfo> {
        let mut files = Vec::new();
        let mut unfolded = 0;
        let mut functions = true;
        let mut sections = load(elf, &mut files, &mut unfolded, &mut functions)?;
        if let Some(sup) = supplement(elf, path)
            && let Some(sup) = load(&sup, &mut files, &mut unfolded, &mut functions)
        {
            sections.set_sup(sup);
        }
        let sections = Arc::new(sections);
        let context = addr2line::Context::from_arc_dwarf(Arc::clone(&sections)).ok()?;
        Some(DebugInfo {
            abbreviations: 8 * sections.debug_abbrev.reader().len() as u64,
            sections,
            context: Some(context),
            files,
            functions,
            unfolded,
            units: HashSet::new(),
            parsed: 0,
        })
    }

    /// Returns the number of mapped bytes.
    pub fn mapped_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.map.len() as u64).sum()
    }

    /// Returns the estimated memory that the debug information takes, bytes.
    pub fn heap_bytes(&self) -> u64 {
        self.unfolded + self.abbreviations + self.parsed
    }

    /// Whether all files still have their size, so that they can be read.
    pub fn is_whole(&self) -> bool {
        self.files.iter().all(MappedFile::is_whole)
    }

    /// Returns the frames at an ELF address, innermost first. If a function has no name here, the
    /// name of its frame is empty, and the caller uses the symbol table.
    pub fn frames(&mut self, pc: u64) -> Frames {
        let frames = if self.functions { self.inlined(pc) } else { self.line(pc) };
        self.account(pc);
        frames
    }

    fn inlined(&self, pc: u64) -> Frames {
        let mut out = Frames::default();
        let found = self.context.as_ref().map(|c| c.find_frames(pc).skip_all_loads());
        let Some(Ok(mut frames)) = found else {
            return self.line(pc);
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|f| f.raw_name().ok());
            let (file, line) = place(frame.location);
            out.outermost_is_full = name.as_deref().is_some_and(is_mangled);
            out.frames.push(ResolvedFrame {
                function: name.map(|n| demangle(&n)).unwrap_or_default(),
                file,
                line,
            });
            if out.frames.len() >= MAX_INLINED {
                break;
            }
        }
        out
    }

    fn line(&self, pc: u64) -> Frames {
        let mut out = Frames::default();
        if let Some(Ok(Some(location))) = self.context.as_ref().map(|c| c.find_location(pc)) {
            let (file, line) = place(Some(location));
            out.frames.push(ResolvedFrame { function: String::new(), file, line });
        }
        out
    }

    /// Adds the unit of a look-up to the parsed ones. If they exceed the limit, drops all of them.
    fn account(&mut self, pc: u64) {
        let Some(context) = &self.context else {
            return;
        };
        let Some(unit) = context.find_dwarf_and_unit(pc).skip_all_loads() else {
            return;
        };
        let lines = unit.line_program.as_ref().map_or(0, |p| p.header().unit_length() as u64);
        let info = unit.header.length_including_self() as u64;
        let info = if self.functions { info } else { 0 };
        let gimli::UnitSectionOffset(offset) = unit.header.offset();
        let bytes = UNIT_BYTES + info / 2 + 5 * lines;
        if self.units.contains(&offset) {
            return;
        }
        if self.parsed + bytes > MAX_PARSED && !self.units.is_empty() {
            // The old context is dropped first, so that the two never exist at the same time.
            self.context = None;
            self.context = addr2line::Context::from_arc_dwarf(Arc::clone(&self.sections)).ok();
            self.units.clear();
            self.parsed = 0;
            return;
        }
        self.units.insert(offset);
        self.parsed += bytes;
    }
}

fn place(location: Option<addr2line::Location<'_>>) -> (String, u32) {
    let Some(location) = location else {
        return Default::default();
    };
    let file = location.file.unwrap_or_default();
    (cut(file, MAX_NAME).to_owned(), location.line.unwrap_or(0))
}

/// Maps the debug sections of one file; decompresses those that are compressed.
fn load(
    elf: &Elf,
    files: &mut Vec<MappedFile>,
    unfolded: &mut u64,
    functions: &mut bool,
) -> Option<gimli::Dwarf<Reader>> {
    let sections = elf.sections();
    let info = sections.iter().find(|s| s.name == ".debug_info" && s.has_contents())?;
    let info_bytes = unfolded_bytes(elf, info)?;
    if info_bytes > MAX_INFO {
        return None;
    }
    *functions &= info_bytes <= MAX_FUNCTIONS_INFO;
    let file = MappedFile::open(elf)?;
    let whole = Reader::new(Contents::Mapped(Arc::clone(&file.map)), LittleEndian);
    let mapped = file.map.len() as u64;
    let dwarf = gimli::Dwarf::load(|id| -> Result<Reader, ()> {
        let empty = || Ok(whole.range(0..0));
        if UNUSED.contains(&id) {
            return empty();
        }
        let section = sections.iter().find(|s| s.name == id.name() && s.has_contents());
        let Some(section) = section else {
            return empty();
        };
        if section.is_compressed() {
            let bytes = unfold(elf, section, MAX_UNFOLDED.saturating_sub(*unfolded)).ok_or(())?;
            *unfolded += bytes.len() as u64;
            return Ok(Reader::new(Contents::Unfolded(bytes), LittleEndian));
        }
        match section.offset.checked_add(section.bytes) {
            Some(end) if end <= mapped => Ok(whole.range(section.offset as usize..end as usize)),
            _ => empty(),
        }
    });
    files.push(file);
    dwarf.ok()
}

/// Returns the size of a section after decompression.
fn unfolded_bytes(elf: &Elf, section: &elf::Section) -> Option<u64> {
    if !section.is_compressed() {
        return Some(section.bytes);
    }
    Some(u64_at(&elf.read(section.offset, 24).ok()?, 8))
}

/// Decompresses a section; `None` if the result is larger than `limit` bytes.
fn unfold(elf: &Elf, section: &elf::Section, limit: u64) -> Option<Arc<Vec<u8>>> {
    const ZLIB: u32 = 1;
    const ZSTD: u32 = 2;
    let bytes = elf.contents(section, limit).ok()?;
    let (kind, size) = (u32_at(&bytes, 0), u64_at(&bytes, 8));
    if size > limit {
        return None;
    }
    let packed = bytes.get(24..)?;
    let mut out = Vec::with_capacity(size as usize);
    match kind {
        ZLIB => flate2::read::ZlibDecoder::new(packed).take(size).read_to_end(&mut out).ok()?,
        ZSTD => zstd::Decoder::new(packed).ok()?.take(size).read_to_end(&mut out).ok()?,
        _ => return None,
    };
    (out.len() as u64 == size).then(|| Arc::new(out))
}

/// Opens the file with debug information that several debug files share (`.gnu_debugaltlink`).
fn supplement(elf: &Elf, path: &Path) -> Option<Elf> {
    let section = elf.sections().into_iter().find(|s| s.name == ".gnu_debugaltlink")?;
    let link = elf.contents(&section, 8192).ok()?;
    let end = link.iter().position(|b| *b == 0)?;
    let name = PathBuf::from(std::str::from_utf8(&link[..end]).ok()?);
    let id: String = link[end + 1..].iter().map(|b| format!("{b:02x}")).collect();
    let beside = path.parent()?.join(name);
    [beside, crate::files::debug_file_of(&id)?]
        .into_iter()
        .filter_map(|candidate| Elf::open(&candidate).ok())
        .find(|elf| elf.build_id() == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Segment;
    use tprof_os::maps::read_code_maps;

    /// Returns the debug information of this test program, and the address of this function in it.
    fn own() -> (DebugInfo, u64) {
        let path = std::env::current_exe().unwrap();
        let elf = Elf::open(&path).unwrap();
        let address = own as *const () as u64;
        let code = read_code_maps(std::process::id()).unwrap();
        let map = code.iter().find(|map| (map.start..map.end).contains(&address)).unwrap();
        let offset = address - map.start + map.offset;
        let holds = |s: &&Segment| (s.offset..s.offset + s.file_bytes).contains(&offset);
        let segment = elf.segments().iter().filter(|s| s.is_code()).find(holds).unwrap();
        let pc = offset - segment.offset + segment.address + 1;
        (DebugInfo::open(&elf, &path).unwrap(), pc)
    }

    #[test]
    fn lines_are_found_even_if_functions_are_not_looked_up() {
        let (mut info, pc) = own();
        let whole = info.frames(pc).frames;
        assert!(whole.last().unwrap().function.ends_with("own"));
        info.functions = false;
        let lines = info.frames(pc).frames;
        assert_eq!((lines.len(), lines[0].function.as_str()), (1, ""));
        assert_eq!((&lines[0].file, lines[0].line), (&whole[0].file, whole[0].line));
    }

    #[test]
    fn parsing_starts_over_when_the_limit_is_exceeded() {
        let (mut info, pc) = own();
        let before = info.frames(pc);
        info.units = HashSet::from([usize::MAX]);
        info.parsed = MAX_PARSED;
        assert_eq!(info.frames(pc), before);
        assert_eq!((info.parsed, info.units.len()), (0, 0));
        assert_eq!(info.frames(pc), before);
        assert!(info.parsed > 0);
    }
}
