//! Functions of CUDA's driver that a program asks for by name, and calls past the symbols of
//! libraries: PyTorch takes `cuMemCreate` and its like from `cudaGetDriverEntryPointByVersion`.
//! Where such a function is hooked and has had one type in all versions, the program gets the
//! hook's address, and the hook calls what the driver gave.

use crate::call_args::{Frame, word};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering::*};
use tprof_wire::calls::{Effect, FUNCTIONS, Function};

/// By the functions' numbers: what the driver gave for their names.
static GIVEN: [AtomicUsize; FUNCTIONS.len()] = [const { AtomicUsize::new(0) }; FUNCTIONS.len()];

/// The driver's own function, if a program has asked for it by name; else 0.
pub fn given(number: u32) -> usize {
    GIVEN.get(number as usize).map_or(0, |place| place.load(Acquire))
}

/// Only virtual memory management: its names have no versions (the plain `cuMemAlloc` is another
/// function, for CUDA 3.1).
fn is_replaced(function: &Function) -> bool {
    matches!(function.does, Effect::Maps(_))
}

/// A call of [`Effect::Finds`] returned: puts the address of a hook in the place of the driver's.
/// `hook` gives the hook of a number.
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
    // 0 where the driver lacks it.
    if found == 0 || found == hook {
        return;
    }
    given.store(found, Release);
    // SAFETY: as above; the caller reads it once this call has returned.
    unsafe { place.write_unaligned(hook) };
}
