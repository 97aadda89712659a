//! Finds the row of a return address, and caches it in a memo.

use super::ask::{ask, ask_for_mappings, forget_patience, post};
use super::short_row::{NOT_READY, ROW_BITS, ShortRow};
use super::tables::{RowSearch, search};
use super::{loaded_rows, mappings};
use crate::block::Thread;
use crate::{callee, fork_tables};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use tprof_wire::hash::spread;
use tprof_wire::unwind::Row;

/// Number of bits that select a set of the memo, by return address, while it uses only one page. A
/// set has two entries. The whole memo has 512 KiB, with [`SET_BITS`]; cc1 calls malloc from 20,000
/// return addresses. Each page that a process touches costs it a fault or two: when rows used all
/// pages from the start, cc1 had 158 additional faults for a small file, besides 1,672 of its own.
const FEW_BITS: u32 = 8;
const SET_BITS: u32 = 15;
const WAYS: usize = 2;
const MEMO: usize = WAYS << SET_BITS;
const PAGE: usize = size_of::<AtomicU64>() * (WAYS << FEW_BITS);
const _: () = assert!(PAGE == 4096);
/// Number of rows after which the memo uses more than the page.
const MOST_OF_FEW: u32 = 256;
/// Bits of an address in user space.
const PC_BITS: u32 = 47;
/// Number of bits of the code generation in an entry beside a [`ShortRow`]; entries of the page
/// have none. The other bits of an entry are those of the pc that don't select its set.
const GENERATION_BITS: u32 = 7;
const _: () = assert!(ROW_BITS + GENERATION_BITS + PC_BITS - SET_BITS == 64);
const _: () = assert!(ROW_BITS + PC_BITS - FEW_BITS == 64);

/// The page, followed by all other sets. Each entry is `pc | generation | row`, all in one word, so
/// that two writers can't mix their entries.
static MEMORY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// The part of the memo that is used now: its address, at a page's start, with the number of bits
/// of a set's index in the low bits. Both are in one word, so that neither is used with an old
/// value of the other. 0 if there is no memory.
static SETS: AtomicUsize = AtomicUsize::new(0);
/// Number of rows that were stored in the page, or more.
static MAX_KEPT: AtomicU32 = AtomicU32::new(0);
/// Code generation, in the bits above a pc. It is part of every memo key and stack hash, so that
/// nothing learnt before a `dlclose` is used after it.
static CODE: AtomicU64 = AtomicU64::new(0);

/// Called before the first stack, and in each forked child.
pub fn prepare() {
    loaded_rows::prepare();
    mappings::begin();
}

/// Maps the memo, if it is not mapped yet.
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

/// The code generation, in its upper 16 bits.
pub fn code() -> u64 {
    CODE.load(Acquire)
}

/// Uses all sets from now on. Rows that were in the page will be looked up again.
#[cold]
fn use_all() {
    let memory = MEMORY.load(Relaxed) as usize;
    if memory != 0 {
        SETS.store((memory + PAGE) | SET_BITS as usize, Release);
    }
}

/// Called when code was unmapped: other code may come to lie at the same addresses.
pub fn code_changed() {
    // Entries of the page contain no generation, so the page must not be used any more. This is
    // called before the generation changes, see `Rows::now`, and after, since another thread may
    // have mapped the memo meanwhile.
    use_all();
    let code = CODE.fetch_add(1 << 48, AcqRel).wrapping_add(1 << 48);
    use_all();
    if generation(code) == 0 {
        // From now on entries contain generations that earlier entries had too.
        forget_all();
    }
    mappings::unmapped();
    callee::forget();
}

#[cold]
fn forget_all() {
    let memory = MEMORY.load(Relaxed);
    for at in 0..if memory.is_null() { 0 } else { MEMO } {
        // SAFETY: the memo is mapped for good, with `MEMO` entries behind the page.
        unsafe { &*memory.add(PAGE).cast::<AtomicU64>().add(at) }.store(0, Relaxed);
    }
}

/// The part of a code generation that is in an entry, shifted to its place.
#[inline(always)]
fn generation(code: u64) -> u64 {
    code << (16 - GENERATION_BITS) >> (64 - GENERATION_BITS) << ROW_BITS
}

const GENERATION: u64 = ((1 << GENERATION_BITS) - 1) << ROW_BITS;

/// Whether an entry is a row, after its key was removed by exclusive or. It is if that was the
/// entry's key.
#[inline(always)]
fn is_row(row: u64) -> bool {
    row >> ROW_BITS == 0 && row & 1 != 0
}

/// A view of the memo, for the code that is loaded now.
pub struct Rows {
    memo: *const AtomicU64,
    /// Number of bits of a set's index.
    set_bits: u32,
    /// Code generation, in its upper 16 bits.
    pub code: u64,
    /// The code generation at its place in an entry.
    generation: u64,
}

impl Rows {
    /// The current view; `None` if there is no memory for the memo.
    #[inline(always)]
    pub fn now() -> Option<Rows> {
        // The order matters: once the generation has changed, the page must not be used.
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
        // The multiplication is one-to-one within `PC_BITS`, so a set's index and the rest together
        // identify the pc. The first bit of the rest selects the entry that is tried first.
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
        // SAFETY: the memo is mapped for good, and has two entries for each index of `set_bits`
        // bits.
        unsafe { &*self.memo.add(at) }
    }

    /// Tries the other entry of the set, and then looks the row up.
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

    /// Stores a row. The row that it replaces moves to the other entry.
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
            // The row's generation may have ended.
            self.entry(at).store(0, Relaxed);
            self.entry(at ^ 1).store(0, Relaxed);
        }
    }

    /// The row of a pc for which the short form is too small.
    #[cold]
    pub fn long(&self, thread: &Thread, pc: u64) -> Row {
        find(thread, pc).0
    }
}

/// Looks up the row of a pc. Also returns whether it is valid for as long as the code is loaded.
#[cold]
#[inline(never)]
fn find(thread: &Thread, pc: u64) -> (Row, bool) {
    const LATER: (Row, bool) = (Row(NOT_READY), false);
    if !mappings::are_known(thread) {
        return LATER;
    }
    let quiet = thread.is_quiet();
    let mut asks = !loaded_rows::can_find();
    // The collector is asked which code is there, and then for the table of a large module. That
    // makes two questions, and a third if the answer to another thread's question came without the
    // table.
    let mut again = false;
    for _ in 0..5 {
        let found = search(pc, quiet, asks && !quiet);
        if let RowSearch::Row(row) = found {
            // The question helped, so the next one need not be delayed.
            if again {
                forget_patience();
            }
            // Code in a file that the collector can't read has no row in any table.
            if row != Row::NONE || !loaded_rows::can_find() {
                return (row, true);
            }
        }
        let is_unknown = matches!(found, RowSearch::Unknown);
        let is_known = !matches!(found, RowSearch::Unknown | RowSearch::Rewritten);
        // For names, the collector must first learn of code that it does not know.
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
            // An answer will certainly bring this table.
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
