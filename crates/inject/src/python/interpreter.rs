//! Holds what the collector found out about the Python interpreter of this process.

use crate::{loaded, state, unloading};
use tprof_wire::python::{INTERPRETER_WORDS, Interpreter};
use tprof_wire::region::RegionHeader;
use tprof_wire::sync::{AtomicU32, AtomicU64, Ordering::*};

/// The interpreter, as the collector published it. It is copied from the region, so that a forked
/// child still has it although its region is new.
static WORDS: [AtomicU64; INTERPRETER_WORDS] = [const { AtomicU64::new(0) }; INTERPRETER_WORDS];
/// Epoch of the copy, see [`UNLOADS`]; 0 if there is no copy.
static COPIED: AtomicU32 = AtomicU32::new(0);
/// Set while a thread makes the copy.
static COPYING: AtomicU32 = AtomicU32::new(0);
/// Number of interpreters that were unloaded so far. An interpreter's epoch is one more than this
/// number was when the collector found it. An interpreter of an earlier epoch is not used.
static UNLOADS: AtomicU32 = AtomicU32::new(0);

/// Called when this process has got a new region.
pub fn attached(header: &RegionHeader) {
    header.python_unloads.store(UNLOADS.load(SeqCst), Release);
    // In a forked child, the thread that was copying no longer exists.
    COPYING.store(0, Release);
}

/// Called when a library was unloaded, or could not be unloaded. If the library was the
/// interpreter, its copy is no longer used. The collector publishes the next interpreter when one
/// is loaded.
pub fn unloaded() {
    let unloads = UNLOADS.load(SeqCst);
    if COPIED.load(SeqCst) == unloads.wrapping_add(1) && !loaded::is_loaded(word(0) as usize) {
        UNLOADS.store(unloads.wrapping_add(1), SeqCst);
        if let Some(header) = state::header() {
            header.python_unloads.store(unloads.wrapping_add(1), Release);
        }
    }
}

fn word(at: usize) -> u64 {
    WORDS.get(at).map_or(0, |word| word.load(Relaxed))
}

/// The interpreter; `None` if none is known, or if it may be unloaded now.
#[inline(always)]
pub fn interpreter() -> Option<Interpreter> {
    // The library that is being unloaded may be the interpreter.
    if unloading::any() {
        return None;
    }
    let epoch = UNLOADS.load(SeqCst).wrapping_add(1);
    if COPIED.load(Acquire) != epoch && !copy(epoch) {
        return None;
    }
    let mut words = [0; INTERPRETER_WORDS];
    for (to, from) in words.iter_mut().zip(&WORDS) {
        *to = from.load(Relaxed);
    }
    Some(Interpreter::of_words(&words))
}

/// Copies the interpreter that the collector published, if it has this epoch. Returns whether it
/// was copied.
#[cold]
#[inline(never)]
fn copy(epoch: u32) -> bool {
    let Some(header) = state::header() else { return false };
    if header.python_epoch.load(Acquire) != epoch || COPYING.swap(1, Acquire) != 0 {
        return false;
    }
    for (to, from) in WORDS.iter().zip(&header.python) {
        to.store(from.load(Relaxed), Relaxed);
    }
    COPIED.store(epoch, Release);
    COPYING.store(0, Release);
    true
}
