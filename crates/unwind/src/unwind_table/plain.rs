//! Evaluates call frame programs in the form that compilers write ("plain"), several times as fast
//! as gimli and with the same rows. Programs of other forms are left to gimli.

use std::collections::HashMap;
use std::ops::ControlFlow;

use tprof_cfi::{CfiEntry, SharedEntry, code_at, entry_at, run};
use tprof_wire::unwind::Row;

/// The range of code that one FDE describes.
#[derive(Clone, Copy)]
pub(super) struct CodeRange {
    pub start: u32,
    pub end: u32,
    /// Offset of the FDE in its section.
    pub fde: usize,
    pub debug: bool,
}

impl CodeRange {
    /// Returns a range; `None` if it can't be in a table. A range at address 0 belongs to code that
    /// the linker removed.
    pub fn new(start: u64, end: u64, fde: usize, debug: bool) -> Option<CodeRange> {
        let (start, end) = (u32::try_from(start).ok()?, u32::try_from(end).ok()?);
        (start != 0 && start < end).then_some(CodeRange { start, end, fde, debug })
    }
}

/// The bytes of a section `.eh_frame`, with its plain CIEs.
pub(super) struct Plain<'a> {
    bytes: &'a [u8],
    /// ELF address of the first byte.
    address: u64,
    /// Plain CIEs by offset. The last one that was used is stored separately, because neighbouring
    /// FDEs share it.
    cies: HashMap<usize, SharedEntry>,
    last: Option<(usize, SharedEntry)>,
    rows: Vec<(u64, Row)>,
}

impl<'a> Plain<'a> {
    pub fn new(bytes: &'a [u8], address: u64) -> Plain<'a> {
        Plain { bytes, address, cies: HashMap::new(), last: None, rows: Vec::new() }
    }

    /// Returns the entry at an offset, and the offset of the next entry. `None` if the structure of
    /// the entry is unusual. Caches the entry if it is a plain CIE.
    pub fn entry(&mut self, at: usize) -> Option<(CfiEntry, usize)> {
        let (entry, next) = entry_at(self.bytes, at)?;
        if entry == CfiEntry::Shared {
            let cie = self.bytes.get(at..next).and_then(SharedEntry::read);
            self.cies.extend(cie.map(|cie| (at, cie)));
        }
        Some((entry, next))
    }

    /// Returns the CIE at an offset; `None` if it isn't plain or was not passed to
    /// [`Plain::entry`].
    pub fn cie(&mut self, at: usize) -> Option<SharedEntry> {
        if self.last.is_none_or(|(last, _)| last != at) {
            self.last = Some((at, *self.cies.get(&at)?));
        }
        self.last.map(|(_, cie)| cie)
    }

    /// Whether the section ends at this offset.
    pub fn is_end(&self, at: usize) -> bool {
        self.bytes.get(at..).is_some_and(|rest| rest.is_empty() || rest == [0; 4])
    }

    /// Returns the begin and the end of the code that an FDE describes.
    pub fn code(&self, fde: usize) -> Option<(u64, u64)> {
        code_at(self.bytes.get(fde..)?, self.address.checked_add(fde as u64)?)
    }

    /// Evaluates an FDE, and returns its rows, each with its first address. The last row ends with
    /// the FDE's code. `None` if the FDE isn't plain.
    pub fn run(&mut self, range: CodeRange) -> Option<&[(u64, Row)]> {
        let (CfiEntry::Description(cie), end) = entry_at(self.bytes, range.fde)? else {
            return None;
        };
        let cie = self.cie(cie)?;
        let fde = self.bytes.get(range.fde..end)?;
        let place = self.address.checked_add(range.fde as u64)?;
        let rows = &mut self.rows;
        rows.clear();
        run(fde, place, &cie, |start, row| {
            rows.push((start, row));
            ControlFlow::Continue(())
        })?;
        Some(&self.rows)
    }
}

#[cfg(test)]
mod tests {
    use crate::unwind_table::compile_elf;
    use tprof_cfi::LoadedFrames;
    use tprof_symbols::elf::{Elf, PT_GNU_EH_FRAME};
    use tprof_wire::unwind::Row;

