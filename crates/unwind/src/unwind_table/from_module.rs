//! Finds a module's frame information and compiles it into an unwind table.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::fde_rows::Compiler;
use super::table::{UnwindError, UnwindTable};
use gimli::{DebugFrame, LittleEndian};
use tprof_cfi::ENTRY_BYTES;
use tprof_symbols::elf::{EM_X86_64, Elf, ElfError, PT_GNU_EH_FRAME, u32_at};
use tprof_wire::unwind::Row;

/// Largest section of frame information that is read, bytes.
const MAX_SECTION: u64 = 512 << 20;

/// Compiles the file at `path`.
pub fn compile(path: &Path) -> Result<UnwindTable, UnwindError> {
    compile_elf(&Elf::open(path)?)
}

/// Compiles an open file.
pub fn compile_file(file: Arc<File>) -> Result<UnwindTable, UnwindError> {
    compile_elf(&Elf::from_file(file)?)
}

/// Compiles an ELF image in memory, such as the vDSO.
pub fn compile_bytes(bytes: Arc<[u8]>) -> Result<UnwindTable, UnwindError> {
    compile_elf(&Elf::from_bytes(bytes)?)
}

/// Compiles an ELF file.
pub fn compile_elf(elf: &Elf) -> Result<UnwindTable, UnwindError> {
    let empty = |why| Ok(UnwindTable { empty: Some(why), ..UnwindTable::default() });
    if !elf.is_64() || elf.machine() != EM_X86_64 {
        return empty("unwind rows exist for x86-64 only");
    }
    let frames = FrameSections::read(elf)?;
    let mut compiler = Compiler::default();
    if let Some((bytes, address)) = &frames.eh_frame {
        compiler.add(bytes, *address);
    }
    if let Some(bytes) = &frames.debug_frame {
        let mut section = DebugFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        compiler.add_debug(section);
    }
    if compiler.is_empty() {
        return empty("the module has no frame information");
    }
    let mut table = compiler.run()?;
    mark_entry(&mut table, elf.entry());
    Ok(table)
}

/// Compiles the content of a section `.eh_frame` that is loaded at an ELF address.
pub(crate) fn compile_section(bytes: &[u8], address: u64) -> Result<UnwindTable, UnwindError> {
    let mut compiler = Compiler::default();
    compiler.add(bytes, address);
    compiler.run()
}

/// Returns the number of bytes of a module's frame information. It determines how long compiling
/// takes: about one microsecond per 160 bytes.
pub fn frame_bytes(elf: &Elf) -> u64 {
    let sections = elf.sections();
    if let Some(section) = sections.iter().find(|s| s.name == ".eh_frame" && s.has_contents()) {
        return section.bytes;
    }
    eh_frame_by_segment(elf).map_or(0, |(_, bytes, _)| bytes)
}

/// The frame information of a module: the content of its sections, and the address of `.eh_frame`.
struct FrameSections {
    eh_frame: Option<(Vec<u8>, u64)>,
    debug_frame: Option<Vec<u8>>,
}

impl FrameSections {
    fn read(elf: &Elf) -> Result<FrameSections, ElfError> {
        let sections = elf.sections();
        let named = |name: &str| {
            sections.iter().find(|s| s.name == name && s.has_contents() && !s.is_compressed())
        };
        let eh_frame = match (named(".eh_frame"), eh_frame_by_segment(elf)) {
            (Some(s), _) => Some((elf.contents(s, MAX_SECTION)?, s.address)),
            (None, Some((offset, bytes, address))) if bytes <= MAX_SECTION => {
                Some((elf.read(offset, bytes)?, address))
            }
            _ => None,
        };
        let debug_frame =
            named(".debug_frame").map(|s| elf.contents(s, MAX_SECTION)).transpose()?;
        Ok(FrameSections { eh_frame, debug_frame })
    }
}

/// Finds `.eh_frame` without section headers, as a process's own unwinder does. Returns its file
/// offset, the largest number of bytes that it can have, and its address.
fn eh_frame_by_segment(elf: &Elf) -> Option<(u64, u64, u64)> {
    let header = elf.segments().iter().find(|s| s.kind == PT_GNU_EH_FRAME)?;
    let bytes = elf.read(header.offset, 8).ok()?;
    // All linkers write version 1, and a pointer to `.eh_frame` as a signed word relative to its
    // own place.
    if bytes[..2] != [1, 0x1b] {
        return None;
    }
    let distance = i64::from(u32_at(&bytes, 4) as i32);
    let address = header.address.checked_add(4)?.checked_add_signed(distance)?;
    let offset = elf.offset_of(address)?;
    let segment = elf
        .segments()
        .iter()
        .find(|s| s.kind == 1 && address >= s.address && address - s.address < s.file_bytes)?;
    Some((offset, segment.file_bytes - (address - segment.address), address))
}

/// If the code at the entry point has no rows, marks it as the end of the stack, because nothing
/// calls this code.
pub(super) fn mark_entry(table: &mut UnwindTable, entry: u64) {
    let Ok(entry) = u32::try_from(entry) else {
        return;
    };
    if entry == 0 || table.row_at(u64::from(entry)) != Row::NONE {
        return;
    }
    let next = table.pcs.partition_point(|pc| *pc <= entry);
    let end = entry.saturating_add(ENTRY_BYTES as u32);
    let end = table.pcs.get(next).map_or(end, |pc| end.min(*pc));
    let rows = if table.pcs.get(next) == Some(&end) {
        &[(entry, Row::END)][..]
    } else {
        &[(entry, Row::END), (end, Row::NONE)]
    };
    // If a gap begins at the entry point, the gap's row is replaced.
    let from = if next > 0 && table.pcs[next - 1] == entry { next - 1 } else { next };
    table.pcs.splice(from..next, rows.iter().map(|r| r.0));
    table.rows.splice(from..next, rows.iter().map(|r| r.1));
}
