//! Walks a stack by unwind rows, from the innermost frame outward.

use super::check;
use super::frame_pointers::walk_frame_pointers;
use super::frames::{ByRows, HashSoFar, Walk, outermost};
use super::last_walk;
use super::mappings;
use super::rows::Rows;
use super::short_row::ShortRow;
use super::stack_bounds::{ReadableSp, readable, within};
use super::tables::{RowSearch, search};
use super::walk_reuse::{FrameObserver, NoReuse, WalkReuse};
use crate::arch::ucontext;
use crate::block::Thread;
use crate::state;
use tprof_wire::record::{MAX_FRAMES, StackEnd};
use tprof_wire::region::stack_mode;
use tprof_wire::sync::Ordering::Relaxed;
use tprof_wire::unwind::{Row, RowKind};

/// Walks a stack from a hook's entry, where `sp` points at the return address. Returns where the walk
/// began; `None` if it found no frames.
#[inline(always)]
pub fn walk(
    thread: &Thread,
    (sp, fp): (usize, usize),
    is_learnt_from: bool,
    out: &mut Walk,
) -> Option<ReadableSp> {
    (out.rest, out.number) = (0, 0);
    // If the mappings are out of date, rows and names are unreliable.
    if !mappings::are_known(thread) {
        (out.len, out.hash, out.end) = (0, 0, StackEnd::NotReady);
        return None;
    }
    let Some(sp) = readable(thread, sp) else {
        (out.len, out.hash, out.end) = (0, 0, StackEnd::OutsideStack);
        return None;
    };
    if state::STACK_MODE.load(Relaxed) == stack_mode::FP {
        walk_frame_pointers(thread, sp, fp, out);
        return Some(sp);
    }
    let Some(rows) = Rows::now() else {
        (out.len, out.hash, out.end) = (0, 0, StackEnd::OutsideStack);
        return None;
    };
    out.end = StackEnd::Whole;
    out.interrupted = false;
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
            return (out.len > 0).then_some(sp);
        }
    }
    by_rows_only(thread, &rows, (sp, fp), out);
    (out.len > 0).then_some(sp)
}

/// Copies the frames that [`walk`] left in the memory of an earlier walk. `from` is where that walk
/// began, and the frame pointer there.
#[inline(always)]
pub fn complete(thread: &Thread, from: (ReadableSp, usize), out: &mut Walk) {
    if out.rest > 0
        && !last_walk::complete(thread, out)
        && let Some(rows) = Rows::now()
    {
        by_rows_only(thread, &rows, from, out);
    }
}

/// Walks all frames without reusing an earlier walk.
#[inline(never)]
fn by_rows_only(thread: &Thread, rows: &Rows, from: (ReadableSp, usize), out: &mut Walk) {
    out.end = StackEnd::Whole;
    out.interrupted = false;
    let found = by_rows(thread, rows, from, &mut NoReuse, out);
    out.hash = found.hash.within(outermost(rows.code));
}

