//! Handles of events: numbers that are unique in their process, with the kind of event in the low
//! bits.
//!
//! NCCL passes a parent's handle with each event. Where a proxy works for several processes, the
//! handle may be another process's, so no handle is ever followed as a pointer.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The kind of event that a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum HandleKind {
    /// A communicator's context.
    Context = 1,
    /// Operations that NCCL passes to the device together.
    Group = 2,
    /// An NCCL call.
    Call = 3,
    /// An enqueued operation.
    Task = 4,
    /// A slot: work on a channel, or a step of it.
    Slot = 5,
}

const KIND_BITS: u32 = 3;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Makes a new handle of this kind.
pub fn new(kind: HandleKind) -> u64 {
    NEXT.fetch_add(1, Relaxed) << KIND_BITS | kind as u64
}

/// The handle of this kind with this number.
pub fn of_number(kind: HandleKind, number: u64) -> u64 {
    number << KIND_BITS | kind as u64
}

/// The handle's number; `None` if it is of another kind.
pub fn number(kind: HandleKind, handle: u64) -> Option<u64> {
    (handle & KIND_MASK == kind as u64).then_some(handle >> KIND_BITS)
}

/// The handle itself if it is of this kind, otherwise 0.
pub fn checked(kind: HandleKind, handle: *const c_void) -> u64 {
    let handle = handle as u64;
    if handle & KIND_MASK == kind as u64 { handle } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_one_kind() {
        let (task, call) = (new(HandleKind::Task), new(HandleKind::Call));
        assert_ne!(task >> KIND_BITS, call >> KIND_BITS);
        assert_eq!(checked(HandleKind::Task, task as *const c_void), task);
        assert_eq!(checked(HandleKind::Call, task as *const c_void), 0);
        assert_eq!(checked(HandleKind::Call, core::ptr::null()), 0);
        assert_eq!(number(HandleKind::Slot, of_number(HandleKind::Slot, 77)), Some(77));
        assert_eq!(number(HandleKind::Slot, task), None);
    }
}
