//! Keeps the functions whose calls a client excludes from recording, although their kind is
//! enabled.

use crate::{enter, lock};
use std::collections::BTreeSet;
use std::sync::Mutex;
use tprof_cupti_sys::bindings::*;

static MUTED: Mutex<BTreeSet<(CUpti_ActivityKind, u32)>> = Mutex::new(BTreeSet::new());

fn choose(kind: CUpti_ActivityKind, call: u32, on: bool) {
    let mut muted = lock(&MUTED);
    if on {
        muted.remove(&(kind, call))
    } else {
        muted.insert((kind, call))
    };
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableRuntimeApi(call: u32, on: u8) -> CUptiResult {
    choose(CUPTI_ACTIVITY_KIND_RUNTIME, call, on != 0);
    enter("cuptiActivityEnableRuntimeApi")
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableDriverApi(call: u32, on: u8) -> CUptiResult {
    choose(CUPTI_ACTIVITY_KIND_DRIVER, call, on != 0);
    enter("cuptiActivityEnableDriverApi")
}

/// Forgets the choices for a kind. Enabling a kind does that, as in CUPTI.
pub fn none(kind: CUpti_ActivityKind) {
    lock(&MUTED).retain(|(of, _)| *of != kind);
}

/// Whether calls of a function are not recorded.
pub fn is(kind: CUpti_ActivityKind, call: u32) -> bool {
    lock(&MUTED).contains(&(kind, call))
}
