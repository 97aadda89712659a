//! Walks a stack by unwind rows, from the innermost frame outward.

use super::check;
use super::frame_pointers::walk_frame_pointers;
use super::frames::{ByRows, HashSoFar, Walk, outermost};
use super::last_walk;
use super::mappings;
use super::rows::Rows;
use super::short_row::ShortRow;
use super::stack_bounds::{readable, within};
use super::tables::{RowSearch, search};
use super::walk_reuse::{FrameObserver, NoReuse, WalkReuse};
use crate::arch::ucontext;
use crate::block::Thread;
use crate::state;
use core::sync::atomic::Ordering::Relaxed;
use tprof_wire::record::{MAX_FRAMES, StackEnd};
use tprof_wire::region::stack_mode;
use tprof_wire::unwind::{Row, RowKind};

/// Walks a stack from a hook's entry, where `sp` points at the return address.
#[inline(always)]
pub fn walk(thread: &Thread, (sp, fp): (usize, usize), is_learnt_from: bool, out: &mut Walk) {
    (out.rest, out.number) = (0, 0);
    // If the mappings are out of date, rows and names are unreliable.
    if !mappings::are_known(thread) {
        (out.len, out.hash, out.end) = (0, 0, StackEnd::NotReady);
        return;
    }
    if state::STACK_MODE.load(Relaxed) == stack_mode::FP {
        return walk_frame_pointers(thread, sp, fp, out);
    }
    out.end = StackEnd::Whole;
    out.interrupted = false;
    let Some(rows) = Rows::now().filter(|_| readable(thread, sp)) else {
        out.len = 0;
        out.hash = 0;
        out.end = StackEnd::OutsideStack;
        return;
    };
    if let Some(mut memory) = WalkReuse::begin(thread, sp, rows.code, is_learnt_from) {
        let found = by_rows(thread, &rows, (sp, fp), &mut memory, out);
        out.hash = match found.rest {
            0 => found.hash.within(outermost(rows.code)),
            rest => memory.hash(rest, &found.hash),
        };
        if memory.remember(thread, out, &found) {
            (out.rest, out.number) = (found.rest, memory.number);
            out.len += found.rest;
            if found.rest > 0 && !state::CHECK_STACKS.load(Relaxed).is_null() {
                complete(thread, (sp, fp), out);
                check::compare(thread, out, |whole| by_rows_only(thread, &rows, (sp, fp), whole));
            }
            return;
        }
    }
    by_rows_only(thread, &rows, (sp, fp), out);
}

/// Copies the frames that [`walk`] left in the memory of an earlier walk. `from` is what [`walk`]
/// got.
#[inline(always)]
pub fn complete(thread: &Thread, from: (usize, usize), out: &mut Walk) {
    if out.rest > 0
        && !last_walk::complete(thread, out)
        && let Some(rows) = Rows::now()
    {
        by_rows_only(thread, &rows, from, out);
    }
}

/// Walks all frames without reusing an earlier walk.
#[inline(never)]
fn by_rows_only(thread: &Thread, rows: &Rows, from: (usize, usize), out: &mut Walk) {
    out.end = StackEnd::Whole;
    out.interrupted = false;
    let found = by_rows(thread, rows, from, &mut NoReuse, out);
    out.hash = found.hash.within(outermost(rows.code));
}

