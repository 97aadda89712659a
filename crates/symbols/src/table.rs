//! Looks up addresses in the symbol table of a file.
//!
//! A large library has a million symbols with 100 MB of names, and a run needs some hundreds of
//! them. Therefore a table in memory has only 16 bytes per function, and names are read from the
//! file when they are needed.

use crate::disk_cache::{DiskCache, FileKind, LibraryKey};
use crate::elf::{Elf, Section, u32_at, u64_at};

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
/// Largest number of functions in a table, which then has 32 MB. Other functions of the file have
/// no name.
const MAX_SYMBOLS: usize = 2 << 20;
/// Bytes of an encoded symbol.
const SYMBOL_BYTES: usize = 16;
/// If a symbol table has at least this many bytes, its sorted symbols are cached on disk for later
/// runs. Sorting this many takes 1 ms.
const KEPT_FROM: u64 = 256 << 10;
/// Bytes of a symbol table that are read at once.
const BLOCK: u64 = 24 << 15;
/// Largest number of bytes of names in which a variable is searched.
const MAX_NAMES: u64 = 64 << 20;
/// Number of entries before an address that are examined for the function that contains it. The
/// nearest entry isn't enough, because hand-written assembly has labels within functions.
const MAX_LOOK_BACK: usize = 64;
/// Number of bytes after a label without a size that belong to the label.
const LABEL_BYTES: u64 = 4096;

/// One function or label.
#[derive(Clone, Copy)]
struct Symbol {
    address: u64,
    /// Size in bytes in the upper 30 bits. The lower two bits are a rank, by the symbol's binding
    /// and kind. Of several names for a function, the one with the lowest rank is used.
    size_and_rank: u32,
    name: u32,
}

impl Symbol {
    fn size(&self) -> u64 {
        u64::from(self.size_and_rank >> 2)
    }
    fn holds(&self, pc: u64) -> bool {
        pc.wrapping_sub(self.address) < self.size()
    }
}

/// The functions of one file.
pub struct SymbolTable {
    symbols: Vec<Symbol>,
    names_offset: u64,
    names_bytes: u64,
}

impl SymbolTable {
    /// Reads `.symtab`, which includes static functions.
    pub fn full(elf: &Elf, kept: Option<&DiskCache>) -> Option<SymbolTable> {
        SymbolTable::of_kind(elf, SHT_SYMTAB, kept)
    }

    /// Reads `.dynsym`, which even stripped files have.
    pub fn dynamic(elf: &Elf, kept: Option<&DiskCache>) -> Option<SymbolTable> {
        SymbolTable::of_kind(elf, SHT_DYNSYM, kept)
    }

    /// Returns the bytes of memory that the table takes.
    pub fn heap_bytes(&self) -> u64 {
        (self.symbols.capacity() * size_of::<Symbol>()) as u64
    }

    /// Returns the sorted symbols of a table: those that an earlier run has cached, or else the
    /// ones in the file.
    fn of_kind(elf: &Elf, kind: u32, kept: Option<&DiskCache>) -> Option<SymbolTable> {
        let sections = elf.sections();
        let table = sections.iter().find(|s| s.kind == kind && s.has_contents())?;
        let names = sections.get(table.link as usize)?;
        let kept = kept.filter(|_| table.bytes >= KEPT_FROM);
        let kept = kept.and_then(|kept| Some((kept, LibraryKey::of(elf)?)));
        let Some((kept, key)) = kept else {
            return SymbolTable::read(elf, (table, names), &sections);
        };
        let kind = if kind == SHT_SYMTAB { FileKind::Symbols } else { FileKind::DynamicSymbols };
        let (names_offset, names_bytes) = (names.offset, names.bytes);
        if let Some(symbols) = kept.read(&key, kind).and_then(|bytes| parsed(&bytes)) {
            return Some(SymbolTable { symbols, names_offset, names_bytes });
        }
        let read = SymbolTable::read(elf, (table, names), &sections)?;
        kept.write(&key, kind, &[&read.encode()]);
        Some(read)
    }