#[inline(always)]
fn by_rows(
    thread: &Thread,
    rows: &Rows,
    (from, mut fp): (ReadableSp, usize),
    observer: &mut impl FrameObserver,
    out: &mut Walk,
) -> ByRows {
    let mut found = ByRows { hash: HashSoFar::NONE, rest: 0, fp: 0, zero: 0 };
    let mut len = 0;
    let mut ra = from.word();
    let mut sp = from.address() + 8;
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
            && fp <= thread.stack_high.get().wrapping_sub(16)
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

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::rows::keep_row;
    use crate::testing::{Attached, MadeStack};

    /// Return addresses whose rows the tests make up. Each stands behind a call.
    const SP3: u64 = 0x2222_0000_0101;
    const SAVES: u64 = 0x2222_0000_0201;
    const FRAMES: [u64; 2] = [0x2222_0000_0301, 0x2222_0000_0401];
    const ENDS: u64 = 0x2222_0000_0501;
    const NONE: u64 = 0x2222_0000_0601;
    const SIGNAL: u64 = 0x2222_0000_0701;
    const INTERRUPTED: u64 = 0x2222_0000_0900;
    const LEAF: u64 = 0x2222_0000_0a01;
    const FP_FAR: u64 = 0x2222_0000_0b01;

    fn rows() -> Rows {
        let row = |kind, cfa, fp| Row::new(kind, cfa, fp).unwrap();
        keep_row(SP3 - 1, row(RowKind::Sp, 24, None));
        keep_row(LEAF - 1, row(RowKind::Sp, 8, None));
        keep_row(SAVES - 1, row(RowKind::Sp, 24, Some(-24)));
        FRAMES.iter().for_each(|pc| keep_row(pc - 1, row(RowKind::Fp, 16, Some(-16))));
        keep_row(FP_FAR - 1, row(RowKind::Fp, 32, None));
        keep_row(ENDS - 1, Row::END);
        keep_row(SIGNAL - 1, Row::SIGNAL);
        keep_row(INTERRUPTED, row(RowKind::Sp, 16, None));
        keep_row(NONE - 1, Row::NONE);
        Rows::now().unwrap()
    }

    fn empty() -> Walk {
        Walk {
            frames: [0; MAX_FRAMES],
            len: 0,
            rest: 0,
            number: 0,
            hash: 0,
            end: StackEnd::TooDeep,
            interrupted: false,
        }
    }

    /// Walks a made-up stack from its first word.
    fn walked(stack: &MadeStack, fp: usize) -> Walk {
        let process = Attached::new();
        let thread = process.thread();
        let sp = readable(thread, stack.of(thread)).unwrap();
        let mut walk = empty();
        by_rows_only(thread, &rows(), (sp, fp), &mut walk);
        thread.stack_high.set(0);
        walk
    }

    fn frames(walk: &Walk) -> &[u64] {
        &walk.frames[..walk.len]
    }

    #[test]
    fn rows_by_the_stack_pointer_lead_from_frame_to_frame_up_to_a_zero() {
        let walk = walked(&MadeStack::new(&[SP3, 7, 7, LEAF, SP3, 7, 7, 0]), 0);
        assert_eq!(frames(&walk), [SP3, LEAF, SP3]);
        assert_eq!(walk.end, StackEnd::Whole);
    }

    #[test]
    fn a_frame_pointer_leads_over_frames_of_any_size() {
        let stack = MadeStack::new(&[FRAMES[0], 7, 7, 0, FRAMES[1], 7, 0, 0]);
        stack.set(3, stack.at(6) as u64);
        let walk = walked(&stack, stack.at(3));
        assert_eq!(frames(&walk), FRAMES);
        assert_eq!(walk.end, StackEnd::Whole);
    }

    #[test]
    fn a_frame_pointer_that_a_frame_has_saved_is_that_of_its_caller() {
        let stack = MadeStack::new(&[SAVES, 0, 7, FRAMES[0], 7, 0, 0]);
        stack.set(1, stack.at(5) as u64);
        let walk = walked(&stack, 12345);
        assert_eq!(frames(&walk), [SAVES, FRAMES[0]]);
        assert_eq!(walk.end, StackEnd::Whole);
    }

    #[test]
    fn a_frame_pointer_is_ignored_where_a_row_does_not_use_it() {
        let stack = MadeStack::new(&[LEAF, SP3, 7, 7, 0]);
        assert_eq!(frames(&walked(&stack, 1)), frames(&walked(&stack, usize::MAX)));
    }

    #[test]
    fn a_frame_that_ends_above_the_stack_is_the_last_one() {
        let walk = walked(&MadeStack::new(&[LEAF, SP3, 7]), 0);
        assert_eq!((frames(&walk), walk.end), (&[LEAF, SP3][..], StackEnd::OutsideStack));
    }

    #[test]
    fn a_frame_pointer_outside_of_the_stack_or_below_its_frame_ends_the_walk() {
        let stack = MadeStack::new(&[LEAF, FRAMES[0], 7, 7, 7, 7]);
        let inside = stack.at(2);
        for fp in [8, usize::MAX - 7, stack.at(6), stack.at(5), inside + 4] {
            let walk = walked(&stack, fp);
            assert_eq!((frames(&walk), walk.end), (&[LEAF, FRAMES[0]][..], StackEnd::OutsideStack));
        }
        stack.set(2, 0);
        stack.set(3, 0);
        assert_eq!(walked(&stack, inside).end, StackEnd::Whole);
    }

    #[test]
    fn a_frame_that_would_end_between_words_ends_the_walk() {
        let stack = MadeStack::new(&[FP_FAR, 7, 7, 7, LEAF, 0, 7, 7]);
        let walk = walked(&stack, stack.at(1) + 4);
        assert_eq!((frames(&walk), walk.end), (&[FP_FAR][..], StackEnd::OutsideStack));
        assert_eq!(frames(&walked(&stack, stack.at(1))), [FP_FAR, LEAF]);
    }

    #[test]
    fn the_row_of_an_outermost_function_ends_a_whole_stack() {
        let walk = walked(&MadeStack::new(&[SP3, 7, 7, ENDS, SP3, 7]), 0);
        assert_eq!((frames(&walk), walk.end), (&[SP3, ENDS][..], StackEnd::Whole));
    }

    #[test]
    fn code_without_a_row_ends_the_stack_and_says_so() {
        let walk = walked(&MadeStack::new(&[SP3, 7, 7, NONE, SP3, 7]), 0);
        assert_eq!((frames(&walk), walk.end), (&[SP3, NONE][..], StackEnd::NoUnwindInfo));
    }

    #[test]
    fn a_signal_frame_leads_to_the_interrupted_instruction_itself() {
        let mut words = vec![7; 40];
        words[0] = SIGNAL;
        words[1 + ucontext::PC / 8] = INTERRUPTED;
        words[36..].copy_from_slice(&[7, LEAF, 0, 7]);
        let stack = MadeStack::new(&words);
        stack.set(1 + ucontext::SP / 8, stack.at(36) as u64);
        let walk = walked(&stack, 0);
        assert_eq!(frames(&walk), [SIGNAL, INTERRUPTED, LEAF]);
        assert_eq!((walk.end, walk.interrupted), (StackEnd::Whole, true));
    }

    #[test]
    fn an_interrupted_stack_pointer_nowhere_ends_the_walk() {
        let mut words = vec![7; 40];
        words[0] = SIGNAL;
        words[1 + ucontext::PC / 8] = INTERRUPTED;
        words[1 + ucontext::SP / 8] = 8;
        let walk = walked(&MadeStack::new(&words), 0);
        assert_eq!(frames(&walk), [SIGNAL, INTERRUPTED]);
        assert_eq!(walk.end, StackEnd::OutsideStack);
    }

    #[test]
    fn a_signal_frame_that_is_cut_off_ends_the_walk() {
        let walk = walked(&MadeStack::new(&[SIGNAL, 7, 7]), 0);
        assert_eq!((frames(&walk), walk.end), (&[SIGNAL][..], StackEnd::OutsideStack));
    }

    #[test]
    fn a_stack_is_cut_after_the_greatest_number_of_frames() {
        let walk = walked(&MadeStack::new(&[LEAF; 300]), 0);
        assert_eq!((walk.len, walk.end), (MAX_FRAMES, StackEnd::TooDeep));
        let mut words = [LEAF; MAX_FRAMES + 1];
        words[MAX_FRAMES] = 0;
        let walk = walked(&MadeStack::new(&words), 0);
        assert_eq!((walk.len, walk.end), (MAX_FRAMES, StackEnd::Whole));
    }

    #[test]
    fn a_hash_is_that_of_the_frames_alone() {
        let one = walked(&MadeStack::new(&[LEAF, SP3, 1, 2, 0]), 0);
        let same = walked(&MadeStack::new(&[LEAF, SP3, 3, 4, 0, 5, 6]), 9);
        assert_eq!(one.hash, same.hash);
        for other in [&[SP3, 7, 7, LEAF, 0][..], &[LEAF, LEAF, SP3, 1, 2, 0], &[SP3, 1, 2, 0]] {
            assert_ne!(walked(&MadeStack::new(other), 0).hash, one.hash);
        }
    }

    /// A thread that remembers its walks of a made-up stack, which is the process's first.
    fn remembering(stack: &MadeStack, test: impl FnOnce(&Thread, usize)) {
        let process = Attached::new();
        let thread = process.thread();
        let _ = rows();
        let sp = stack.of(thread);
        let top = state::STACK_TOP.swap(thread.stack_high.get(), Relaxed);
        thread.stacks.set(1000);
        last_walk::map(thread);
        test(thread, sp);
        last_walk::forget(thread);
        thread.stack_high.set(0);
        state::STACK_TOP.store(top, Relaxed);
    }

    /// Walks from `sp`, as a hook does. Returns the number of reused frames, and the whole walk.
    fn again(thread: &Thread, sp: usize, fp: usize) -> (usize, Walk) {
        let mut walk = empty();
        let from = super::walk(thread, (sp, fp), false, &mut walk).unwrap();
        let rest = walk.rest;
        complete(thread, (from, fp), &mut walk);
        (rest, walk)
    }

    #[test]
    fn a_stack_that_has_not_changed_is_not_walked_again() {
        let stack = MadeStack::new(&[LEAF, SP3, 7, 7, LEAF, SP3, 7, 7, 0]);
        remembering(&stack, |thread, sp| {
            let (rest, first) = again(thread, sp, 0);
            assert_eq!(rest, 0);
            let (rest, second) = again(thread, sp, 0);
            assert_eq!(rest, 4);
            assert_eq!(frames(&second), [LEAF, SP3, LEAF, SP3]);
            assert_eq!((second.hash, frames(&second)), (first.hash, frames(&first)));
        });
    }

    #[test]
    fn only_the_frames_inside_of_a_change_are_walked() {
        let stack = MadeStack::new(&[LEAF, LEAF, SP3, 7, 7, LEAF, SP3, 7, 7, 0]);
        remembering(&stack, |thread, sp| {
            again(thread, sp, 0);
            stack.set(1, SP3);
            stack.set(4, LEAF);
            let (rest, walk) = again(thread, sp, 0);
            assert_eq!(frames(&walk), [LEAF, SP3, LEAF, LEAF, SP3]);
            assert_eq!(rest, 2);
            assert_eq!(walk.hash, again(thread, sp, 0).1.hash);
        });
    }

    #[test]
    fn a_change_of_the_outermost_frame_is_noticed() {
        let stack = MadeStack::new(&[LEAF, LEAF, SP3, 7, 7, LEAF, 0]);
        remembering(&stack, |thread, sp| {
            let (_, before) = again(thread, sp, 0);
            stack.set(5, ENDS);
            let (rest, walk) = again(thread, sp, 0);
            assert_eq!((rest, frames(&walk)), (0, &[LEAF, LEAF, SP3, ENDS][..]));
            assert_ne!(walk.hash, before.hash);
        });
    }

    #[test]
    fn a_stack_that_goes_on_where_it_ended_is_walked_to_its_new_end() {
        let stack = MadeStack::new(&[LEAF, LEAF, 0, 0]);
        remembering(&stack, |thread, sp| {
            again(thread, sp, 0);
            stack.set(2, LEAF);
            assert_eq!(frames(&again(thread, sp, 0).1), [LEAF, LEAF, LEAF]);
        });
    }

    #[test]
    fn a_frame_pointer_that_changed_in_its_place_is_followed() {
        let stack = MadeStack::new(&[LEAF, FRAMES[0], 0, FRAMES[1], 0, 0, 0, LEAF, 0]);
        stack.set(2, stack.at(4) as u64);
        remembering(&stack, |thread, sp| {
            let fp = stack.at(2);
            assert_eq!(frames(&again(thread, sp, fp).1), [LEAF, FRAMES[0], FRAMES[1]]);
            stack.set(2, stack.at(6) as u64);
            stack.set(6, 0);
            let walk = again(thread, sp, fp).1;
            assert_eq!(frames(&walk), [LEAF, FRAMES[0], FRAMES[1], LEAF]);
        });
    }

    #[test]
    fn a_deeper_stack_reuses_the_frames_of_the_one_before() {
        let stack = MadeStack::new(&[LEAF, SP3, 7, 7, LEAF, LEAF, LEAF, 0]);
        remembering(&stack, |thread, sp| {
            again(thread, stack.at(4), 0);
            let (rest, walk) = again(thread, sp, 0);
            assert_eq!((rest, walk.len), (3, 5));
            assert_eq!(frames(&walk), [LEAF, SP3, LEAF, LEAF, LEAF]);
        });
    }

    #[test]
    fn frames_that_a_handlers_walk_has_replaced_are_walked_anew() {
        let stack = MadeStack::new(&[LEAF, SP3, 7, 7, LEAF, SP3, 7, 7, 0]);
        remembering(&stack, |thread, sp| {
            again(thread, sp, 0);
            let mut walk = empty();
            let from = super::walk(thread, (sp, 0), false, &mut walk).unwrap();
            assert_eq!(walk.rest, 4);
            stack.set(8, LEAF);
            again(thread, stack.at(4), 0);
            stack.set(8, 0);
            complete(thread, (from, 0), &mut walk);
            assert_eq!(frames(&walk), [LEAF, SP3, LEAF, SP3]);
        });
    }

    #[test]
    fn a_thread_whose_stacks_have_little_in_common_stops_remembering_for_a_while() {
        let stack = MadeStack::new(&[LEAF; 200]);
        stack.set(199, 0);
        remembering(&stack, |thread, sp| {
            for round in 0..8 {
                stack.set(198, if round % 2 == 0 { LEAF } else { ENDS });
                again(thread, sp, 0);
            }
            let last = last_walk::LastWalk::of(thread).unwrap();
            assert!(last.pause.get() > 0);
            assert_eq!(again(thread, sp, 0).0, 0);
        });
    }

    #[test]
    fn a_walk_from_an_address_that_is_not_readable_has_no_frames() {
        let process = Attached::new();
        let thread = process.thread();
        let _ = rows();
        let mut walk = empty();
        for sp in [0, 8, usize::MAX - 7] {
            assert!(super::walk(thread, (sp, 0), false, &mut walk).is_none());
            assert_eq!((walk.len, walk.end), (0, StackEnd::OutsideStack));
        }
    }
}
