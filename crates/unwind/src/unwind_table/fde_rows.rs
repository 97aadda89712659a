//! Turns frame description entries (FDEs) into unwind rows, in order of address.
//!
//! FDEs are first listed and sorted, and then evaluated. So the rows come out sorted and merged,
//! and the compiler needs no more memory than the table.

use std::collections::HashMap;

use gimli::{
    BaseAddresses, CfaRule, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice, LittleEndian,
    Operation, RegisterRule, UnwindContext, UnwindOffset, UnwindSection, X86_64,
};
use tprof_cfi::CfiEntry;
use tprof_wire::unwind::{Row, RowKind};

use super::plain::{CodeRange, Plain};
use super::table::{UnwindError, UnwindTable};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Largest number of rows in a table. More would not fit into the tables file.
const MAX_ROWS: usize = 64 << 20;
/// Largest number of initial instructions in a CIE. They are evaluated for every FDE, so a hostile
/// file with many of them would take endless time. Real CIEs have about ten.
const MAX_CIE_INSTRUCTIONS: usize = 1024;
/// Number of parsed CIEs that are cached. Real modules have about ten.
const MAX_CIES: usize = 4096;

/// Lists FDEs and then turns them into rows.
#[derive(Default)]
pub(super) struct Compiler<'a> {
    eh: Option<FrameSection<'a, EhFrame<Bytes<'a>>>>,
    debug: Option<FrameSection<'a, DebugFrame<Bytes<'a>>>>,
    ranges: Vec<CodeRange>,
}

/// A section of frame information, with the CIEs that have been parsed so far.
struct FrameSection<'a, S: UnwindSection<Bytes<'a>>> {
    section: S,
    bases: BaseAddresses,
    cies: Cies<'a>,
    /// Reads the section if it was written by a compiler in the usual form; `None` if it wasn't.
    plain: Option<Plain<'a>>,
}

/// Parsed CIEs by offset. The last one is stored separately, because neighbouring FDEs usually
/// share it.
#[derive(Default)]
struct Cies<'a> {
    last: Option<(usize, CommonInformationEntry<Bytes<'a>>)>,
    all: HashMap<usize, CommonInformationEntry<Bytes<'a>>>,
}

impl<'a> Cies<'a> {
    fn get<S: UnwindSection<Bytes<'a>>>(
        &mut self,
        section: &S,
        bases: &BaseAddresses,
        offset: S::Offset,
    ) -> gimli::Result<CommonInformationEntry<Bytes<'a>>> {
        let key = UnwindOffset::into(offset);
        if let Some((last, cie)) = &self.last
            && *last == key
        {
            return Ok(cie.clone());
        }
        let cie = match self.all.get(&key) {
            Some(cie) => cie.clone(),
            None => {
                let cie = section.cie_from_offset(bases, offset)?;
                let mut instructions = cie.instructions(section, bases);
                for _ in 0..MAX_CIE_INSTRUCTIONS {
                    if instructions.next()?.is_none() {
                        break;
                    }
                }
                if instructions.next()?.is_some() {
                    return Err(gimli::Error::TooManyRegisterRules);
                }
                if self.all.len() >= MAX_CIES {
                    self.all.clear();
                }
                self.all.insert(key, cie.clone());
                cie
            }
        };
        self.last = Some((key, cie.clone()));
        Ok(cie)
    }
}

