//! The row of a return address, memoised.

use super::ask::{ask, ask_for_mappings, forget_patience};
use super::tables::{NOT_READY, RowSearch, search};
use crate::block::Thread;
use crate::{callee, sys};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use tprof_wire::hash::spread;
use tprof_wire::unwind::Row;

/// Entries of the memo; direct-mapped by return address. 1 MiB of address
/// space, touched as needed: cc1 calls malloc through 20,000 return addresses.
const MEMO_BITS: u32 = 16;
const MEMO: usize = 1 << MEMO_BITS;

/// One memoised row. `key` is the pc xor the row: an entry mixed by two
/// writers does not match.
#[repr(C)]
struct MemoisedRow {
    key: AtomicU64,
    row: AtomicU64,
}

static TABLE: AtomicPtr<MemoisedRow> = AtomicPtr::new(core::ptr::null_mut());
/// Code generation, in the bits above a pc: part of every memo key and stack
/// hash, so that nothing learnt before a `dlclose` is used after it.
static CODE: AtomicU64 = AtomicU64::new(0);
/// The module table may name mappings that are gone.
static STALE: AtomicBool = AtomicBool::new(false);
/// Maps the memo; without it every lookup is a search.
pub fn prepare() {
    if TABLE.load(Relaxed).is_null()
        && let Some(at) = sys::map_anonymous(MEMO * size_of::<MemoisedRow>())
    {
        TABLE.store(at.cast(), Release);
    }
}

/// Code was unmapped: other code may come to lie at the same addresses.
pub fn code_changed() {
    CODE.fetch_add(1 << 48, Relaxed);
    STALE.store(true, Release);
    callee::forget();
}

/// The rows that were found for the code that is loaded.
pub struct Rows {
    memo: *const MemoisedRow,
    /// Code generation: also where a stack's hash begins.
    pub code: u64,
}

impl Rows {
    /// `None` where there is no memory for them.
    #[inline(always)]
    pub fn now() -> Option<Rows> {
        let memo = TABLE.load(Relaxed);
        if memo.is_null() { None } else { Some(Rows { memo, code: CODE.load(Relaxed) }) }
    }

    /// The row of a pc.
    #[inline(always)]
    pub fn of(&self, thread: &Thread, pc: u64) -> u64 {
        // SAFETY: the memo is mapped for good, and the index is masked to its size.
        let entry = unsafe { &*self.memo.add(slot_of(pc)) };
        let row = entry.row.load(Relaxed);
        if entry.key.load(Relaxed) ^ row == pc ^ self.code {
            row
        } else {
            lookup(thread, pc, self.code, entry)
        }
    }
}

#[inline(always)]
fn slot_of(pc: u64) -> usize {
    (spread(pc) >> (64 - MEMO_BITS)) as usize
}

#[cold]
#[inline(never)]
fn lookup(thread: &Thread, pc: u64, code: u64, entry: &MemoisedRow) -> u64 {
    if STALE.load(Relaxed) && STALE.swap(false, AcqRel) {
        forget_patience();
        ask_for_mappings(thread);
        forget_patience();
    }
    let quiet = thread.is_quiet();
    // Which code lies there, then the table of a large module: two questions, and a third where
    // another thread's answer came without the table.
    let mut again = false;
    for _ in 0..4 {
        match search(pc, quiet) {
            RowSearch::Row(Row(NOT_READY)) => return NOT_READY,
            RowSearch::Row(row) => {
                entry.row.store(row.0, Relaxed);
                entry.key.store(pc ^ row.0 ^ code, Relaxed);
                return row.0;
            }
            // An answer brings it for certain.
            RowSearch::Asked(first) => {
                if first || again {
                    forget_patience();
                }
                again = true;
                if !ask(thread) {
                    return NOT_READY;
                }
            }
            RowSearch::Unknown => {
                if !ask_for_mappings(thread) {
                    return NOT_READY;
                }
                match search(pc, quiet) {
                    RowSearch::Unknown => return Row::NONE.0,
                    // It was worth asking: be ready to ask again.
                    _ => forget_patience(),
                }
            }
        }
    }
    NOT_READY
}
