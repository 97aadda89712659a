//! The hook of PyTorch's function that returns the callbacks of a range.

use core::ffi::c_void;
use tprof_inject::{callee, operators};
use tprof_wire::calls::FUNCTIONS;

/// Interposes PyTorch's `at::getStepCallbacks(at::RecordScope)`, which PyTorch calls for each range,
/// but not for most operators.
#[unsafe(no_mangle)]
#[allow(non_snake_case)] // the name of a C++ function
pub unsafe extern "C" fn _ZN2at16getStepCallbacksENS_11RecordScopeE(
    result: *mut c_void,
    scope: u8,
) -> *mut c_void {
    // SAFETY: these are PyTorch's arguments.
    unsafe { operators::step_callbacks(result, scope, find) }
}

fn find() -> usize {
    let own = _ZN2at16getStepCallbacksENS_11RecordScopeE as *const () as usize;
    let name = b"_ZN2at16getStepCallbacksENS_11RecordScopeE\0";
    // The functions of the table have the numbers below this one.
    let number = FUNCTIONS.len() as u32;
    callee::find_next(name, number, own, b"libtorch_cpu.so", own)
}
