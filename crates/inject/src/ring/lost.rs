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

/// Counts an extended record that was dropped, as an event or as a note. Dropped definitions of
/// stacks, names of Python functions and of kernels, and texts are not counted here, since they are
/// repeated later.
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
