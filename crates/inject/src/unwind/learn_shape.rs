//! Learns the shape of the stack that a thread walked last.

use super::frames::Walk;
use super::last_walk::{LastWalk, MARK, MAX_KEPT};
use super::shape::Draft;
use super::shapes::Guess;
use crate::block::Thread;
use crate::signal_cell::SignalCell;
use tprof_wire::sync::{Ordering::SeqCst, compiler_fence};

impl Guess {
    /// Called when the guess was wrong, or there was none. Returns the hash by which this walk,
    /// which began at `sp`, will be found when such a stack is guessed. Returns `None` if such
    /// stacks can't be guessed.
    #[cold]
    #[inline(never)]
    pub fn learn_from(&self, thread: &Thread, sp: usize, walk: &Walk) -> Option<u64> {
        self.is_wrong(thread);
        let last = LastWalk::of(thread)?;
        let (number, len) = (last.valid.get() >> 16, last.valid.get() & 0xffff);
        // The stored states must be exactly the states of this walk.
        if number != walk.number || len != walk.len + 1 || len > MAX_KEPT || walk.number == 0 {
            return None;
        }
        let (draft, code) = (last.shape(sp, len)?, last.code.get());
        let inwards = last.ra.get(..len)?;
        let hash = self.learn(thread, &draft, inwards.iter().rev().map(SignalCell::get), code);
        compiler_fence(SeqCst);
        hash.filter(|_| last.number.get() == number)
    }
}

impl LastWalk {
    /// The shape of the last walk, which began at `sp` and has `len` states; `None` if it is too
    /// large to be stored as a shape.
    #[inline(always)]
    fn shape(&self, sp: usize, len: usize) -> Option<Draft> {
        let mut draft = Draft::new();
        let begin = self.top.get().wrapping_sub(sp);
        let above = |below: u32| begin.checked_sub((below & !MARK) as usize);
        let to = |fp: usize| fp.checked_sub(sp);
        for state in (0..len).rev() {
            let own = self.sp.get(state)?.get();
            draft.ra(above(own)?.checked_sub(8)?)?;
            let is_link = self.links.get(state / 64)?.get() >> (state % 64) & 1 != 0;
            let fp = self.fp.get(state)?.get();
            if is_link {
                draft.link(above(self.fp_at.get(state)?.get())?, to(fp)?)?;
            } else if own & MARK != 0 && state + 1 == len {
                draft.register(to(fp)?);
            }
        }
        Some(draft)
    }
}
