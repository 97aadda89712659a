//! Compares a walk that is in progress with the thread's last one, to stop at the frames that have
//! not changed.

use super::frames::HashSoFar;
use super::last_walk::{self, LastWalk, MARK, top};
use super::stack_bounds::{ReadableSp, own_top};
use crate::arch;
use crate::block::Thread;
use crate::signal_cell::SignalCell;
use tprof_wire::sync::{Ordering::SeqCst, compiler_fence};

/// Sees each frame of a walk, and may end the walk early.
pub trait FrameObserver {
    /// Returns the number of remaining frames, this one included, once they are known to be the
    /// same as in the last walk.
    fn rest(&mut self, sp: usize, fp: usize) -> Option<usize>;
    /// Called for the frame with this index, with its state. `by_fp` says whether the CFA was
    /// computed from `fp`. `saved` is the address from which the caller's frame pointer was read,
    /// or 0 if it was not read.
    fn step(&mut self, index: usize, sp: usize, fp: usize, by_fp: bool, saved: usize);
}

/// The observer for threads whose walks are not stored.
pub struct NoReuse;

impl FrameObserver for NoReuse {
    #[inline(always)]
    fn rest(&mut self, _: usize, _: usize) -> Option<usize> {
        None
    }
    #[inline(always)]
    fn step(&mut self, _: usize, _: usize, _: usize, _: bool, _: usize) {}
}

/// The observer that compares the walk with the last one, and stores its states for the next.
pub struct WalkReuse<'t> {
    pub last: &'t LastWalk,
    /// This walk's number.
    pub number: usize,
    /// The same as [`LastWalk::top`].
    pub top: usize,
    /// The same as [`LastWalk::code`].
    pub code: u64,
    /// The innermost state that is unchanged and that the walk has not passed yet. `next_sp` is its
    /// stack pointer, or `usize::MAX` if there is no such state.
    at: usize,
    next_sp: usize,
}

impl FrameObserver for WalkReuse<'_> {
    #[inline(always)]
    fn rest(&mut self, sp: usize, fp: usize) -> Option<usize> {
        if sp < self.next_sp { None } else { self.meet(sp, fp) }
    }

    #[inline(always)]
    fn step(&mut self, index: usize, sp: usize, fp: usize, by_fp: bool, saved: usize) {
        // SAFETY: a walk has at most `MAX_FRAMES` frames, and there are as many steps.
        let step = unsafe { self.last.steps.get_unchecked(index) };
        step.fp.set(fp);
        let saved = if saved == 0 { 0 } else { (self.top.wrapping_sub(saved) as u64) << 32 };
        step.places.set(self.top.wrapping_sub(sp) as u64 & 0xffff_fff8 | u64::from(by_fp) | saved);
    }
}

