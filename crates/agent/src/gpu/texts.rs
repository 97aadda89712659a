//! Assigns ids to the agent's texts: names of kernels, calls and ranges.

use tprof_inject::block::Thread;
use tprof_inject::interned;
use tprof_wire::record::ExtKind;

/// The id of a text, as [`interned::id`] returns it.
pub fn id(thread: &Thread, text: &[u8]) -> u32 {
    interned::id(thread, ExtKind::Text, text)
}
