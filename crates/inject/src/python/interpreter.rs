//! The interpreter of this process, as the collector found it.

use crate::{loaded, state, unloading};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use tprof_wire::python::{INTERPRETER_WORDS, Interpreter};
use tprof_wire::region::RegionHeader;

/// The interpreter, as the collector published it: copied out of the region, so that a forked
/// child, which gets a region of its own, still has it.
static WORDS: [AtomicU64; INTERPRETER_WORDS] = [const { AtomicU64::new(0) }; INTERPRETER_WORDS];
/// The copy is of this epoch: see [`UNLOADS`]. 0: there is none.
static COPIED: AtomicU32 = AtomicU32::new(0);
/// A thread copies.
static COPYING: AtomicU32 = AtomicU32::new(0);
/// Interpreters that were unloaded. What the collector found before the last of them went
/// is of an earlier epoch (one more than this), and not used.
static UNLOADS: AtomicU32 = AtomicU32::new(0);

/// A new region.
pub fn attached(header: &RegionHeader) {
    header.python_unloads.store(UNLOADS.load(SeqCst), Release);
    // The thread that copied is gone in a forked child.
    COPYING.store(0, Release);
}

/// A library was unloaded, or not: an interpreter that is gone is forgotten. The collector publishes
/// the next one, wherever that lies.
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

/// The interpreter, if there is one.
#[inline(always)]
pub fn interpreter() -> Option<Interpreter> {
    // A library that is being unloaded may be the interpreter.
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

/// Copies what the collector published, if that is of this epoch.
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
