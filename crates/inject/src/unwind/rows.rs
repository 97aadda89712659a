//! Finds the unwind row of a return address, and caches it in a table (the memo).

use super::ask::{Answer, ask, ask_for_mappings, begin_in_child, forget_patience, post};
use super::short_row::{NOT_READY, ROW_BITS, ShortRow};
use super::tables::{RowSearch, search};
use super::{loaded_rows, mappings};
use crate::block::Thread;
use crate::{callee, fork_tables};
use tprof_wire::hash::spread;
use tprof_wire::sync::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use tprof_wire::unwind::Row;

/// Number of bits of a return address that select a set of the memo while it uses only one page. A
/// set has two entries. The whole memo has 512 KiB, with [`SET_BITS`] bits; cc1 calls malloc from
/// 20,000 return addresses. Each page that a process touches costs it a page fault or two. When
/// rows used the whole memo from the start, cc1 had 158 additional faults for a small file, besides
/// 1,672 of its own.
const FEW_BITS: u32 = 8;
const SET_BITS: u32 = 15;
const WAYS: usize = 2;
const MEMO: usize = WAYS << SET_BITS;
const PAGE: usize = size_of::<AtomicU64>() * (WAYS << FEW_BITS);
const _: () = assert!(PAGE == 4096);
/// Number of stored rows after which the memo grows beyond the page.
const MOST_OF_FEW: u32 = 256;
/// Bits of an address in user space.
const PC_BITS: u32 = 47;
/// Number of bits of the code generation that an entry contains next to a [`ShortRow`]. Entries of
/// the page contain none. The other bits of an entry are those bits of the pc that don't select its
/// set.
const GENERATION_BITS: u32 = 7;
const _: () = assert!(ROW_BITS + GENERATION_BITS + PC_BITS - SET_BITS == 64);
const _: () = assert!(ROW_BITS + PC_BITS - FEW_BITS == 64);

/// The page, followed by all other sets. Each entry is `pc | generation | row` in one word, so that
/// concurrent writers can't combine the key of one entry with the row of another.
static MEMORY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// The part of the memo that is used now: its address, which is page-aligned, with the number of
/// bits of a set's index in the low bits. One word has both, so that no thread combines a new
/// address with an old number. 0 if there is no memory.
static SETS: AtomicUsize = AtomicUsize::new(0);
/// Number of rows that were stored while the memo used one page. A row that was stored twice counts
/// twice.
static MAX_KEPT: AtomicU32 = AtomicU32::new(0);
/// Code generation, in the bits above those of a pc. It is part of every memo key and stack hash,
/// so that nothing that was learnt before a `dlclose` is used after it.
static CODE: AtomicU64 = AtomicU64::new(0);

/// Called before the first stack, and in each forked child.
pub fn prepare(is_forked: bool) {
    loaded_rows::prepare();
    if is_forked {
        mappings::begin();
        begin_in_child();
    }
}

/// Maps the memo if it isn't mapped yet.
pub fn map_memo() {
    fork_tables::map_inherited(&MEMORY, PAGE + MEMO * size_of::<AtomicU64>());
    let memory = MEMORY.load(Acquire) as usize;
    if memory != 0 {
        let _ = SETS.compare_exchange(0, memory | FEW_BITS as usize, AcqRel, Relaxed);
    }
}

/// Whether there is memory for the memo. Without it, stacks can't be taken by rows.
pub fn has_memo() -> bool {
    SETS.load(Relaxed) != 0
}

/// The code generation, which is in the upper 16 bits of the result.
pub fn code() -> u64 {
    CODE.load(Acquire)
}

/// Makes the memo use all sets from now on. Rows that were in the page will be looked up again.
#[cold]
fn use_all() {
    let memory = MEMORY.load(Relaxed) as usize;
    if memory != 0 {
        SETS.store((memory + PAGE) | SET_BITS as usize, Release);
    }
}

/// Starts a new code generation. Called when code was unmapped, since other code may be mapped at
/// the same addresses next.
pub fn code_changed() {
    // Entries of the page contain no generation, so the page must no longer be used. `use_all` is
    // called before the generation changes, see `Rows::now`. It is called again afterwards, since
    // another thread may have mapped the memo in the meantime.
    use_all();
    let code = CODE.fetch_add(1 << 48, AcqRel).wrapping_add(1 << 48);
    use_all();
    if generation(code) == 0 {
        // From now on, entries have generations that old entries may have as well.
        forget_all();
    }
    mappings::unmapped();
    callee::forget();
}

