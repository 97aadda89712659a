//! Checks the shortcuts of unwinding, if [`tprof_wire::env::TEST_STACKS`] requests it: compares
//! stacks that were guessed, or that reuse an earlier walk, with complete walks.

use super::frames::Walk;
use crate::block::Thread;
use crate::{state, sys};
use core::mem::MaybeUninit;
use tprof_wire::sync::{AtomicBool, Ordering::Relaxed};

/// Compares a walk with a complete walk of the same stack, which `again` makes.
#[cold]
#[inline(never)]
pub fn compare(thread: &Thread, walk: &mut Walk, again: impl Fn(&mut Walk)) {
    static CHECKED: AtomicBool = AtomicBool::new(false);
    static DIFFERS: AtomicBool = AtomicBool::new(false);
    let mut whole = MaybeUninit::<Walk>::uninit();
    // SAFETY: `again` writes all fields, which are integers and an enum, before anything reads
    // them; only the first `len` frames are read.
    let whole = unsafe { &mut *whole.as_mut_ptr() };
    again(whole);
    let is_same = walk.len == whole.len
        && walk.hash == whole.hash
        && walk.end == whole.end
        && walk.frames.iter().zip(&whole.frames).take(walk.len).all(|(one, other)| one == other);
    note(thread, &CHECKED, b"checked\n");
    if !is_same {
        note(thread, &DIFFERS, b"differs\n");
    }
}

/// Compares the id of a guessed stack with the id of the walked stack. An id is 0 if the ring had
/// no room for the stack's definition.
#[cold]
#[inline(never)]
pub fn compare_ids(thread: &Thread, guessed: u32, walked: u32) {
    static GUESSED: AtomicBool = AtomicBool::new(false);
    static DIFFERS: AtomicBool = AtomicBool::new(false);
    note(thread, &GUESSED, b"guessed\n");
    if guessed != walked && walked != 0 {
        note(thread, &DIFFERS, b"guess differs\n");
    }
}

fn note(thread: &Thread, done: &AtomicBool, line: &[u8]) {
    let path = state::CHECK_STACKS.load(Relaxed);
    if !done.swap(true, Relaxed) && !path.is_null() && !thread.is_quiet() {
        sys::append(path, &[line]);
    }
}
