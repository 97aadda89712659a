//! Looks up source lines of GPU code in the file of a module (a cubin).
//!
//! A cubin is an ELF file with a section for each kernel. Its `.debug_line` is a line table of DWARF
//! as of any other file, except that all kernels begin at address 0: relocations tell to which
//! function a sequence of rows belongs. ptxas writes it with `-lineinfo`, and Triton asks for that
//! by default. (`.nv_debug_line_sass` is the same for lines of PTX, which nobody wrote.)
//!
//! The file was written by a job and may contain anything, so all sizes are checked, and what can't
//! be read has no lines.

use std::collections::HashMap;

use gimli::{
    AttributeValue, DebugLine, DebugLineOffset, EndianSlice, LineProgramHeader, LittleEndian,
};

/// Most rows of a file. Others have no lines.
const MAX_ROWS: usize = 4 << 20;
/// Most sections of a file, so that a section's number fits beside an address.
const MAX_SECTIONS: usize = 1 << 16;
/// Bits of an address within a section.
const ADDRESS_BITS: u32 = 40;

const SYMTAB: u32 = 2;
const RELA: u32 = 4;
const REL: u32 = 9;
/// `STT_FUNC`
const FUNCTION: u8 = 2;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The source lines of a module's functions.
#[derive(Debug, Default)]
pub struct CubinLines {
    /// Where each function begins, by its mangled name: the section's number above
    /// [`ADDRESS_BITS`], the address below.
    functions: HashMap<Box<[u8]>, u64>,
    /// Rows in order: where code begins, the number of its file, and the line. A row without a line
    /// ends the one before.
    rows: Vec<(u64, u32, u32)>,
    files: Vec<String>,
}

impl CubinLines {
    /// Reads the lines in a file's bytes; `None` if it isn't an ELF file with a line table.
    pub fn parse(bytes: &[u8]) -> Option<CubinLines> {
        let elf = Sections::of(bytes)?;
        let mut lines = CubinLines::default();
        let symbols = elf.symbols();
        for symbol in symbols.iter().filter(|symbol| symbol.kind == FUNCTION) {
            lines.functions.insert(symbol.name.into(), place(symbol.section, symbol.value));
        }
        let (number, section) = elf.named(b".debug_line")?;
        let mut table = elf.contents(section)?.to_vec();
        for (at, symbol, addend) in elf.relocations(number) {
            let (Some(symbol), Ok(at)) = (symbols.get(symbol), usize::try_from(at)) else {
                continue;
            };
            let target = place(symbol.section, symbol.value.wrapping_add(addend));
            if let Some(operand) = at.checked_add(8).and_then(|end| table.get_mut(at..end)) {
                operand.copy_from_slice(&target.to_le_bytes());
            }
        }
        // A damaged end of the table doesn't make the rows before it wrong.
        let _ = lines.read(&table);
        lines.rows.sort_by_key(|row| row.0);
        Some(lines)
    }

    /// The source file and line of an instruction, by its distance from the beginning of a function;
    /// `None` if it has none.
    pub fn line(&self, function: &[u8], offset: u64) -> Option<(&str, u32)> {
        let address = self.functions.get(function)?.checked_add(offset)?;
        let after = self.rows.partition_point(|row| row.0 <= address);
        let (begins, file, line) = *self.rows.get(after.checked_sub(1)?)?;
        let is_same_section = begins >> ADDRESS_BITS == address >> ADDRESS_BITS;
        let file = self.files.get(file as usize).filter(|_| is_same_section && line > 0)?;
        Some((file, line))
    }

    fn read(&mut self, table: &[u8]) -> gimli::Result<()> {
        let section = DebugLine::new(table, LittleEndian);
        let mut at = 0;
        while at < table.len() {
            let program = section.program(DebugLineOffset(at), 8, None, None)?;
            let header = program.header();
            let bytes = header.unit_length() + usize::from(header.format().initial_length_size());
            at = at.saturating_add(bytes);
            let mut files: HashMap<u64, u32> = HashMap::new();
            let mut rows = program.rows();
            while let Some((header, row)) = rows.next_row()? {
                if self.rows.len() >= MAX_ROWS {
                    return Ok(());
                }
                if row.end_sequence() {
                    self.rows.push((row.address(), 0, 0));
                    continue;
                }
                let number = row.file_index();
                let known = files.entry(number).or_insert_with(|| {
                    self.files.push(path_of(header, number).unwrap_or_default());
                    self.files.len() as u32 - 1
                });
                let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0);
                self.rows.push((row.address(), *known, line));
            }
        }
        Ok(())
    }
}

fn place(section: usize, address: u64) -> u64 {
    (section as u64) << ADDRESS_BITS | address & ((1 << ADDRESS_BITS) - 1)
}

/// The path of a file of a line table.
fn path_of(header: &LineProgramHeader<Bytes<'_>>, number: u64) -> Option<String> {
    let text = |value: AttributeValue<Bytes<'_>>| match value {
        AttributeValue::String(text) => Some(String::from_utf8_lossy(text.slice()).into_owned()),
        _ => None,
    };
    let file = header.file(number)?;
    let name = text(file.path_name())?;
    let directory = file.directory(header).and_then(text).filter(|_| !name.starts_with('/'));
    Some(match directory {
        Some(directory) if !directory.is_empty() => format!("{directory}/{name}"),
        _ => name,
    })
}

/// A section's header.
#[derive(Clone, Copy)]
struct Section {
    name: u32,
    kind: u32,
    offset: u64,
    bytes: u64,
    link: u32,
    info: u32,
}

