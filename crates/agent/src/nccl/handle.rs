//! Handles of the events that NCCL reports: numbers that are unique in their process, with the kind
//! of event in the low bits.
//!
//! NCCL passes the handle of a parent with each event. A proxy may work for several processes, and
//! then the handle may belong to another process. So a handle is never used as a pointer.

use core::ffi::c_void;
use tprof_wire::sync::{AtomicU64, Ordering::Relaxed};

/// The kind of event that a handle identifies.
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
    /// A slot of [`super::slots`]: work on a channel, or a step of such work.
    Slot = 5,
}

const KIND_BITS: u32 = 3;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Makes a new handle of this kind.
pub fn new(kind: HandleKind) -> u64 {
    NEXT.fetch_add(1, Relaxed) << KIND_BITS | kind as u64
}

/// Makes the handle of this kind that contains this number.
pub fn of_number(kind: HandleKind, number: u64) -> u64 {
    number << KIND_BITS | kind as u64
}

/// The number in a handle; `None` if the handle is of another kind.
pub fn number(kind: HandleKind, handle: u64) -> Option<u64> {
    (handle & KIND_MASK == kind as u64).then_some(handle >> KIND_BITS)
}

/// Returns the handle if it is of this kind, otherwise 0.
pub fn checked(kind: HandleKind, handle: *const c_void) -> u64 {
    let handle = handle as u64;
    if handle & KIND_MASK == kind as u64 { handle } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_only_valid_for_its_own_kind() {
        let (task, call) = (new(HandleKind::Task), new(HandleKind::Call));
        assert_ne!(task >> KIND_BITS, call >> KIND_BITS);
        assert_eq!(checked(HandleKind::Task, task as *const c_void), task);
        assert_eq!(checked(HandleKind::Call, task as *const c_void), 0);
        assert_eq!(checked(HandleKind::Call, core::ptr::null()), 0);
        assert_eq!(number(HandleKind::Slot, of_number(HandleKind::Slot, 77)), Some(77));
        assert_eq!(number(HandleKind::Slot, task), None);
    }
}
