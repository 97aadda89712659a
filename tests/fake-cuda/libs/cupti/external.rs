//! Implements external ids. Each thread has a stack for each kind of id, and each call gets a
//! record for each stack that is not empty.

use crate::enter;
use std::cell::RefCell;
use tprof_cupti_sys::bindings::*;

const KINDS: usize = CUPTI_EXTERNAL_CORRELATION_KIND_SIZE as usize;

thread_local!(static STACKS: RefCell<[Vec<u64>; KINDS]> = RefCell::default());

fn is_kind(kind: CUpti_ExternalCorrelationKind) -> bool {
    kind != CUPTI_EXTERNAL_CORRELATION_KIND_INVALID && kind < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPushExternalCorrelationId(
    kind: CUpti_ExternalCorrelationKind,
    id: u64,
) -> CUptiResult {
    if !is_kind(kind) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    STACKS.with_borrow_mut(|stacks| stacks[kind as usize].push(id));
    enter("cuptiActivityPushExternalCorrelationId")
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityPopExternalCorrelationId(
    kind: CUpti_ExternalCorrelationKind,
    last: *mut u64,
) -> CUptiResult {
    if !is_kind(kind) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    let Some(id) = STACKS.with_borrow_mut(|stacks| stacks[kind as usize].pop()) else {
        return CUPTI_ERROR_QUEUE_EMPTY;
    };
    if !last.is_null() {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *last = id };
    }
    enter("cuptiActivityPopExternalCorrelationId")
}

/// Calls `take` with the top id of each of this thread's stacks, and its kind.
pub fn each(mut take: impl FnMut(CUpti_ExternalCorrelationKind, u64)) {
    STACKS.with_borrow(|stacks| {
        for (kind, stack) in stacks.iter().enumerate() {
            if let Some(id) = stack.last() {
                take(kind as u32, *id);
            }
        }
    });
}
