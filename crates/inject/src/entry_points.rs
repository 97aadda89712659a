//! Functions of CUDA's driver whose addresses a program gets by name, so that its calls bypass the
//! libraries' symbols: PyTorch gets `cuMemCreate` and others from
//! `cudaGetDriverEntryPointByVersion`. If such a function is hooked and has had one type in all
//! versions, the program gets the hook's address instead, and the hook calls the driver's function.

use crate::call_args::{Frame, word};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering::*};
use tprof_wire::calls::{Effect, FUNCTIONS, Function};

/// The addresses that the driver returned, by number of the function.
static GIVEN: [AtomicUsize; FUNCTIONS.len()] = [const { AtomicUsize::new(0) }; FUNCTIONS.len()];

/// The driver's own function, if a program has asked for it by name; otherwise 0.
pub fn given(number: u32) -> usize {
    GIVEN.get(number as usize).map_or(0, |place| place.load(Acquire))
}

/// Whether a function's address is replaced by its hook's. Only virtual memory management is: its
/// names have no versions, while the plain `cuMemAlloc` is another function, of CUDA 3.1.
fn is_replaced(function: &Function) -> bool {
    matches!(function.does, Effect::Maps(_))
}

/// Called when a call with [`Effect::Finds`] has returned: replaces the address that it stored by
/// the hook's. `hook` returns the hook of a function's number.
pub fn replace(frame: &Frame, hook: impl Fn(usize) -> Option<usize>) {
    let (name, place) = (frame.register(0) as *const c_char, frame.register(1) as *mut usize);
    if frame.result as u32 != 0 || name.is_null() || place.is_null() {
        return;
    }
    // SAFETY: the real function has read a NUL-terminated name there, and has succeeded.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let wanted =
        |function: &Function| is_replaced(function) && function.name.text().as_bytes() == name;
    let Some(number) = FUNCTIONS.iter().position(wanted) else { return };
    // SAFETY: the real function has stored its answer there.
    let found = unsafe { word(place as u64, 0) } as usize;
    let (Some(given), Some(hook)) = (GIVEN.get(number), hook(number)) else { return };
    // The driver stores 0 if it lacks the function.
    if found == 0 || found == hook {
        return;
    }
    given.store(found, Release);
    // SAFETY: the real function has stored its answer there, and the caller reads it only after
    // this call has returned.
    unsafe { place.write_unaligned(hook) };
}