/// A symbol: its name, kind, section, and distance from the section's beginning.
struct Symbol<'a> {
    name: &'a [u8],
    kind: u8,
    section: usize,
    value: u64,
}

/// The sections of an ELF file of 64 bits.
struct Sections<'a> {
    bytes: &'a [u8],
    headers: Vec<Section>,
    names: usize,
}

impl<'a> Sections<'a> {
    fn of(bytes: &'a [u8]) -> Option<Sections<'a>> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let start = number::<8>(bytes, 40)?;
        let (size, count) = (number::<2>(bytes, 58)?, number::<2>(bytes, 60)?);
        let names = number::<2>(bytes, 62)? as usize;
        let header = |at: u64| {
            let at = usize::try_from(start.checked_add(at.checked_mul(size)?)?).ok()?;
            Some(Section {
                name: number::<4>(bytes, at)? as u32,
                kind: number::<4>(bytes, at.checked_add(4)?)? as u32,
                offset: number::<8>(bytes, at.checked_add(24)?)?,
                bytes: number::<8>(bytes, at.checked_add(32)?)?,
                link: number::<4>(bytes, at.checked_add(40)?)? as u32,
                info: number::<4>(bytes, at.checked_add(44)?)? as u32,
            })
        };
        let headers = (0..count.min(MAX_SECTIONS as u64)).map_while(header).collect();
        Some(Sections { bytes, headers, names })
    }

    fn contents(&self, section: Section) -> Option<&'a [u8]> {
        let from = usize::try_from(section.offset).ok()?;
        let bytes = usize::try_from(section.bytes).ok()?;
        self.bytes.get(from..from.checked_add(bytes)?)
    }

    fn named(&self, name: &[u8]) -> Option<(usize, Section)> {
        let names = self.contents(*self.headers.get(self.names)?)?;
        let is_it = |section: &Section| text(names, section.name) == name;
        self.headers.iter().position(is_it).map(|at| (at, self.headers[at]))
    }

    fn symbols(&self) -> Vec<Symbol<'a>> {
        const BYTES: usize = 24;
        let Some(table) = self.headers.iter().find(|section| section.kind == SYMTAB) else {
            return Vec::new();
        };
        let names = self.headers.get(table.link as usize).and_then(|names| self.contents(*names));
        let (Some(entries), Some(names)) = (self.contents(*table), names) else {
            return Vec::new();
        };
        let symbol = |entry: &'a [u8]| Symbol {
            name: text(names, number::<4>(entry, 0).unwrap_or(0) as u32),
            kind: entry[4] & 0xf,
            section: number::<2>(entry, 6).unwrap_or(0) as usize,
            value: number::<8>(entry, 8).unwrap_or(0),
        };
        entries.chunks_exact(BYTES).map(symbol).collect()
    }

    /// The relocations of a section: offset, symbol, addend.
    fn relocations(&self, of: usize) -> impl Iterator<Item = (u64, usize, u64)> {
        let tables = self.headers.iter().filter(move |section| section.info as usize == of);
        tables.flat_map(move |table| {
            let bytes = match table.kind {
                RELA => 24,
                REL => 16,
                _ => return Vec::new(),
            };
            let entry = |entry: &[u8]| {
                let word = |at| number::<8>(entry, at).unwrap_or(0);
                let addend = if table.kind == RELA { word(16) } else { 0 };
                (word(0), (word(8) >> 32) as usize, addend)
            };
            let contents = self.contents(*table).unwrap_or_default();
            contents.chunks_exact(bytes).map(entry).collect::<Vec<_>>()
        })
    }
}

/// The number of `N` bytes at an offset.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(N)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The text that begins at an offset and ends before a zero.
fn text(texts: &[u8], at: u32) -> &[u8] {
    let from = texts.get(at as usize..).unwrap_or_default();
    from.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const SOURCE: &str = "\
int add(int a, int b) {
    return a + b;
}

int loop_over(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += i * i;
    return sum;
}
";

    /// An object of the host's compiler with a section for each function: its line table needs the
    /// same relocations as a cubin's.
    fn object() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let (source, object) = (folder.path().join("kernel.c"), folder.path().join("kernel.o"));
        std::fs::write(&source, SOURCE).unwrap();
        let status = Command::new("gcc")
            .args(["-c", "-g", "-gdwarf-4", "-O0", "-ffunction-sections", "-o"])
            .args([&object, &source])
            .status();
        assert!(status.unwrap().success());
        std::fs::read(object).unwrap()
    }

    #[test]
    fn an_instruction_has_the_line_of_its_function() {
        let lines = CubinLines::parse(&object()).unwrap();
        let of = |function: &str, offset| {
            let (file, line) = lines.line(function.as_bytes(), offset)?;
            assert!(file.ends_with("/kernel.c"), "{file}");
            Some(line)
        };
        assert_eq!(of("add", 0), Some(1));
        assert_eq!(of("loop_over", 0), Some(5));
        let all: Vec<u32> = (0..64).filter_map(|offset| of("loop_over", offset)).collect();
        for line in 5..=9 {
            assert!(all.contains(&line), "{line} in {all:?}");
        }
        assert_eq!(of("add", 1 << 20), None, "it is behind the function");
        assert_eq!(of("unknown", 0), None);
    }

    #[test]
    fn damaged_files_have_no_wrong_memory_access() {
        let whole = object();
        for cut in (0..whole.len()).step_by(7) {
            let _ = CubinLines::parse(&whole[..cut]);
        }
        for at in (0..whole.len()).step_by(3) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            if let Some(lines) = CubinLines::parse(&damaged) {
                lines.line(b"add", 4);
            }
        }
    }
}
