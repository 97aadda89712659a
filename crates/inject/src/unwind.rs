//! Takes a stack: interprets rows that the collector compiled, memoised by
//! return address, within memory known to be readable.
//!
//! A frame pointer is trusted only where a row says that it holds. Nothing is
//! dereferenced outside the thread's stack and the read-only tables.

use crate::arch;
use crate::stall;
use crate::state;
use crate::sys;
use crate::thread::Thread;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use tprof_wire::record::{MAX_FRAMES, StackEnd};
use tprof_wire::region::{MAX_MODULES, MODULES_OFFSET, ModuleRange, stack_mode};
use tprof_wire::unwind::{Row, RowKind, TableHeader};

/// Entries of the memo; direct-mapped by return address. 1 MiB of address
/// space, touched as needed: cc1 calls malloc through 20,000 return addresses.
const MEMO_BITS: u32 = 16;
const MEMO: usize = 1 << MEMO_BITS;

/// One memoised row. `key` is the pc xor the row: an entry mixed by two
/// writers does not match.
#[repr(C)]
struct Entry {
    key: AtomicU64,
    row: AtomicU64,
}

static TABLE: AtomicPtr<Entry> = AtomicPtr::new(core::ptr::null_mut());
/// Code generation, in the bits above a pc: part of every memo key and stack
/// hash, so that nothing learnt before a `dlclose` is used after it.
static CODE: AtomicU64 = AtomicU64::new(0);
/// The module table may name mappings that are gone.
static STALE: AtomicBool = AtomicBool::new(false);
/// When the collector may be asked again, and how patient to be after that.
static PATIENCE: AtomicU64 = AtomicU64::new(0);

/// A stack being taken.
pub struct Walk {
    /// Return addresses, innermost first.
    pub frames: [u64; MAX_FRAMES],
    /// How many.
    pub len: usize,
    /// Hash over them.
    pub hash: u64,
    /// Why it ends.
    pub end: StackEnd,
    /// It goes through a signal handler.
    pub interrupted: bool,
}

/// Maps the memo; without it every lookup is a search.
pub fn prepare() {
    if TABLE.load(Relaxed).is_null()
        && let Some(at) = sys::map_anonymous(MEMO * size_of::<Entry>())
    {
        TABLE.store(at.cast(), Release);
    }
}

/// Code was unmapped: other code may come to lie at the same addresses.
pub fn code_changed() {
    CODE.fetch_add(1 << 48, Relaxed);
    STALE.store(true, Release);
    crate::callee::forget();
}

/// Mixes a frame into a stack's hash.
#[inline(always)]
fn mix(hash: u64, frame: u64) -> u64 {
    let x = (hash ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ x >> 29
}

/// Walks from a hook's entry: `sp` points at the return address.
#[inline(always)]
pub fn walk(thread: &mut Thread, sp: usize, fp: usize, out: &mut Walk) {
    if state::STACK_MODE.load(Relaxed) == stack_mode::FP {
        return walk_frame_pointers(thread, sp, fp, out);
    }
    let memo = TABLE.load(Relaxed);
    let mut sp = sp;
    let mut fp = fp;
    let mut len = 0;
    let code = CODE.load(Relaxed);
    let mut hash = code;
    out.end = StackEnd::Whole;
    out.interrupted = false;
    if memo.is_null() || !readable(thread, sp) {
        out.len = 0;
        out.hash = 0;
        out.end = StackEnd::OutsideStack;
        return;
    }
    // SAFETY: `sp` is readable, checked above.
    let mut ra = unsafe { *(sp as *const u64) };
    sp += 8;
    // Whether `ra` is a return address (look up the call before it) or an
    // interrupted pc.
    let mut after_call = 1;
    loop {
        if len == MAX_FRAMES {
            out.end = StackEnd::TooDeep;
            break;
        }
        out.frames[len] = ra;
        len += 1;
        hash = mix(hash, ra);
        let pc = ra.wrapping_sub(after_call);
        // SAFETY: the index is masked to the memo's size.
        let entry = unsafe { &*memo.add(slot_of(pc)) };
        let mut row = entry.row.load(Relaxed);
        if entry.key.load(Relaxed) ^ row != pc ^ code {
            row = lookup(thread, pc, code, entry);
        }
        // A function that keeps a frame pointer, in its body: the whole stack of
        // code that was built so. Kept apart since it needs nothing but `fp`.
        if row == FRAME.0
            && fp & 7 == 0
            && fp >= sp
            && fp + 16 <= thread.stack_high
            && sp >= thread.stack_low
        {
            // SAFETY: aligned and within the readable stack.
            (ra, sp, fp) = unsafe { (*((fp + 8) as *const u64), fp + 16, *(fp as *const usize)) };
            after_call = 1;
            if ra == 0 {
                break;
            }
            continue;
        }
        let row = Row(row);
        let base = if row.kind() == RowKind::Sp as u64 {
            sp
        } else if row.kind() == RowKind::Fp as u64 {
            fp
        } else {
            // By value: a reference would keep all three in memory on every frame.
            match special(thread, row, sp) {
                Special::Signal(at) => {
                    (sp, fp, ra) = at;
                    after_call = 0;
                    out.interrupted = true;
                    continue;
                }
                Special::Ends(end) => {
                    out.end = end;
                    break;
                }
            }
        };
        let cfa = base.wrapping_add(row.cfa_offset() as usize);
        // The caller's frame lies above; everything read lies between.
        if cfa <= sp.wrapping_sub(8) || cfa & 7 != 0 || !within(thread, sp, cfa) {
            out.end = StackEnd::OutsideStack;
            break;
        }
        if row.saves_fp() {
            let at = cfa.wrapping_add(row.fp_offset() as usize);
            if at & 7 != 0 || !within(thread, at, at.wrapping_add(8)) {
                out.end = StackEnd::OutsideStack;
                break;
            }
            // SAFETY: aligned and within the readable stack.
            fp = unsafe { *(at as *const usize) };
        }
        // SAFETY: `cfa` is aligned and within the readable stack, above `sp`.
        ra = unsafe { *((cfa - 8) as *const u64) };
        sp = cfa;
        after_call = 1;
        if ra == 0 {
            break;
        }
    }
    out.len = len;
    out.hash = hash;
}

#[inline(always)]
fn slot_of(pc: u64) -> usize {
    (pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - MEMO_BITS)) as usize
}

