//! Handles of events: numbers that are unique in their process, with the sort of event in the
//! low bits.
//!
//! NCCL passes a parent's handle with each event, also one of another process where a proxy
//! works for several: no handle is ever followed as a pointer.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Sort {
    /// A communicator's context.
    Context = 1,
    /// What is handed to the device together.
    Group = 2,
    /// An NCCL call.
    Call = 3,
    /// An operation as enqueued.
    Task = 4,
    /// A slot: work on a channel, or a step of it.
    Slot = 5,
}

const SORT_BITS: u32 = 3;
const SORT_MASK: u64 = (1 << SORT_BITS) - 1;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A new handle of this sort.
pub fn new(sort: Sort) -> u64 {
    NEXT.fetch_add(1, Relaxed) << SORT_BITS | sort as u64
}

/// The handle of a number.
pub fn of_number(sort: Sort, number: u64) -> u64 {
    number << SORT_BITS | sort as u64
}

/// The handle's number, if it is of this sort.
pub fn number(sort: Sort, handle: u64) -> Option<u64> {
    (handle & SORT_MASK == sort as u64).then_some(handle >> SORT_BITS)
}

/// The handle itself if it is of this sort, else 0.
pub fn checked(sort: Sort, handle: *const c_void) -> u64 {
    let handle = handle as u64;
    if handle & SORT_MASK == sort as u64 { handle } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_of_its_sort_and_no_other() {
        let (task, call) = (new(Sort::Task), new(Sort::Call));
        assert_ne!(task >> SORT_BITS, call >> SORT_BITS);
        assert_eq!(checked(Sort::Task, task as *const c_void), task);
        assert_eq!(checked(Sort::Call, task as *const c_void), 0);
        assert_eq!(checked(Sort::Call, core::ptr::null()), 0);
        assert_eq!(number(Sort::Slot, of_number(Sort::Slot, 77)), Some(77));
        assert_eq!(number(Sort::Slot, task), None);
    }
}
