//! Asks the collector for unwind tables before the first recorded stack needs them.

use super::ask::{ask, forget_patience};
use super::loaded_rows;
use super::stack_bounds::{ReadableSp, readable};
use super::tables::{RowSearch, search};
use crate::block::Thread;

/// Maximum number of bytes of the stack in which return addresses are searched for.
const MOST_BYTES: usize = 1 << 16;

/// Asks the collector for the unwind tables of the functions on this thread's stack, and waits for
/// the answer. Otherwise the first recorded stacks would have to wait. Without tables the thread
/// can't unwind, so this looks up each word on the stack that may be a return address.
#[cold]
#[inline(never)]
pub fn prefetch_tables(thread: &Thread) {
    let here = 0usize;
    let low = (&raw const here).addr();
    // The first `ask` makes the collector publish the current modules, since `search` finds only
    // those. If rows can be found in the loaded objects themselves, no table is needed.
    if thread.is_quiet() || !ask(thread) || loaded_rows::can_find() {
        return;
    }
    let words = (low..low.saturating_add(MOST_BYTES)).step_by(size_of::<u64>());
    let mut is_asked = false;
    for word in words.map_while(|at| readable(thread, at)).map(ReadableSp::word) {
        is_asked |= matches!(search(word, false, true), RowSearch::Asked(_));
    }
    // `search` only marks the tables that are wanted. The second `ask` sends the question and waits
    // for the answer. Without `forget_patience` it would send nothing, since the first `ask` began
    // a pause.
    if is_asked {
        forget_patience();
        ask(thread);
    }
}