impl<'a, S: UnwindSection<Bytes<'a>>> FrameSection<'a, S> {
    fn new(section: S, bases: BaseAddresses) -> Self {
        FrameSection { section, bases, cies: Cies::default(), plain: None }
    }

    /// Lists the code ranges of a section that a compiler wrote. If the section's structure is
    /// unusual, lists nothing and returns false.
    fn list_plain(&mut self, ranges: &mut Vec<CodeRange>) -> bool {
        let FrameSection { section, bases, cies, plain } = self;
        let Some(plain) = plain else { return false };
        let before = ranges.len();
        let mut at = 0;
        while let Some((entry, next)) = plain.entry(at) {
            match entry {
                CfiEntry::Shared => {
                    if cies.get(section, bases, S::Offset::from(at)).is_err() {
                        break;
                    }
                }
                CfiEntry::Description(cie) if plain.cie(cie).is_some() => {
                    let code = plain.code(at);
                    ranges.extend(
                        code.and_then(|(start, end)| CodeRange::new(start, end, at, false)),
                    );
                }
                CfiEntry::Description(_) => {
                    let fde = section.partial_fde_from_offset(bases, S::Offset::from(at));
                    let parsed =
                        fde.and_then(|fde| fde.parse(|s, bases, cie| cies.get(s, bases, cie)));
                    ranges.extend(parsed.ok().and_then(|fde| {
                        let start = fde.initial_address();
                        CodeRange::new(start, start.checked_add(fde.len())?, at, false)
                    }));
                }
            }
            at = next;
        }
        let whole = plain.is_end(at);
        if !whole {
            ranges.truncate(before);
        }
        whole
    }

    /// Lists the code ranges that the section describes. Stops at the first malformed entry,
    /// because the begin of the next entry can't be known then.
    fn list(&mut self, debug: bool, ranges: &mut Vec<CodeRange>) {
        let FrameSection { section, bases, cies, .. } = self;
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let gimli::CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let fde = partial.offset();
            let Ok(parsed) = partial.parse(|s, bases, offset| cies.get(s, bases, offset)) else {
                continue;
            };
            let start = parsed.initial_address();
            let end = start.checked_add(parsed.len());
            ranges.extend(end.and_then(|end| CodeRange::new(start, end, fde, debug)));
        }
    }

    /// Evaluates one FDE, and appends its rows to the table, as far as they are at `from` or later.
    fn rows(
        &mut self,
        range: CodeRange,
        from: u32,
        context: &mut UnwindContext<usize>,
        table: &mut UnwindTable,
    ) -> gimli::Result<()> {
        let FrameSection { section, bases, cies, plain } = self;
        if let Some(rows) = plain.as_mut().and_then(|plain| plain.run(range)) {
            let ends = rows.iter().skip(1).map(|(start, _)| *start);
            for ((start, row), end) in rows.iter().zip(ends.chain([u64::from(range.end)])) {
                let end = end.min(u64::from(range.end)) as u32;
                let start = ((*start).min(u64::from(range.end)) as u32).max(from);
                if start < end {
                    table.push(start, *row);
                }
            }
            return Ok(());
        }
        let fde = section
            .partial_fde_from_offset(bases, S::Offset::from(range.fde))?
            .parse(|s, bases, offset| cies.get(s, bases, offset))?;
        let signal = fde.is_signal_trampoline();
        let mut rows = fde.rows(section, bases, context)?;
        while let Some(row) = rows.next_row()? {
            let end = row.end_address().min(u64::from(range.end)) as u32;
            let start = (row.start_address().min(u64::from(range.end)) as u32).max(from);
            if start < end {
                table.push(start, translate(row, section, signal));
            }
        }
        Ok(())
    }
}

impl<'a> Compiler<'a> {
    /// Whether no code range was listed.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Lists the code ranges that the content of `.eh_frame` describes.
    pub fn add(&mut self, bytes: &'a [u8], address: u64) {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let bases = BaseAddresses::default().set_eh_frame(address);
        let mut section = FrameSection::new(section, bases);
        section.plain = Some(Plain::new(bytes, address));
        if !section.list_plain(&mut self.ranges) {
            section.plain = None;
            section.list(false, &mut self.ranges);
        }
        self.eh = Some(section);
    }

    /// Lists the code ranges that `.debug_frame` describes.
    pub fn add_debug(&mut self, section: DebugFrame<Bytes<'a>>) {
        let mut section = FrameSection::new(section, BaseAddresses::default());
        section.list(true, &mut self.ranges);
        self.debug = Some(section);
    }

