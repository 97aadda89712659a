//! Counts records that found no room.

use crate::block::Thread;
use crate::{arch, state};
use core::sync::atomic::Ordering::Relaxed;
use tprof_wire::record::ExtKind;

/// Counts an event that was dropped.
#[cold]
pub fn lose(thread: &Thread) {
    arch::add_local(&thread.slot().lost, 1);
}

/// Counts an extended record that was dropped, among the events or the notes. Stacks, names
/// of Python's functions and of kernels, and texts are counted by the thread that defines them again later.
#[cold]
pub fn lose_ext(thread: &Thread, kind: ExtKind) {
    use ExtKind::*;
    match kind {
        Stack | PythonFrame | KernelName | Name | Sizes => {}
        ThreadStart | ThreadExit | ThreadName | ProcessExit | Fork | Exec | ExecFailed | Reaped
        | Spawned | Text | ClockJoin | RangeThread | OperatorNote => {
            if let Some(header) = state::header() {
                header.notes_lost.fetch_add(1, Relaxed);
            }
        }
        _ => lose(thread),
    }
}
