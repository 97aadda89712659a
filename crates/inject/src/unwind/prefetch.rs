//! Asks for tables before the first stack that needs them.

use super::ask::{ask, forget_patience};
use super::loaded_rows;
use super::stack_bounds::readable;
use super::tables::{RowSearch, search};
use crate::block::Thread;

/// Bytes of the stack that are searched for return addresses.
const MOST_BYTES: usize = 1 << 16;

/// Asks for the tables of the code that this thread is in, by the words on its stack, and waits for
/// them: what recorded stacks would wait for otherwise.
#[cold]
#[inline(never)]
pub fn prefetch_tables(thread: &Thread) {
    let here = 0usize;
    let low = (&raw const here).addr();
    if thread.is_quiet() || !ask(thread) || loaded_rows::can_find() {
        return;
    }
    let words = (low..low.saturating_add(MOST_BYTES)).step_by(size_of::<u64>());
    let mut is_asked = false;
    for at in words.take_while(|at| readable(thread, *at)) {
        // SAFETY: aligned, above this frame, and readable.
        let word = unsafe { core::ptr::with_exposed_provenance::<u64>(at).read_volatile() };
        is_asked |= matches!(search(word, false, true), RowSearch::Asked(_));
    }
    if is_asked {
        forget_patience();
        ask(thread);
    }
}