impl<'t> WalkReuse<'t> {
    /// Begins a walk whose first return address is at `sp`. Returns `None` if this thread's walks
    /// are not stored now. A walk that is learnt from is stored even during a pause.
    #[inline(always)]
    pub fn begin(
        thread: &'t Thread,
        sp: ReadableSp,
        code: u64,
        is_learnt_from: bool,
    ) -> Option<WalkReuse<'t>> {
        let Some(last) = LastWalk::of(thread) else {
            last_walk::map(thread);
            return None;
        };
        let pause = last.pause.get();
        if pause > 0 {
            last.pause.set(pause - 1);
            if !is_learnt_from {
                return None;
            }
        }
        let top = top(thread);
        // On another stack, memory that an earlier walk read may have been unmapped.
        if own_top(thread) == 0 || top.wrapping_sub(sp.address()) > u32::MAX as usize {
            return None;
        }
        // The order matters, since a signal handler may walk between any two of these statements.
        let before = arch::advance(last.number.memory(), 1);
        compiler_fence(SeqCst);
        let valid = last.valid.get();
        let number = before + 1;
        let mut this = WalkReuse { last, number, top, code, at: 0, next_sp: usize::MAX };
        if pause == 0 && valid >> 16 == before && last.top.get() == top && last.code.get() == code {
            let held = this.held(valid & 0xffff, sp);
            this.pass_to(held);
        }
        Some(this)
    }

    /// Number of unchanged states, counted from the outermost one. Of the first `len` states, it
    /// excludes those below `lowest`, and those inside of any word that has changed.
    #[inline(always)]
    fn held(&self, mut len: usize, lowest: ReadableSp) -> usize {
        let last = self.last;
        let depth = (self.top - lowest.address()) as u32;
        while let Some(sp) = len.checked_sub(1).and_then(|at| last.sp.get(at))
            && (sp.get() & !MARK) + 8 > depth
        {
            len -= 1;
        }
        let held = self.same_addresses(len);
        for (word, links) in last.links.iter().enumerate() {
            let mut links = links.get();
            while links != 0 {
                let state = word * 64 + links.trailing_zeros() as usize;
                if state >= held {
                    break;
                }
                links &= links - 1;
                let (Some(at), Some(fp)) = (last.fp_at.get(state), last.fp.get(state)) else {
                    return 0;
                };
                // SAFETY: the place is aligned and not below the first return address. All memory
                // from there to the top of the thread's own stack is readable.
                let is_same = at.get() <= depth
                    && unsafe { *((self.top - at.get() as usize) as *const usize) } == fp.get();
                if !is_same {
                    return state;
                }
            }
        }
        held
    }

    /// Number of states, counted from the outermost of the first `len`, whose return addresses are
    /// unchanged.
    #[inline(always)]
    fn same_addresses(&self, len: usize) -> usize {
        let last = self.last;
        let (sps, ras) = (last.sp.get(..len).unwrap_or(&[]), last.ra.get(..len).unwrap_or(&[]));
        let change = |sp: &SignalCell<u32>, ra: &SignalCell<u64>| {
            let at = self.top - (sp.get() & !MARK) as usize - 8;
            // SAFETY: the place is aligned and not below the first return address. All memory from
            // there to the top of the thread's own stack is readable.
            unsafe { *(at as *const u64) ^ ra.get() }
        };
        let mut held = 0;
        for (sps, ras) in sps.as_chunks::<4>().0.iter().zip(ras.as_chunks::<4>().0) {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| change(&sps[i], &ras[i]));
            if a | b | c | d != 0 {
                break;
            }
            held += 4;
        }
        for (sp, ra) in sps.iter().zip(ras).skip(held) {
            if change(sp, ra) != 0 {
                break;
            }
            held += 1;
        }
        held
    }

    /// Makes the innermost of the outermost `count` states the next one that the walk may reach.
    #[inline(always)]
    fn pass_to(&mut self, count: usize) {
        self.at = count.saturating_sub(1);
        self.next_sp = match self.last.sp.get(self.at) {
            Some(sp) if self.at > 0 => self.top - (sp.get() & !MARK) as usize,
            _ => usize::MAX,
        };
    }

    #[inline(always)]
    fn meet(&mut self, sp: usize, fp: usize) -> Option<usize> {
        while sp >= self.next_sp {
            let (is_marked, known) = self.state(self.at)?;
            if sp == self.next_sp && (!is_marked || known == fp) {
                return Some(self.at);
            }
            self.pass_to(self.at);
        }
        None
    }

    /// Returns whether the outer frames depend on a state's frame pointer, and that frame pointer.
    #[inline(always)]
    pub fn state(&self, at: usize) -> Option<(bool, usize)> {
        Some((self.last.sp.get(at)?.get() & MARK != 0, self.last.fp.get(at)?.get()))
    }

    /// The hash of a walk whose outermost `rest` frames are those of the last walk. `so_far` is the
    /// hash of the others.
    #[inline(always)]
    pub fn hash(&self, rest: usize, so_far: &HashSoFar) -> u64 {
        so_far.within(self.last.hash.get(rest).map_or(0, SignalCell::get))
    }
}