/// Whether `[low, high)` lies in the readable stack.
#[inline(always)]
fn within(thread: &mut Thread, low: usize, high: usize) -> bool {
    (low >= thread.stack_low && high <= thread.stack_high && low <= high)
        || extend(thread, low, high)
}

#[inline(always)]
fn readable(thread: &mut Thread, at: usize) -> bool {
    within(thread, at, at.wrapping_add(8))
}

/// Another stack (a coroutine's, a signal's), or one that grew: asks the kernel
/// page by page, once, and remembers.
#[cold]
#[inline(never)]
fn extend(thread: &mut Thread, low: usize, high: usize) -> bool {
    if thread.is_quiet() || high < low || high - low > 1 << 20 || low < 4096 {
        return false;
    }
    let first = low & !4095;
    let last = (high - 1) & !4095;
    // A known stack grows downwards contiguously: what lies between is stack.
    if first < thread.stack_low && high <= thread.stack_high && thread.stack_low - first <= 8 << 20
    {
        if !sys::is_readable(first) {
            return false;
        }
        thread.stack_low = first;
        return true;
    }
    let mut page = first;
    loop {
        if !sys::is_readable(page) {
            return false;
        }
        if page >= last {
            break;
        }
        page += 4096;
    }
    if first == thread.stack_high {
        thread.stack_high = last + 4096;
    } else {
        thread.stack_low = first;
        thread.stack_high = last + 4096;
    }
    true
}

/// CFA = frame pointer + 16, frame pointer saved at CFA - 16.
const FRAME: Row = match Row::new(RowKind::Fp, 16, Some(-16)) {
    Some(row) => row,
    None => Row::NONE,
};

enum Special {
    /// Stack pointer, frame pointer, pc of the interrupted code.
    Signal((usize, usize, u64)),
    Ends(StackEnd),
}

#[cold]
#[inline(never)]
fn special(thread: &mut Thread, row: Row, context: usize) -> Special {
    use crate::arch::ucontext;
    if row.kind() == RowKind::End as u64 {
        return Special::Ends(StackEnd::Whole);
    }
    if row.0 == NOT_READY {
        return Special::Ends(StackEnd::NotReady);
    }
    if row.kind() != RowKind::Signal as u64 {
        return Special::Ends(StackEnd::NoUnwindInfo);
    }
    if !within(thread, context, context.wrapping_add(ucontext::PC + 8)) {
        return Special::Ends(StackEnd::OutsideStack);
    }
    // SAFETY: the signal frame lies on the readable stack. The saved stack may be
    // another one (sigaltstack): it is checked again before it is read.
    let word = |at: usize| unsafe { *((context + at) as *const usize) };
    Special::Signal((word(ucontext::SP), word(ucontext::FP), word(ucontext::PC) as u64))
}

/// A row that means "tables not there yet": never memoised.
const NOT_READY: u64 = 1 << 63;