#[cold]
fn forget_all() {
    let memory = MEMORY.load(Relaxed);
    for at in 0..if memory.is_null() { 0 } else { MEMO } {
        // SAFETY: the memo is never unmapped, and has `MEMO` entries after the page.
        unsafe { &*memory.add(PAGE).cast::<AtomicU64>().add(at) }.store(0, Relaxed);
    }
}

/// The part of a code generation that an entry contains, shifted to its place in the entry.
#[inline(always)]
fn generation(code: u64) -> u64 {
    code << (16 - GENERATION_BITS) >> (64 - GENERATION_BITS) << ROW_BITS
}

const GENERATION: u64 = ((1 << GENERATION_BITS) - 1) << ROW_BITS;

/// Whether a value is a row. The value is an entry XOR a key, so it is a row if and only if the key
/// was the entry's.
#[inline(always)]
fn is_row(row: u64) -> bool {
    row >> ROW_BITS == 0 && row & 1 != 0
}

/// A view of the memo for the code that is loaded now.
pub struct Rows {
    memo: *const AtomicU64,
    /// Number of bits of a set's index.
    set_bits: u32,
    /// Code generation, in its upper 16 bits.
    pub code: u64,
    /// The code generation, shifted to its place in an entry.
    generation: u64,
}

impl Rows {
    /// The current view; `None` if there is no memory for the memo.
    #[inline(always)]
    pub fn now() -> Option<Rows> {
        // The order matters: once the generation has changed, the page must no longer be used.
        let code = CODE.load(Acquire);
        let sets = SETS.load(Relaxed);
        let set_bits = sets as u32 & 63;
        let generation = if set_bits == SET_BITS { generation(code) } else { 0 };
        let memo = (sets & !63) as *const AtomicU64;
        (sets != 0).then_some(Rows { memo, set_bits, code, generation })
    }

    /// The row of a pc.
    #[inline(always)]
    pub fn of(&self, thread: &Thread, pc: u64) -> ShortRow {
        // Within `PC_BITS` the multiplication is one-to-one, so a set's index together with the
        // remaining bits identifies the pc. The first of the remaining bits selects the entry of
        // the set that is tried first.
        let spread = spread(pc) << (64 - PC_BITS);
        let at = (spread >> (63 - self.set_bits)) as usize;
        let key = spread << self.set_bits | self.generation;
        let row = self.entry(at).load(Relaxed) ^ key;
        if is_row(row) && pc >> PC_BITS == 0 {
            ShortRow(row)
        } else {
            self.look_up(thread, pc, at, key)
        }
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the memo is never unmapped, and has two entries for each index of `set_bits`
        // bits.
        unsafe { &*self.memo.add(at) }
    }

    /// Tries the other entry of the set, and if that isn't the pc's, looks up the row.
    #[cold]
    #[inline(never)]
    fn look_up(&self, thread: &Thread, pc: u64, at: usize, key: u64) -> ShortRow {
        let is_user = pc >> PC_BITS == 0;
        let row = self.entry(at ^ 1).load(Relaxed) ^ key;
        if is_row(row) && is_user {
            return ShortRow(row);
        }
        let (row, holds) = find(thread, pc);
        let row = ShortRow::new(row);
        if holds && is_user {
            self.keep(at, key, row);
        }
        row
    }

    /// Stores a row in an entry. The row that it replaces moves to the set's other entry.
    fn keep(&self, at: usize, key: u64, row: ShortRow) {
        let is_of_few = self.set_bits == FEW_BITS;
        if is_of_few && MAX_KEPT.fetch_add(1, Relaxed) >= MOST_OF_FEW {
            use_all();
        }
        let before = self.entry(at).load(Relaxed);
        if before & 1 != 0 && (is_of_few || (before ^ key) & GENERATION == 0) {
            self.entry(at ^ 1).store(before, Relaxed);
        }
        self.entry(at).store(key | row.0, Relaxed);
        fence(SeqCst);
        if CODE.load(Relaxed) != self.code {
            // Code may have been unloaded since the row was found, so the row may be out of date.
            self.entry(at).store(0, Relaxed);
            self.entry(at ^ 1).store(0, Relaxed);
        }
    }

    /// The row of a pc whose row doesn't fit into a [`ShortRow`].
    #[cold]
    pub fn long(&self, thread: &Thread, pc: u64) -> Row {
        find(thread, pc).0
    }
}