    /// Encodes the symbols for the cache.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.symbols.len() * SYMBOL_BYTES);
        for symbol in &self.symbols {
            bytes.extend(symbol.address.to_ne_bytes());
            bytes.extend(symbol.size_and_rank.to_ne_bytes());
            bytes.extend(symbol.name.to_ne_bytes());
        }
        bytes
    }

    fn read(
        elf: &Elf,
        (table, names): (&Section, &Section),
        sections: &[Section],
    ) -> Option<SymbolTable> {
        let mut symbols = Vec::new();
        let mut at = 0;
        while at < table.bytes && symbols.len() < MAX_SYMBOLS {
            let block = elf
                .read(table.offset.checked_add(at)?, BLOCK.min(table.bytes - at))
                .unwrap_or_default();
            if block.is_empty() {
                break;
            }
            at += block.len() as u64;
            symbols.extend(block.chunks_exact(24).filter_map(|entry| function(entry, sections)));
        }
        symbols.truncate(MAX_SYMBOLS);
        if symbols.is_empty() {
            return None;
        }
        symbols.sort_unstable_by_key(|s| (s.address, s.size()));
        symbols.shrink_to_fit();
        Some(SymbolTable { symbols, names_offset: names.offset, names_bytes: names.bytes })
    }

    /// Returns the mangled name of the function that contains an ELF address.
    pub fn name_at(&self, elf: &Elf, pc: u64) -> Option<String> {
        let after = self.symbols.partition_point(|s| s.address <= pc);
        let before = &self.symbols[after.saturating_sub(MAX_LOOK_BACK)..after];
        let nearest = before.last()?;
        let holder = before.iter().rev().find(|s| s.holds(pc)).or_else(|| {
            let is_near = nearest.size() == 0 && pc - nearest.address < LABEL_BYTES;
            (is_near && share_a_section(elf, nearest.address, pc)).then_some(nearest)
        })?;
        let same = |s: &&Symbol| s.address == holder.address && s.size() == holder.size();
        // Of names at the same address, `malloc` is preferred to `__libc_malloc`.
        before
            .iter()
            .filter(same)
            .filter_map(|s| Some((s.size_and_rank & 3, self.name(elf, s)?)))
            .min_by_key(|(rank, name)| {
                let underscores = name.bytes().take_while(|b| *b == b'_').count();
                (*rank, underscores, name.len(), name.clone())
            })
            .map(|(_, name)| name)
    }

    fn name(&self, elf: &Elf, symbol: &Symbol) -> Option<String> {
        let offset = u64::from(symbol.name);
        if offset >= self.names_bytes {
            return None;
        }
        let name = elf.string(self.names_offset.checked_add(offset)?)?;
        (!name.is_empty()).then(|| String::from_utf8_lossy(&name).into_owned())
    }
}

/// Whether both addresses are in the same section. If not, the second one doesn't belong to a label
/// at the first. `true` if the file has no sections.
fn share_a_section(elf: &Elf, a: u64, b: u64) -> bool {
    let sections = elf.sections();
    let holds = |section: &&Section, pc: u64| pc.wrapping_sub(section.address) < section.bytes;
    let own = sections.iter().filter(|section| section.is_code()).find(|one| holds(one, a));
    own.is_none_or(|own| holds(&own, b))
}

/// Decodes cached symbols; `None` if they aren't sorted. The cache guarantees that all bytes are
/// there.
fn parsed(bytes: &[u8]) -> Option<Vec<Symbol>> {
    let symbol = |entry: &[u8]| Symbol {
        address: u64_at(entry, 0),
        size_and_rank: u32_at(entry, 8),
        name: u32_at(entry, 12),
    };
    let symbols: Vec<_> = bytes.chunks_exact(SYMBOL_BYTES).map(symbol).collect();
    let is_sorted = symbols.is_sorted_by_key(|symbol| symbol.address);
    (is_sorted && !symbols.is_empty()).then_some(symbols)
}

/// Returns the ELF address of a variable; `None` if the file was stripped of `.symtab`.
pub fn variable(elf: &Elf, name: &str) -> Option<u64> {
    const OBJECT: u8 = 1;
    symbol(elf, name, OBJECT)
}

/// Returns the ELF address of a function; `None` if the file was stripped of `.symtab`.
pub fn routine(elf: &Elf, name: &str) -> Option<u64> {
    const FUNCTION: u8 = 2;
    symbol(elf, name, FUNCTION)
}

/// Returns the ELF address of the symbol in `.symtab` with this name and kind.
fn symbol(elf: &Elf, name: &str, kind: u8) -> Option<u64> {
    let sections = elf.sections();
    let table = sections.iter().find(|s| s.kind == SHT_SYMTAB && s.has_contents())?;
    let names = sections.get(table.link as usize).filter(|s| s.bytes <= MAX_NAMES)?;
    let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
    let text = elf.read(names.offset, names.bytes).ok()?;
    let before = text.windows(wanted.len()).position(|found| found == wanted)?;
    let wanted = u32::try_from(before + 1).ok()?;
    let mut at = 0;
    while at < table.bytes {
        let block = elf.read(table.offset.checked_add(at)?, BLOCK.min(table.bytes - at)).ok()?;
        let mut entries = block.chunks_exact(24);
        let is_it = |entry: &&[u8]| u32_at(entry, 0) == wanted && entry[4] & 15 == kind;
        if let Some(entry) = entries.find(is_it) {
            return Some(u64_at(entry, 8));
        }
        at += BLOCK;
    }
    None
}

/// Decodes an entry of a symbol table; `None` if it is neither a function nor a label in code.
fn function(entry: &[u8], sections: &[Section]) -> Option<Symbol> {
    const NOTYPE: u8 = 0;
    const FUNC: u8 = 2;
    const GNU_IFUNC: u8 = 10;
    let kind = entry[4] & 15;
    let section = usize::from(u16::from_le_bytes([entry[6], entry[7]]));
    let in_code = section != 0 && sections.get(section).is_some_and(Section::is_code);
    if !in_code || !matches!(kind, NOTYPE | FUNC | GNU_IFUNC) {
        return None;
    }
    let rank = match (entry[4] >> 4, kind) {
        (_, NOTYPE) => 3,
        (1, _) => 0,
        (2, _) => 1,
        _ => 2,
    };
    let size = u64_at(entry, 16).min((1 << 30) - 1) as u32;
    Some(Symbol {
        address: u64_at(entry, 8),
        size_and_rank: size << 2 | rank,
        name: u32_at(entry, 0),
    })
}
