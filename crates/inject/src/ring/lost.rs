//! Counts records that were dropped because the ring had no room.

use crate::block::Thread;
use crate::{arch, state};
use tprof_wire::record::ExtKind;
use tprof_wire::sync::Ordering::Relaxed;

/// Counts an event that was dropped.
#[cold]
pub fn lose(thread: &Thread) {
    arch::add_local(&thread.slot().lost, 1);
}

/// Counts an extended record that was dropped, either as an event or as a note. Some definitions
/// are not counted here, since they are written again later: those of stacks, Python functions,
/// kernels' names, and interned names and sizes.
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
