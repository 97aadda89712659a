//! Walks a stack by rows.

use super::frame_pointers::walk_frame_pointers;
use super::frames::{Walk, mix};
use super::rows::Rows;
use super::stack_bounds::{readable, within};
use super::tables::NOT_READY;
use crate::arch::ucontext;
use crate::block::Thread;
use crate::state;
use core::sync::atomic::Ordering::Relaxed;
use tprof_wire::record::{MAX_FRAMES, StackEnd};
use tprof_wire::region::stack_mode;
use tprof_wire::unwind::{Row, RowKind};

/// Walks from a hook's entry: `sp` points at the return address.
#[inline(always)]
pub fn walk(thread: &Thread, sp: usize, fp: usize, out: &mut Walk) {
    if state::STACK_MODE.load(Relaxed) == stack_mode::FP {
        return walk_frame_pointers(thread, sp, fp, out);
    }
    let rows = Rows::now();
    let mut sp = sp;
    let mut fp = fp;
    let mut len = 0;
    out.end = StackEnd::Whole;
    out.interrupted = false;
    let Some(rows) = rows.filter(|_| readable(thread, sp)) else {
        out.len = 0;
        out.hash = 0;
        out.end = StackEnd::OutsideStack;
        return;
    };
    let mut hash = rows.code;
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
        let row = rows.of(thread, ra.wrapping_sub(after_call));
        // A function that keeps a frame pointer, in its body: the whole stack of
        // code that was built so. Kept apart since it needs nothing but `fp`.
        if row == FRAME.0
            && fp & 7 == 0
            && fp >= sp
            && fp + 16 <= thread.stack_high.get()
            && sp >= thread.stack_low.get()
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
fn special(thread: &Thread, row: Row, context: usize) -> Special {
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
