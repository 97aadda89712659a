//! Saves a thread's walk for its next one.

use super::frames::{ByRows, Walk, grown, outermost};
use super::last_walk::{MARK, MAX_KEPT, PATIENCE, PAUSE, Step, top};
use super::walk_reuse::WalkReuse;
use crate::block::Thread;
use crate::signal_cell::SignalCell;
use tprof_wire::record::StackEnd;
use tprof_wire::sync::{Ordering::SeqCst, compiler_fence};

impl WalkReuse<'_> {
    /// Saves a walk. Returns false if another walk has begun in the meantime. Then the frames that
    /// this walk reused may be mixed with those of the other one.
    #[inline(always)]
    pub fn remember(&self, thread: &Thread, walk: &Walk, found: &ByRows) -> bool {
        let (last, new) = (self.last, walk.len);
        let is_whole = walk.end == StackEnd::Whole && !walk.interrupted;
        if is_whole && top(thread) == self.top {
            self.push(walk, new, found);
            compiler_fence(SeqCst);
            let kept = (new + found.rest + 1).min(MAX_KEPT);
            last.valid.set(self.number << 16 | kept);
        }
        self.judge(new as u32, found.rest as u32);
        compiler_fence(SeqCst);
        last.number.get() == self.number
    }

    /// Starts a pause if storing walks doesn't help, because most frames had to be walked.
    #[inline(always)]
    fn judge(&self, new: u32, rest: u32) {
        if self.last.pause.get() > 0 {
            return;
        }
        let left = (self.last.patience.get() + rest).saturating_sub(new).min(PATIENCE);
        self.last.patience.set(left);
        if left == 0 {
            self.last.patience.set(PATIENCE / 2);
            self.last.pause.set(PAUSE);
        }
    }

    /// Replaces those stored states that this walk did not reuse by the states of the frames that
    /// it walked.
    #[inline(always)]
    fn push(&self, walk: &Walk, new: usize, found: &ByRows) {
        let (last, rest) = (self.last, found.rest);
        last.top.set(self.top);
        last.code.set(self.code);
        let steps = last.steps.get(..new).unwrap_or(&[]);
        let saved =
            |inner: Option<usize>| inner.and_then(|inner| steps.get(inner)).map_or(0, Step::saved);
        let mut depends = false;
        if rest == 0 {
            self.set_end(walk, new, found.zero);
        } else {
            depends = self.state(rest).is_some_and(|(is_marked, _)| is_marked);
            self.set_fp(rest, found.fp, if depends { saved(new.checked_sub(1)) } else { 0 });
        }
        let mut hash = last.hash.get(rest).map_or(0, SignalCell::get);
        for (inner, at) in (0..new).rev().zip(rest + 1..MAX_KEPT) {
            let (Some(step), Some(ra)) = (steps.get(inner), walk.frames.get(inner)) else { return };
            let (Some(to_sp), Some(to_ra), Some(to_hash)) =
                (last.sp.get(at), last.ra.get(at), last.hash.get(at))
            else {
                return;
            };
            depends = step.sp() & MARK != 0 || step.saved() == 0 && depends;
            hash = grown(hash, *ra);
            to_sp.set(step.sp() & !MARK | u32::from(depends));
            to_ra.set(*ra);
            to_hash.set(hash);
            self.set_fp(at, step.fp.get(), if depends { saved(inner.checked_sub(1)) } else { 0 });
        }
    }

    /// Stores a state's frame pointer, and the place from which it was read. The place is 0 if the
    /// frame pointer was not read from the stack, or if no outer frame depends on it.
    #[inline(always)]
    fn set_fp(&self, state: usize, fp: usize, read_at: u32) {
        let last = self.last;
        let (Some(to_fp), Some(to_at), Some(links)) =
            (last.fp.get(state), last.fp_at.get(state), last.links.get(state / 64))
        else {
            return;
        };
        to_fp.set(fp);
        to_at.set(read_at);
        let bit = 1 << (state % 64);
        links.set(if read_at == 0 { links.get() & !bit } else { links.get() | bit });
    }

    /// Stores the state of the stack's end. If a return address of zero ended the walk, that is the
    /// word below `zero`. If the row of the outermost frame ended it, it is that frame's return
    /// address. The next walk compares this word.
    fn set_end(&self, walk: &Walk, frames: usize, zero: usize) {
        let last = self.last;
        let frame = frames.saturating_sub(1);
        let (ra, sp) = match (walk.frames.get(frame), last.steps.get(frame)) {
            (Some(ra), Some(step)) if zero == 0 => (*ra, step.sp() & !MARK),
            _ => (0, self.top.wrapping_sub(zero) as u32),
        };
        let (Some(to_sp), Some(to_ra), Some(to_hash)) =
            (last.sp.first(), last.ra.first(), last.hash.first())
        else {
            return;
        };
        to_sp.set(sp);
        to_ra.set(ra);
        to_hash.set(outermost(self.code));
        self.set_fp(0, 0, 0);
    }
}