    /// Evaluates all FDEs in order of address. If several describe the same code, the one that
    /// begins first is used; at the same address, `.eh_frame` precedes `.debug_frame`.
    pub fn run(mut self) -> Result<UnwindTable, UnwindError> {
        self.ranges.sort_unstable_by_key(|r| (r.start, r.debug, r.end));
        let mut context = UnwindContext::new();
        let mut table = UnwindTable::default();
        let mut done = 0;
        for range in self.ranges {
            let from = range.start.max(done);
            if from >= range.end {
                continue;
            }
            table.push(from, Row::NONE);
            // If an FDE is malformed, the rows before the error are kept. The last of them may be
            // wrong, so it is replaced below.
            let whole = match (range.debug, &mut self.eh, &mut self.debug) {
                (false, Some(s), _) => s.rows(range, from, &mut context, &mut table).is_ok(),
                (true, _, Some(s)) => s.rows(range, from, &mut context, &mut table).is_ok(),
                _ => false,
            };
            if !whole && let Some(last) = table.pcs.last().copied() {
                table.push(last, Row::NONE);
            }
            table.push(range.end, Row::NONE);
            done = range.end;
            if table.rows.len() > MAX_ROWS {
                return Err(UnwindError::TooLarge);
            }
        }
        table.pcs.shrink_to_fit();
        table.rows.shrink_to_fit();
        Ok(table)
    }
}

/// Converts a row of frame information to the wire format.
fn translate<'a, S: UnwindSection<Bytes<'a>>>(
    row: &gimli::UnwindTableRow<usize>,
    section: &S,
    signal: bool,
) -> Row {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Undefined) => return Row::END,
        Some(RegisterRule::Offset(-8)) => {}
        _ if signal && is_signal_frame(row, section) => return Row::SIGNAL,
        _ => return Row::NONE,
    }
    // A signal may interrupt code anywhere, not only after a call, so the frame below a trampoline
    // isn't at a return address. Only the trampoline's own row tells readers that, so other rows of
    // a trampoline can't be used.
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return Row::NONE;
    };
    let kind = match register {
        X86_64::RSP if !signal => RowKind::Sp,
        X86_64::RBP if !signal => RowKind::Fp,
        _ => return Row::NONE,
    };
    let saved = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => None,
        Some(RegisterRule::Offset(offset)) => Some(offset),
        Some(_) => return Row::NONE,
    };
    Row::new(kind, offset, saved).unwrap_or(Row::NONE)
}

/// Whether the row's CFA is the stack pointer that the kernel saved in the `ucontext` on the stack,
/// as in glibc's `__restore_rt`.
fn is_signal_frame<'a, S: UnwindSection<Bytes<'a>>>(
    row: &gimli::UnwindTableRow<usize>,
    section: &S,
) -> bool {
    /// Offset of `uc_mcontext.gregs[REG_RSP]`.
    const SAVED_RSP: i64 = 40 + 15 * 8;
    let CfaRule::Expression(expression) = row.cfa() else {
        return false;
    };
    let Ok(expression) = expression.get(section) else {
        return false;
    };
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
    let mut operations = expression.operations(encoding);
    let first = matches!(
        operations.next(),
        Ok(Some(Operation::RegisterOffset { register: X86_64::RSP, offset: SAVED_RSP, .. }))
    );
    let second = matches!(operations.next(), Ok(Some(Operation::Deref { size: 8, .. })));
    first && second && matches!(operations.next(), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tprof_symbols::elf::Elf;

    /// The fast evaluator gives the same rows as gimli, entry by entry and for the whole table.
    #[test]
    fn plain_programs_have_the_same_rows_as_with_gimli() {
        let maps = tprof_os::maps::read_code_maps(std::process::id()).unwrap();
        let mut plain_ones = 0;
        for path in maps.iter().map(|m| &m.path).filter(|path| path.is_absolute()) {
            let elf = Elf::open(Path::new(path)).unwrap();
            let sections = elf.sections();
            let Some(section) = sections.iter().find(|s| s.name == ".eh_frame") else { continue };
            let bytes = elf.contents(section, 1 << 30).unwrap();
            let mut fast = Compiler::default();
            fast.add(&bytes, section.address);
            let plain = |range: &CodeRange| fast.eh.as_mut()?.plain.as_mut()?.run(*range).map(drop);
            plain_ones += fast.ranges.iter().filter_map(plain).count();
            let mut slow = Compiler::default();
            slow.add(&bytes, section.address);
            let eh = slow.eh.as_mut().unwrap();
            eh.plain = None;
            slow.ranges.clear();
            eh.list(false, &mut slow.ranges);
            assert_eq!(fast.run().unwrap(), slow.run().unwrap(), "{}", path.display());
        }
        assert!(plain_ones > 5_000, "{plain_ones} were plain");
    }
}
