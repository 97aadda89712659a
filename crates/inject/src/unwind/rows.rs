//! The row of a return address, memoised.

use super::ask::{ask, ask_for_mappings, forget_patience, post};
use super::short_row::{NOT_READY, ROW_BITS, ShortRow};
use super::tables::{RowSearch, search};
use super::{loaded_rows, mappings};
use crate::block::Thread;
use crate::{callee, fork_tables};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use tprof_wire::hash::spread;
use tprof_wire::unwind::Row;

/// Sets of the memo, by return address, of two entries each: a page for processes with few of them,
/// and 512 KiB. cc1 calls malloc through 20,000 return addresses. Each page that a process touches
/// costs it a fault, or two: where rows lay in all pages from the first on, cc1 had 158 of them for a
/// small file, beside 1,672 of its own.
const FEW_BITS: u32 = 8;
const SET_BITS: u32 = 15;
const WAYS: usize = 2;
const MEMO: usize = WAYS << SET_BITS;
const PAGE: usize = size_of::<AtomicU64>() * (WAYS << FEW_BITS);
const _: () = assert!(PAGE == 4096);
/// Rows that are kept in the page.
const MOST_OF_FEW: u32 = 256;
/// Bits of an address in user space.
const PC_BITS: u32 = 47;
/// Bits of the code generation beside a [`ShortRow`], of none in the page. What is left has those bits
/// of a pc that its set does not have.
const GENERATION_BITS: u32 = 7;
const _: () = assert!(ROW_BITS + GENERATION_BITS + PC_BITS - SET_BITS == 64);
const _: () = assert!(ROW_BITS + PC_BITS - FEW_BITS == 64);

/// The page, and all sets behind it. Each entry is `pc | generation | row`, all in one word: two writers
/// cannot mix them.
static MEMORY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// What is used of it: where it begins, at a page, and in the bits below how many bits a set's number
/// has. Both in one word, so that none is used with the other's. 0: nothing.
static SETS: AtomicUsize = AtomicUsize::new(0);
/// Rows that were kept in the page, or more.
static MAX_KEPT: AtomicU32 = AtomicU32::new(0);
/// Code generation, in the bits above a pc: part of every memo key and stack
/// hash, so that nothing learnt before a `dlclose` is used after it.
static CODE: AtomicU64 = AtomicU64::new(0);

/// Called before the first stack, and in each forked child.
pub fn prepare() {
    loaded_rows::prepare();
    mappings::begin();
}

/// Maps the memo, if it is not yet.
pub fn map_memo() {
    fork_tables::map_inherited(&MEMORY, PAGE + MEMO * size_of::<AtomicU64>());
    let memory = MEMORY.load(Acquire) as usize;
    if memory != 0 {
        let _ = SETS.compare_exchange(0, memory | FEW_BITS as usize, AcqRel, Relaxed);
    }
}

/// Whether there is memory for it. Without it no stack is taken by rows.
pub fn has_memo() -> bool {
    SETS.load(Relaxed) != 0
}

/// The code generation, in its upper 16 bits.
pub fn code() -> u64 {
    CODE.load(Acquire)
}

/// Uses all sets from now on. Rows in the page are found anew.
#[cold]
fn use_all() {
    let memory = MEMORY.load(Relaxed) as usize;
    if memory != 0 {
        SETS.store((memory + PAGE) | SET_BITS as usize, Release);
    }
}

/// Code was unmapped: other code may come to lie at the same addresses.
pub fn code_changed() {
    // Entries of the page bear no generation: before, see `Rows::now`, and after, where another
    // thread has mapped the memo meanwhile.
    use_all();
    let code = CODE.fetch_add(1 << 48, AcqRel).wrapping_add(1 << 48);
    use_all();
    if generation(code) == 0 {
        // From here on entries bear generations that earlier ones had.
        forget_all();
    }
    mappings::unmapped();
    callee::forget();
}

#[cold]
fn forget_all() {
    let memory = MEMORY.load(Relaxed);
    for at in 0..if memory.is_null() { 0 } else { MEMO } {
        // SAFETY: the memo is mapped for good, with MEMO entries behind the page.
        unsafe { &*memory.add(PAGE).cast::<AtomicU64>().add(at) }.store(0, Relaxed);
    }
}

/// The part of a code generation that an entry has room for, where it lies there.
#[inline(always)]
fn generation(code: u64) -> u64 {
    code << (16 - GENERATION_BITS) >> (64 - GENERATION_BITS) << ROW_BITS
}

const GENERATION: u64 = ((1 << GENERATION_BITS) - 1) << ROW_BITS;

/// Whether an entry without its key is a row: the key was that of the entry.
#[inline(always)]
fn is_row(row: u64) -> bool {
    row >> ROW_BITS == 0 && row & 1 != 0
}

/// The rows that were found for the code that is loaded.
pub struct Rows {
    memo: *const AtomicU64,
    /// Bits of a set's number.
    set_bits: u32,
    /// Code generation, in its upper 16 bits.
    pub code: u64,
    /// Where an entry has room for one.
    generation: u64,
}

impl Rows {
    /// `None` where there is no memory for them.
    #[inline(always)]
    pub fn now() -> Option<Rows> {
        // In this order: with a later generation than its own, the page is not used any more.
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
        // One to one within PC_BITS, so that set and rest together are the pc. The first bit of
        // the rest chooses the entry that is tried first.
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
        // SAFETY: the memo is mapped for good, and has two entries for each number of so many bits.
        unsafe { &*self.memo.add(at) }
    }

    /// The other entry of the set; then the tables.
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

    /// Keeps a row. What lies there goes to the other entry.
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
            // The row's generation may be over already.
            self.entry(at).store(0, Relaxed);
            self.entry(at ^ 1).store(0, Relaxed);
        }
    }

    /// The row of a pc that has none of the short form.
    #[cold]
    pub fn long(&self, thread: &Thread, pc: u64) -> Row {
        find(thread, pc).0
    }
}

/// Finds the row of a pc in the tables; whether it holds as long as the code is loaded.
#[cold]
#[inline(never)]
fn find(thread: &Thread, pc: u64) -> (Row, bool) {
    const LATER: (Row, bool) = (Row(NOT_READY), false);
    if !mappings::are_known(thread) {
        return LATER;
    }
    let quiet = thread.is_quiet();
    let mut asks = !loaded_rows::can_find();
    // The collector is asked which code lies there, then for the table of a large module: two
    // questions, and a third where another thread's answer came without the table.
    let mut again = false;
    for _ in 0..5 {
        let found = search(pc, quiet, asks && !quiet);
        if let RowSearch::Row(row) = found {
            // Asking was worth it: be ready to ask again.
            if again {
                forget_patience();
            }
            // No table has a row of code in a file that the collector cannot read.
            if row != Row::NONE || !loaded_rows::can_find() {
                return (row, true);
            }
        }
        let is_unknown = matches!(found, RowSearch::Unknown);
        let is_known = !matches!(found, RowSearch::Unknown | RowSearch::Rewritten);
        // Code that the collector does not know of it must come to know first, for names.
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
            // A quiet thread cannot ask.
            RowSearch::Deferred | RowSearch::Asked(_) if quiet => return LATER,
            RowSearch::Deferred => asks = true,
            // An answer brings it for certain.
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
                if !ask_for_mappings(thread) {
                    return LATER;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_has_its_own_bits() {
        assert_eq!(generation(0x007f << 48), GENERATION);
        assert_eq!(generation(0x0081 << 48), 1 << ROW_BITS);
        assert_eq!(generation(0x0080 << 48), 0);
    }
}
