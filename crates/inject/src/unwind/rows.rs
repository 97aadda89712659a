//! The row of a return address, memoised.

use super::ask::{ask, ask_for_mappings, forget_patience, post};
use super::short_row::{NOT_READY, ROW_BITS, ShortRow};
use super::tables::{RowSearch, search};
use super::{loaded_rows, mappings};
use crate::block::Thread;
use crate::{callee, wiped};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*, fence};
use tprof_wire::hash::spread;
use tprof_wire::unwind::Row;

/// Sets of the memo, by return address, of two entries each: 512 KiB of address space, touched as
/// needed. cc1 calls malloc through 20,000 return addresses.
const SET_BITS: u32 = 15;
const WAYS: usize = 2;
const MEMO: usize = WAYS << SET_BITS;
/// Bits of an address in user space.
const PC_BITS: u32 = 47;
/// Bits of the code generation beside a [`ShortRow`]. What is left has those bits of a pc that its
/// set does not have.
const GENERATION_BITS: u32 = 7;
const _: () = assert!(ROW_BITS + GENERATION_BITS + PC_BITS - SET_BITS == 64);

/// Of `pc | generation | row`, all in one word: two writers cannot mix them.
static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// Code generation, in the bits above a pc: part of every memo key and stack
/// hash, so that nothing learnt before a `dlclose` is used after it.
static CODE: AtomicU64 = AtomicU64::new(0);

/// Before the first stack, and in each forked child.
pub fn prepare() {
    loaded_rows::prepare();
    mappings::begin();
}

/// Maps the memo, if it is not yet.
pub fn map_memo() {
    wiped::map_inherited(&TABLE, MEMO * size_of::<AtomicU64>());
}

/// Whether there is memory for it. Without it no stack is taken by rows.
pub fn has_memo() -> bool {
    !TABLE.load(Relaxed).is_null()
}

/// Code was unmapped: other code may come to lie at the same addresses.
pub fn code_changed() {
    let code = CODE.fetch_add(1 << 48, AcqRel).wrapping_add(1 << 48);
    if generation(code) == 0 {
        // From here on entries bear generations that earlier ones had.
        forget_all();
    }
    mappings::unmapped();
    callee::forget();
}

#[cold]
fn forget_all() {
    let memo = TABLE.load(Relaxed);
    for at in 0..if memo.is_null() { 0 } else { MEMO } {
        // SAFETY: the memo is mapped for good, and has MEMO entries.
        unsafe { &*memo.add(at) }.store(0, Relaxed);
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
    /// Code generation, in its upper 16 bits.
    pub code: u64,
    generation: u64,
}

impl Rows {
    /// `None` where there is no memory for them.
    #[inline(always)]
    pub fn now() -> Option<Rows> {
        let memo = TABLE.load(Relaxed);
        let code = CODE.load(Relaxed);
        (!memo.is_null()).then_some(Rows { memo, code, generation: generation(code) })
    }

    /// The row of a pc.
    #[inline(always)]
    pub fn of(&self, thread: &Thread, pc: u64) -> ShortRow {
        // One to one within PC_BITS, so that set and rest together are the pc. The first bit of
        // the rest chooses the entry that is tried first.
        let spread = spread(pc) << (64 - PC_BITS);
        let at = (spread >> (64 - SET_BITS - 1)) as usize;
        let key = spread << SET_BITS | self.generation;
        let row = self.entry(at).load(Relaxed) ^ key;
        if is_row(row) && pc >> PC_BITS == 0 {
            ShortRow(row)
        } else {
            self.look_up(thread, pc, at, key)
        }
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the memo is mapped for good, and has MEMO entries.
        unsafe { &*self.memo.add(at & (MEMO - 1)) }
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
            // What lies there goes to the other entry.
            let before = self.entry(at).load(Relaxed);
            if before & 1 != 0 && (before ^ key) & GENERATION == 0 {
                self.entry(at ^ 1).store(before, Relaxed);
            }
            self.entry(at).store(key | row.0, Relaxed);
            fence(SeqCst);
            if CODE.load(Relaxed) != self.code {
                // Its generation may be over already.
                self.entry(at).store(0, Relaxed);
                self.entry(at ^ 1).store(0, Relaxed);
            }
        }
        row
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
    // Which code lies there, then the table of a large module: two questions, and a third where
    // another thread's answer came without the table.
    let mut again = false;
    for _ in 0..5 {
        let found = search(pc, quiet, asks && !quiet);
        if let RowSearch::Row(row) = found {
            // It was worth asking: be ready to ask again.
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