#[inline(always)]
fn by_rows(
    thread: &Thread,
    rows: &Rows,
    (mut sp, mut fp): (usize, usize),
    observer: &mut impl FrameObserver,
    out: &mut Walk,
) -> ByRows {
    let mut found = ByRows { hash: HashSoFar::NONE, rest: 0, fp: 0, zero: 0 };
    let mut len = 0;
    // SAFETY: the caller has checked with `readable` that the word at `sp` can be read.
    let mut ra = unsafe { *(sp as *const u64) };
    sp += 8;
    // 1 if `ra` is a return address; then the row is that of the call before it. 0 if `ra` is the
    // pc of interrupted code.
    let mut after_call = 1;
    loop {
        // Stored states have their return address just below `sp`, which doesn't hold for an
        // interrupted pc.
        if after_call == 1
            && let Some(rest) = observer.rest(sp, fp)
            && len + rest <= MAX_FRAMES
        {
            (found.rest, found.fp) = (rest, fp);
            break;
        }
        if len == MAX_FRAMES {
            out.end = StackEnd::TooDeep;
            break;
        }
        out.frames[len] = ra;
        found.hash.add(ra);
        let pc = ra.wrapping_sub(after_call);
        let row = rows.of(thread, pc);
        // This is a frame of a function with a frame pointer, in its body. Code that is compiled
        // with frame pointers has whole stacks of such frames. They are handled separately, since
        // this needs only `fp`.
        if row == FRAME
            && fp & 7 == 0
            && fp >= sp
            && fp + 16 <= thread.stack_high.get()
            && sp >= thread.stack_low.get()
        {
            observer.step(len, sp, fp, true, fp);
            len += 1;
            // SAFETY: `fp` is aligned, and both words are within the readable stack.
            (ra, sp, fp) = unsafe { (*((fp + 8) as *const u64), fp + 16, *(fp as *const usize)) };
            after_call = 1;
            if ra == 0 {
                found.zero = sp;
                break;
            }
            continue;
        }
        let by_fp = row.kind() == RowKind::Fp as u64;
        let (cfa, saved_at, by_fp) = if by_fp || row.kind() == RowKind::Sp as u64 {
            let cfa = if by_fp { fp } else { sp }.wrapping_add(row.cfa_offset());
            (cfa, row.saves_fp().then(|| cfa.wrapping_add_signed(row.fp_offset())), by_fp)
        } else {
            match unusual(thread, rows, row, pc, (sp, fp)) {
                Unusual::Caller(cfa, saved_at, by_fp) => (cfa, saved_at, by_fp),
                Unusual::Signal(at) => {
                    observer.step(len, sp, fp, false, 0);
                    len += 1;
                    (sp, fp, ra) = at;
                    after_call = 0;
                    out.interrupted = true;
                    continue;
                }
                Unusual::Ends(end) => {
                    observer.step(len, sp, fp, false, 0);
                    len += 1;
                    out.end = end;
                    break;
                }
                // Code is unmapped or not known here. When the collector reads the mappings, other
                // code may be mapped there.
                Unusual::Unplaced => {
                    out.end = StackEnd::NotReady;
                    break;
                }
            }
        };
        let (state, depth) = ((sp, fp), len);
        len += 1;
        // The caller's frame is above this one, and everything that the walk reads is in between.
        if cfa <= sp.wrapping_sub(8) || cfa & 7 != 0 || !within(thread, sp, cfa) {
            out.end = StackEnd::OutsideStack;
            break;
        }
        let mut saved = 0;
        if let Some(at) = saved_at {
            saved = at;
            if saved & 7 != 0 || !within(thread, saved, saved.wrapping_add(8)) {
                out.end = StackEnd::OutsideStack;
                break;
            }
            // SAFETY: `saved` is aligned and within the readable stack.
            fp = unsafe { *(saved as *const usize) };
        }
        observer.step(depth, state.0, state.1, by_fp, saved);
        // SAFETY: `cfa` is aligned and within the readable stack, and the word below it isn't below
        // `sp - 8`.
        ra = unsafe { *((cfa - 8) as *const u64) };
        sp = cfa;
        after_call = 1;
        if ra == 0 {
            found.zero = sp;
            break;
        }
    }
    out.len = len;
    found
}

/// The row of a function with a frame pointer: CFA = frame pointer + 16, frame pointer saved at CFA
/// - 16.
const FRAME: ShortRow = match Row::new(RowKind::Fp, 16, Some(-16)) {
    Some(row) => ShortRow::new(row),
    None => ShortRow::new(Row::NONE),
};

/// How a walk continues at a frame whose short row doesn't say where its caller's frame is.
enum Unusual {
    /// The CFA, the place where the caller's frame pointer is saved, and whether the CFA was
    /// computed from `fp`.
    Caller(usize, Option<usize>, bool),
    /// The stack pointer, frame pointer and pc of the code that a signal interrupted.
    Signal((usize, usize, u64)),
    Ends(StackEnd),
    /// The collector doesn't know yet which code is mapped at the pc.
    Unplaced,
}

// The arguments are passed by value. References would force the compiler to keep the walk's state
// in memory for every frame.
#[cold]
#[inline(never)]
fn unusual(
    thread: &Thread,
    rows: &Rows,
    short: ShortRow,
    pc: u64,
    (sp, fp): (usize, usize),
) -> Unusual {
    match short.kind() {
        ShortRow::NOT_READY => {
            return match search(pc, true, false) {
                RowSearch::Unknown => Unusual::Unplaced,
                _ => Unusual::Ends(StackEnd::NotReady),
            };
        }
        ShortRow::LONG => {
            let row = rows.long(thread, pc);
            let by_fp = row.kind() == RowKind::Fp as u64;
            if !by_fp && row.kind() != RowKind::Sp as u64 {
                return Unusual::Ends(StackEnd::NoUnwindInfo);
            }
            let base = if by_fp { fp } else { sp };
            let cfa = base.wrapping_add(row.cfa_offset() as usize);
            let saved_at = row.saves_fp().then(|| cfa.wrapping_add(row.fp_offset() as usize));
            return Unusual::Caller(cfa, saved_at, by_fp);
        }
        kind if kind == RowKind::End as u64 => return Unusual::Ends(StackEnd::Whole),
        kind if kind != RowKind::Signal as u64 => return Unusual::Ends(StackEnd::NoUnwindInfo),
        _ => {}
    }
    let context = sp;
    if !within(thread, context, context.wrapping_add(ucontext::PC + 8)) {
        return Unusual::Ends(StackEnd::OutsideStack);
    }
    // SAFETY: `within` has checked that the signal frame is on the readable stack. (The saved stack
    // pointer may be on another stack, by sigaltstack, so it is checked again before it is used.)
    let word = |at: usize| unsafe { *((context + at) as *const usize) };
    Unusual::Signal((word(ucontext::SP), word(ucontext::FP), word(ucontext::PC) as u64))
}