#[cold]
#[inline(never)]
fn lookup(thread: &mut Thread, pc: u64, code: u64, entry: &Entry) -> u64 {
    if STALE.load(Relaxed) && STALE.swap(false, AcqRel) {
        PATIENCE.store(0, Relaxed);
        ask(thread);
        PATIENCE.store(0, Relaxed);
    }
    let quiet = thread.is_quiet();
    match search(pc, quiet) {
        Search::Row(Row(NOT_READY)) => NOT_READY,
        Search::Row(row) => {
            entry.row.store(row.0, Relaxed);
            entry.key.store(pc ^ row.0 ^ code, Relaxed);
            row.0
        }
        Search::Unknown => {
            if ask(thread) {
                if let Search::Row(row) = search(pc, quiet) {
                    // It was worth asking: be ready to ask again.
                    PATIENCE.store(0, Relaxed);
                    return row.0;
                }
            } else {
                return NOT_READY;
            }
            Row::NONE.0
        }
    }
}

enum Search {
    Row(Row),
    /// No published mapping holds this pc.
    Unknown,
}

/// Looks `pc` up in the published modules; `quiet`: without a system call.
fn search(pc: u64, quiet: bool) -> Search {
    let Some(header) = state::header() else { return Search::Unknown };
    let region = state::REGION.load(Relaxed);
    for _ in 0..1000 {
        let before = header.modules_seq.load(Acquire);
        if before & 1 != 0 {
            core::hint::spin_loop();
            continue;
        }
        let len = (header.modules_len.load(Relaxed) as usize).min(MAX_MODULES);
        // SAFETY: the module table lies in the region.
        let modules = unsafe {
            core::slice::from_raw_parts(region.add(MODULES_OFFSET).cast::<ModuleRange>(), len)
        };
        let after = modules.partition_point(|m| m.start.load(Relaxed) <= pc);
        let found = after
            .checked_sub(1)
            .and_then(|i| modules.get(i))
            .map(|m| (m.end.load(Relaxed), m.bias.load(Relaxed), m.table.load(Relaxed)));
        core::sync::atomic::fence(Acquire);
        if header.modules_seq.load(Relaxed) != before {
            continue;
        }
        return match found {
            Some((end, bias, table)) if pc < end => {
                if table == u64::MAX {
                    return Search::Row(Row(NOT_READY));
                }
                Search::Row(table_row(table, pc.wrapping_sub(bias), quiet))
            }
            _ => Search::Unknown,
        };
    }
    Search::Unknown
}

/// Opens the tables for reading up to `end`, if they are not yet; that takes a system
/// call, which a quiet thread does not make.
fn is_open(tables: *mut u8, end: usize, quiet: bool) -> bool {
    const STEP: usize = 1 << 20;
    let open = state::TABLES_OPEN.load(Acquire);
    if end <= open {
        return true;
    }
    let mapped = state::TABLES_BYTES.load(Relaxed);
    let wanted = end.next_multiple_of(STEP).min(mapped);
    if end > mapped || quiet {
        return false;
    }
    if !sys::protect(tables, wanted, sys::flags::PROT_READ) {
        return false;
    }
    state::TABLES_OPEN.fetch_max(wanted, AcqRel);
    true
}

/// The row of a module's table for a module-relative pc. What is not open to a quiet
/// thread may yet be to another: it is not ready, rather than absent.
fn table_row(table: u64, pc: u64, quiet: bool) -> Row {
    let closed = if quiet { Row(NOT_READY) } else { Row::NONE };
    let tables = state::TABLES.load(Relaxed);
    let mapped = state::TABLES_BYTES.load(Relaxed);
    let Ok(pc) = u32::try_from(pc) else { return Row::NONE };
    if tables.is_null() || table == 0 || table as usize + size_of::<TableHeader>() > mapped {
        return Row::NONE;
    }
    if !is_open(tables, table as usize + size_of::<TableHeader>(), quiet) {
        return closed;
    }
    // SAFETY: tables are published whole before their offset is, never change,
    // and end inside the mapping's open part, which is checked again here.
    unsafe {
        let base = tables.add(table as usize);
        let head = base.cast::<TableHeader>().read();
        let len = head.len as usize;
        if table as usize + tprof_wire::unwind::table_bytes(len) > mapped {
            return Row::NONE;
        }
        if !is_open(tables, table as usize + tprof_wire::unwind::table_bytes(len), quiet) {
            return closed;
        }
        let pcs =
            core::slice::from_raw_parts(base.add(size_of::<TableHeader>()).cast::<u32>(), len);
        let rows = base.add(size_of::<TableHeader>() + (len * 4).next_multiple_of(8)).cast::<u64>();
        match pcs.partition_point(|p| *p <= pc) {
            0 => Row::NONE,
            after => Row(*rows.add(after - 1)),
        }
    }
}