    /// An ELF file as a loader maps it: its segments with their addresses, the address of
    /// `.eh_frame_hdr`, and the entry point.
    struct Loaded {
        segments: Vec<(u64, Vec<u8>)>,
        header: u64,
        entry: u64,
    }

    impl Loaded {
        fn of(elf: &Elf) -> Loaded {
            let header = elf.segments().iter().find(|s| s.kind == PT_GNU_EH_FRAME).unwrap();
            let segments = elf.segments().iter().filter(|s| s.kind == 1);
            let segments = segments.map(|s| (s.address, elf.read(s.offset, s.file_bytes).unwrap()));
            Loaded { segments: segments.collect(), header: header.address, entry: elf.entry() }
        }

        fn segment(&self, address: u64) -> Option<(&[u8], u64)> {
            let all = self.segments.iter().map(|(start, bytes)| (&**bytes, *start));
            let holds = |(bytes, start): &(&[u8], u64)| {
                (*start..start + bytes.len() as u64).contains(&address)
            };
            all.into_iter().find(holds)
        }

        fn frames(&self) -> Option<LoadedFrames<'_>> {
            let (bytes, start) = self.segment(self.header)?;
            let header = &bytes[(self.header - start) as usize..];
            // `.eh_frame` may be in the same segment, but the test passes it as a separate one.
            LoadedFrames::new(header, self.header, self.entry, |address| {
                let (bytes, start) = self.segment(address)?;
                Some((&bytes[(address - start) as usize..], address))
            })
        }
    }

    /// A process that computes rows from its mapped segments finds the rows that its table would
    /// have.
    #[test]
    fn rows_computed_from_mapped_segments_agree_with_the_table() {
        let maps = tprof_os::maps::read_code_maps(std::process::id()).unwrap();
        let (mut found, mut described) = (0, 0);
        for path in maps.iter().map(|m| &m.path).filter(|path| path.is_absolute()) {
            let elf = Elf::open(path).unwrap();
            let loaded = Loaded::of(&elf);
            let frames = loaded.frames().unwrap();
            let table = compile_elf(&elf).unwrap();
            for (at, pc) in table.pcs.iter().enumerate() {
                let next =
                    table.pcs.get(at + 1).map_or(u64::from(*pc) + 8, |next| u64::from(*next));
                for pc in [u64::from(*pc), next - 1] {
                    described += u64::from(table.rows[at] != Row::NONE);
                    if let Some(row) = frames.row_at(pc) {
                        assert_eq!(row, table.rows[at], "{pc:#x} of {}", path.display());
                        found += u64::from(row != Row::NONE);
                    }
                }
            }
        }
        assert!(found > 20_000 && found * 1000 > described * 999, "{found} of {described}");
    }

    /// Damaged frame information in a mapped file must not make the process crash.
    #[test]
    fn damaged_frame_information_is_not_read_out_of_bounds() {
        let path = tprof_os::maps::read_code_maps(std::process::id()).unwrap().into_iter();
        let path = path.map(|m| m.path).find(|path| path.ends_with("libc.so.6")).unwrap();
        let elf = Elf::open(&path).unwrap();
        let mut loaded = Loaded::of(&elf);
        let header = loaded.header;
        let of_header = |(start, bytes): &(u64, Vec<u8>)| {
            (*start..start + bytes.len() as u64).contains(&header)
        };
        let index = loaded.segments.iter().position(of_header).unwrap();
        let begin = (header - loaded.segments[index].0) as usize;
        let code = elf.segments().iter().find(|s| s.is_code()).unwrap();
        let mut word = 11u64;
        let mut next = |below: u64| {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (word >> 33) % below
        };
        for _ in 0..20_000 {
            // Damages a byte at the beginning of the search table, or anywhere after it in the
            // segment.
            let is_head = next(4) == 0;
            let bytes = &mut loaded.segments[index].1;
            let at = begin + next(if is_head { 64 } else { (bytes.len() - begin) as u64 }) as usize;
            let before = bytes[at];
            bytes[at] = next(256) as u8;
            if let Some(frames) = loaded.frames() {
                for _ in 0..4 {
                    frames.row_at(code.address + next(code.file_bytes));
                }
            }
            // Most damage is undone at once, but some accumulates.
            if next(8) != 0 {
                loaded.segments[index].1[at] = before;
            }
        }
    }
}