/// Looks up the row of a pc. Also returns whether the row is valid as long as the code is loaded.
#[cold]
#[inline(never)]
fn find(thread: &Thread, pc: u64) -> (Row, bool) {
    const LATER: (Row, bool) = (Row(NOT_READY), false);
    if !mappings::are_known(thread) {
        return LATER;
    }
    let quiet = thread.is_quiet();
    let mut asks = !loaded_rows::can_find();
    // The collector is asked first which code is mapped there, and then for the table of a large
    // module. That makes two questions. A third is needed if the answer to another thread's
    // question came without the table.
    let mut again = false;
    for _ in 0..5 {
        let found = search(pc, quiet, asks && !quiet);
        if let RowSearch::Row(row) = found {
            // The question helped, so the next question needs no pause before it.
            if again {
                forget_patience();
            }
            // If the collector can't read the file of some code, the code's table has no rows.
            if row != Row::NONE || !loaded_rows::can_find() {
                return (row, true);
            }
        }
        let is_unknown = matches!(found, RowSearch::Unknown);
        let is_known = !matches!(found, RowSearch::Unknown | RowSearch::Rewritten);
        // Names need the collector to know the code, so it is asked about unknown code even if the
        // row can be found here.
        if (quiet || !is_unknown)
            && let Some((row, is_worth_a_table)) = loaded_rows::find(pc)
        {
            if is_worth_a_table && let RowSearch::Asked(true) = search(pc, quiet, !quiet) {
                post();
            }
            return (row, is_known);
        }
        match found {
            RowSearch::Row(row) => return (row, true),
            RowSearch::Coming | RowSearch::Rewritten => return LATER,
            // A quiet thread may not ask the collector.
            RowSearch::Deferred | RowSearch::Asked(_) if quiet => return LATER,
            RowSearch::Deferred => asks = true,
            // The answer to a question will contain this table.
            RowSearch::Asked(first) => {
                if first || again {
                    forget_patience();
                }
                again = true;
                if !ask(thread) {
                    return LATER;
                }
            }
            RowSearch::Unknown => {
                let local = loaded_rows::find(pc);
                match (ask_for_mappings(thread, local.is_some()), local) {
                    (Answer::Came, _) => {}
                    (Answer::Owed, Some((row, _))) => return (row, false),
                    _ => return LATER,
                }
                match search(pc, quiet, false) {
                    RowSearch::Unknown => return (Row::NONE, false),
                    RowSearch::Rewritten => return LATER,
                    _ => forget_patience(),
                }
            }
        }
    }
    LATER
}

/// Stores the row of a pc, for tests of walks.
#[cfg(test)]
pub fn keep_row(pc: u64, row: Row) {
    map_memo();
    let rows = Rows::now().unwrap();
    let spread = spread(pc) << (64 - PC_BITS);
    let at = (spread >> (63 - rows.set_bits)) as usize;
    rows.keep(at, spread << rows.set_bits | rows.generation, ShortRow::new(row));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_in_an_entry_has_seven_bits_above_the_row() {
        assert_eq!(generation(0x007f << 48), GENERATION);
        assert_eq!(generation(0x0081 << 48), 1 << ROW_BITS);
        assert_eq!(generation(0x0080 << 48), 0);
    }

    use crate::testing::Attached;
    use tprof_wire::unwind::RowKind;

    fn row(words: i64) -> Row {
        Row::new(RowKind::Sp, words * 8, None).unwrap()
    }

    #[test]
    fn a_row_that_is_kept_is_found_by_its_pc_alone() {
        let process = Attached::new();
        let thread = process.thread();
        let rows = || Rows::now().unwrap();
        keep_row(0x1111_0000_0010, row(3));
        keep_row(0x1111_0000_0011, row(4));
        assert_eq!(rows().of(thread, 0x1111_0000_0010).cfa_offset(), 24);
        assert_eq!(rows().of(thread, 0x1111_0000_0011).cfa_offset(), 32);
    }

    #[test]
    fn a_row_is_not_used_after_code_was_unmapped() {
        let process = Attached::new();
        let thread = process.thread();
        for _ in 0..300 {
            keep_row(0x1111_0000_0020, row(3));
            assert_eq!(Rows::now().unwrap().of(thread, 0x1111_0000_0020).cfa_offset(), 24);
            code_changed();
            let kind = Rows::now().unwrap().of(thread, 0x1111_0000_0020).kind();
            assert_eq!(kind, ShortRow::NOT_READY, "the collector has not answered");
        }
        mappings::know();
    }
}