/// Asks the collector for a fresh module table and waits for it; false if no
/// answer came. A pc that stays unknown is asked for again only after the table
/// changed, or an exponentially growing pause; what another thread asked a
/// moment ago is waited for all the same.
fn ask(thread: &Thread) -> bool {
    let Some(header) = state::header() else { return false };
    if thread.is_quiet() {
        return false;
    }
    let now = sys::monotonic_ns();
    let packed = PATIENCE.load(Relaxed);
    // High 56 bits: earliest time of the next question, in microseconds; low 8: exponent.
    let (not_before, exponent) = (packed >> 8, packed & 0xff);
    if now / 1000 < not_before {
        return wait_for_answer(thread, now, header.modules_wanted.load(Acquire));
    }
    let next = now / 1000 + (1000 << exponent.min(12));
    PATIENCE.store(next << 8 | (exponent + 1).min(12), Relaxed);
    let question = header.modules_wanted.fetch_add(1, AcqRel) + 1;
    // Who waits wakes the collector; who does not wait, wakes it once a question.
    if let (0, Some(session)) = (header.wait_on_full.load(Relaxed), state::session()) {
        sys::futex_wake(session.sleep.as_ptr(), 1);
    }
    wait_for_answer(thread, now, question)
}

/// How long an answer is waited for, ns, while they come. A collector that is
/// alive gives it in a millisecond; on a machine with far more to run than it
/// has cores it was seen to take more than a hundred.
const ANSWER_NS: u64 = 1_000_000_000;
/// Questions in a row that got no answer: each is waited for a quarter as long
/// as the one before it, so that a collector that goes on without an answer holds
/// nobody up for more than 1.4 s in all. One that stands still is not waited for.
static SILENCES: AtomicU64 = AtomicU64::new(0);

/// Waits a bounded time for the answer to a question, and under `--on-full drop` not
/// at all; false if it did not come.
fn wait_for_answer(thread: &Thread, began_ns: u64, question: u32) -> bool {
    let (Some(header), Some(session)) = (state::header(), state::session()) else { return false };
    let is_answered = |answered: u32| answered.wrapping_sub(question) as i32 >= 0;
    if header.wait_on_full.load(Relaxed) == 0 {
        return is_answered(header.modules_answered.load(Acquire));
    }
    let bound = ANSWER_NS >> (2 * SILENCES.load(Relaxed)).min(30);
    let began = thread.clock();
    let mut rounds = 0;
    let came = loop {
        let answered = header.modules_answered.load(Acquire);
        if is_answered(answered) {
            break true;
        }
        if rounds > 0 && sys::monotonic_ns().wrapping_sub(began_ns) >= bound
            || session.closed.load(Relaxed) != 0
            || stall::stands_still(thread)
        {
            break false;
        }
        sys::futex_wake(session.sleep.as_ptr(), 1);
        sys::futex_wait(header.modules_answered.as_ptr(), answered, bound.min(1_000_000));
        rounds += 1;
    };
    if rounds > 0 {
        let slot = thread.slot();
        arch::add_local(&slot.waits, 1);
        arch::add_local(&slot.wait_ticks, thread.clock().wrapping_sub(began));
    }
    SILENCES.store(if came { 0 } else { SILENCES.load(Relaxed) + 1 }, Relaxed);
    came
}

/// `--stacks fp`: follows frame pointers blindly, inside the stack.
#[cold]
fn walk_frame_pointers(thread: &mut Thread, sp: usize, fp: usize, out: &mut Walk) {
    out.len = 0;
    out.hash = 0;
    out.end = StackEnd::Whole;
    out.interrupted = false;
    if !readable(thread, sp) {
        out.end = StackEnd::OutsideStack;
        return;
    }
    // No row is needed, but names are, and the collector must look while the
    // process lives.
    if state::header().is_some_and(|h| h.modules_wanted.load(Relaxed) == 0) {
        ask(thread);
    }
    // SAFETY: checked above.
    let mut ra = unsafe { *(sp as *const u64) };
    let mut fp = fp;
    let mut low = sp;
    loop {
        let Some(place) = out.frames.get_mut(out.len) else {
            out.end = StackEnd::TooDeep;
            return;
        };
        *place = ra;
        out.len += 1;
        out.hash = mix(out.hash, ra);
        if fp == 0 {
            return;
        }
        if fp <= low || fp & 7 != 0 || !within(thread, fp, fp.wrapping_add(16)) {
            out.end = StackEnd::OutsideStack;
            return;
        }
        low = fp;
        // SAFETY: aligned, within the readable stack.
        unsafe {
            ra = *((fp + 8) as *const u64);
            fp = *(fp as *const usize);
        }
        if ra == 0 {
            return;
        }
    }
}
