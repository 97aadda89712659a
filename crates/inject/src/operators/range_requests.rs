//! Records PyTorch's ranges without a callback that stays registered.
//!
//! When a range begins, PyTorch calls `at::getStepCallbacks` for the list of callbacks that it is to
//! call for this range, and a hook interposes that function. The hook registers the ranges' callback
//! for the current thread, calls the real function, and removes the callback again. The range keeps
//! its copy of the list, so its end is reported too.
//!
//! A callback that stays registered costs more: PyTorch copies its list of callbacks whenever
//! autograd changes a thread's state, which takes 2 % of a step that launches small kernels.
//!
//! In builds of PyTorch whose calls of that function don't reach the hook, and in versions without
//! the function, the ranges' callback stays registered instead (`register`).

use crate::loaded::Loaded;
use crate::pytorch_registration::{self, ByHandle};
use core::ffi::c_void;
use tprof_wire::operators::USER_SCOPE;
use tprof_wire::sync::{AtomicU32, AtomicUsize, Ordering::*};

/// `at::getStepCallbacks`. By the C++ ABI, the first argument is the address where the returned list
/// is stored, and is returned.
type StepCallbacks = unsafe extern "C" fn(*mut c_void, u8) -> *mut c_void;

/// Address of the real function; 0 while not known.
static REAL: AtomicUsize = AtomicUsize::new(0);
/// Address of PyTorch's function that removes a callback; 0 while the hook registers none.
static REMOVE: AtomicUsize = AtomicUsize::new(0);
/// 1 if the hook was called for a range.
static IS_REACHED: AtomicU32 = AtomicU32::new(0);

/// Called by the hook of `at::getStepCallbacks` with its arguments. `find` returns the address of
/// the real function; 0 if no library has it.
///
/// # Safety
/// PyTorch called the function with these arguments.
#[inline(always)]
pub unsafe fn step_callbacks(result: *mut c_void, scope: u8, find: fn() -> usize) -> *mut c_void {
    if scope == USER_SCOPE {
        // SAFETY: the caller guarantees that these are PyTorch's own arguments.
        return unsafe { of_range(result, find) };
    }
    match REAL.load(Relaxed) {
        // A program without PyTorch can't call this function.
        0 if look_up(find) == 0 => result,
        // SAFETY: `REAL` is the address of the function with this type, and the caller guarantees
        // that these are PyTorch's own arguments.
        _ => unsafe { real()(result, scope) },
    }
}

#[cold]
#[inline(never)]
fn look_up(find: fn() -> usize) -> usize {
    let real = find();
    REAL.store(real, Relaxed);
    real
}

/// # Safety
/// `REAL` isn't 0.
#[inline(always)]
unsafe fn real() -> StepCallbacks {
    // SAFETY: the caller guarantees an address, which is that of the function with this type.
    unsafe { core::mem::transmute::<usize, StepCallbacks>(REAL.load(Relaxed)) }
}

/// # Safety
/// The same premises as [`step_callbacks`], for a range.
#[inline(never)]
unsafe fn of_range(result: *mut c_void, find: fn() -> usize) -> *mut c_void {
    if REAL.load(Relaxed) == 0 && look_up(find) == 0 {
        return result;
    }
    let remove = REMOVE.load(Relaxed);
    if remove == 0 || !pytorch_registration::wants_ranges() {
        IS_REACHED.store(1, Relaxed);
        // SAFETY: the address is known, and the caller guarantees PyTorch's own arguments.
        return unsafe { real()(result, USER_SCOPE) };
    }
    let handle = super::register::add_ranges_of_thread();
    // SAFETY: as above. The handle is that of a callback of this thread, which PyTorch has.
    unsafe {
        let result = real()(result, USER_SCOPE);
        core::mem::transmute::<usize, ByHandle>(remove)(handle);
        result
    }
}

/// Called when code was unloaded, perhaps PyTorch.
pub fn unloaded() {
    REAL.store(0, Relaxed);
}

/// Finds out whether PyTorch's calls reach the hook, by making an object for a range that never
/// begins. If so, the hook records ranges from now on.
pub fn begin(torch: &Loaded, remove: ByHandle) -> bool {
    /// Words of memory for a `RecordFunction`, of which it takes a fifth.
    const WORDS: usize = 256;
    REMOVE.store(0, Relaxed);
    let construct = torch.function(c"_ZN2at14RecordFunctionC1ENS_11RecordScopeE");
    let destroy = torch.function(c"_ZN2at14RecordFunctionD1Ev");
    let (Some(construct), Some(destroy)) = (construct, destroy) else { return false };
    let mut object = [0u64; WORDS];
    IS_REACHED.store(0, Relaxed);
    // SAFETY: these are the constructor and the destructor of `at::RecordFunction`, which fits into
    // the memory. The destructor calls no callback, since none was called for a beginning.
    unsafe {
        let construct: unsafe extern "C" fn(*mut u64, u8) = core::mem::transmute(construct);
        let destroy: unsafe extern "C" fn(*mut u64) = core::mem::transmute(destroy);
        construct(object.as_mut_ptr(), USER_SCOPE);
        destroy(object.as_mut_ptr());
    }
    let is_reached = IS_REACHED.load(Relaxed) != 0;
    if is_reached {
        REMOVE.store(remove as usize, Relaxed);
    }
    is_reached
}
