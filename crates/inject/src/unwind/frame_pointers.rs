//! Walks a stack by frame pointers only (`--stacks fp`).

use super::ask::{Answer, ask_for_mappings, forget_patience};
use super::frames::{HashSoFar, Walk, outermost};
use super::stack_bounds::{ReadableSp, within};
use super::tables::{RowSearch, search};
use super::{loaded_rows, rows};
use crate::block::Thread;
use crate::state;
use tprof_wire::record::StackEnd;
use tprof_wire::region::stack_mode;
use tprof_wire::sync::Ordering::Relaxed;

/// Walks by frame pointers within the stack, without using rows to check them.
#[cold]
pub fn walk_frame_pointers(thread: &Thread, sp: ReadableSp, fp: usize, out: &mut Walk) {
    out.len = 0;
    out.interrupted = false;
    let code = rows::code();
    out.end = follow(thread, sp, fp, out);
    let mut hash = HashSoFar::NONE;
    for frame in out.frames.iter().take(out.len) {
        hash.add(*frame);
    }
    out.hash = hash.within(outermost(code));
}

/// Makes the collector read the mappings of the code in a stack that is being defined, while that
/// code is loaded. Names need this, and a walk by frame pointers has not asked for rows. Addresses
/// that are not code are left out, since a function may use the frame pointer's register for
/// anything.
pub fn know_code(thread: &Thread, walk: &Walk) {
    if state::STACK_MODE.load(Relaxed) != stack_mode::FP {
        return;
    }
    let quiet = thread.is_quiet();
    for pc in walk.frames.iter().take(walk.len).map(|frame| frame.wrapping_sub(1)) {
        let is_unknown = || matches!(search(pc, quiet, false), RowSearch::Unknown);
        let is_code = || !loaded_rows::can_find() || loaded_rows::find(pc).is_some();
        if is_unknown()
            && is_code()
            && ask_for_mappings(thread, true) == Answer::Came
            && !is_unknown()
        {
            forget_patience();
        }
    }
}

/// Follows frame pointers and stores the frames. Returns how the walk ends.
fn follow(thread: &Thread, sp: ReadableSp, fp: usize, out: &mut Walk) -> StackEnd {
    let mut ra = sp.word();
    let mut fp = fp;
    let mut low = sp.address();
    loop {
        let Some(place) = out.frames.get_mut(out.len) else { return StackEnd::TooDeep };
        *place = ra;
        out.len += 1;
        if fp == 0 {
            return StackEnd::Whole;
        }
        if fp <= low || fp & 7 != 0 || !within(thread, fp, fp.wrapping_add(16)) {
            return StackEnd::OutsideStack;
        }
        low = fp;
        // SAFETY: `fp` is aligned, and both words are within the readable stack.
        unsafe {
            ra = *((fp + 8) as *const u64);
            fp = *(fp as *const usize);
        }
        if ra == 0 {
            return StackEnd::Whole;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::stack_bounds::readable;
    use crate::testing::{Attached, MadeStack};
    use tprof_wire::record::MAX_FRAMES;

    fn followed(stack: &MadeStack, fp: usize) -> (Vec<u64>, StackEnd) {
        let process = Attached::new();
        let thread = process.thread();
        let sp = readable(thread, stack.of(thread)).unwrap();
        let mut walk = Walk {
            frames: [0; MAX_FRAMES],
            len: 9,
            rest: 0,
            number: 0,
            hash: 0,
            end: StackEnd::NotReady,
            interrupted: true,
        };
        walk_frame_pointers(thread, sp, fp, &mut walk);
        thread.stack_high.set(0);
        assert!(!walk.interrupted);
        (walk.frames[..walk.len].to_vec(), walk.end)
    }

    #[test]
    fn each_frame_pointer_leads_to_the_next_up_to_zero() {
        let stack = MadeStack::new(&[100, 7, 0, 200, 7, 0, 300]);
        stack.set(2, stack.at(5) as u64);
        assert_eq!(followed(&stack, stack.at(2)), (vec![100, 200, 300], StackEnd::Whole));
    }

    #[test]
    fn a_return_address_of_zero_is_the_end() {
        let stack = MadeStack::new(&[100, 0, 0, 0]);
        stack.set(1, stack.at(1) as u64);
        assert_eq!(followed(&stack, stack.at(1)), (vec![100], StackEnd::Whole));
    }

    #[test]
    fn a_register_of_zero_means_a_stack_of_one_frame() {
        assert_eq!(followed(&MadeStack::new(&[100, 7]), 0), (vec![100], StackEnd::Whole));
    }

    #[test]
    fn a_frame_pointer_that_does_not_lead_outwards_ends_the_walk() {
        let stack = MadeStack::new(&[100, 7, 0, 200, 7, 7]);
        for back in [stack.at(2), stack.at(1), stack.at(0)] {
            stack.set(2, back as u64);
            assert_eq!(followed(&stack, stack.at(2)), (vec![100, 200], StackEnd::OutsideStack));
        }
    }

    #[test]
    fn a_frame_pointer_that_is_no_address_of_the_stack_ends_the_walk() {
        let stack = MadeStack::new(&[100, 7, 0, 200]);
        for fp in [stack.at(0), stack.at(2) + 1, stack.at(3), stack.at(4), 16, usize::MAX - 7] {
            assert_eq!(followed(&stack, fp), (vec![100], StackEnd::OutsideStack), "{fp:x}");
        }
    }

    #[test]
    fn a_chain_of_more_frames_than_there_is_room_for_is_cut() {
        let stack = MadeStack::new(&[100; 500]);
        for at in (1..499).step_by(2) {
            stack.set(at, stack.at(at + 2) as u64);
        }
        let (frames, end) = followed(&stack, stack.at(1));
        assert_eq!((frames.len(), end), (MAX_FRAMES, StackEnd::TooDeep));
    }
}
