//! Replaces the addresses that a program gets for functions of CUDA's driver, since calls through
//! such an address would bypass the hooks. For example, PyTorch gets `cuMemCreate` from
//! `cudaGetDriverEntryPointByVersion`.
//!
//! If the function is hooked and has the same type in all versions, the program gets the hook's
//! address instead. The hook then calls the driver's function.

use crate::call_args::{Frame, word};
use core::ffi::{CStr, c_char};
use tprof_wire::calls::{Effect, FUNCTIONS, Function};
use tprof_wire::sync::{AtomicUsize, Ordering::*};

/// The addresses that the driver returned, by the function's number.
static GIVEN: [AtomicUsize; FUNCTIONS.len()] = [const { AtomicUsize::new(0) }; FUNCTIONS.len()];

/// The driver's own function, if a program has looked it up by name; otherwise 0.
pub fn given(number: u32) -> usize {
    GIVEN.get(number as usize).map_or(0, |place| place.load(Acquire))
}

/// Whether a hook's address replaces the function's. It does only for virtual memory management,
/// whose names have one version each. In contrast, the plain name `cuMemAlloc` means an older
/// function, of CUDA 3.1.
fn is_replaced(function: &Function) -> bool {
    matches!(function.does, Effect::Maps(_))
}

/// Called when a call with [`Effect::Finds`] has returned. Replaces the address that the call
/// stored by the hook's. `hook` returns the hook of a function's number.
pub fn replace(frame: &Frame, hook: impl Fn(usize) -> Option<usize>) {
    let (name, place) = (frame.register(0) as *const c_char, frame.register(1) as *mut usize);
    if frame.result as u32 != 0 || name.is_null() || place.is_null() {
        return;
    }
    // SAFETY: the real function succeeded, so it has read a NUL-terminated name there.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let wanted =
        |function: &Function| is_replaced(function) && function.name.text().as_bytes() == name;
    let Some(number) = FUNCTIONS.iter().position(wanted) else { return };
    // SAFETY: the real function succeeded, so it has stored its answer there.
    let found = unsafe { word(place as u64, 0) } as usize;
    let (Some(given), Some(hook)) = (GIVEN.get(number), hook(number)) else { return };
    // The driver stores 0 for a function that it doesn't have.
    if found == 0 || found == hook {
        return;
    }
    given.store(found, Release);
    // SAFETY: the real function has stored its answer there, and the caller reads it only after
    // this hook returns.
    unsafe { place.write_unaligned(hook) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks a function up as `cuGetProcAddress` does, where the driver's own is `found`; returns
    /// what the program gets.
    fn look_up(name: &CStr, result: u64, found: usize, hook: Option<usize>) -> usize {
        let mut place = found;
        let registers =
            [name.as_ptr() as u64, (&raw mut place).expose_provenance() as u64, 0, 0, 0, 0];
        let mut frame = Frame::of_registers(registers);
        frame.set_result(result);
        replace(&frame, |_| hook);
        // SAFETY: the place is a local.
        unsafe { (&raw const place).read_volatile() }
    }

    fn number(name: &CStr) -> u32 {
        FUNCTIONS.iter().position(|f| f.name.text().as_bytes() == name.to_bytes()).unwrap() as u32
    }

    #[test]
    fn a_program_gets_the_hook_and_the_hook_gets_the_drivers_function() {
        assert_eq!(look_up(c"cuMemCreate", 0, 0x1000, Some(0x2000)), 0x2000);
        assert_eq!(given(number(c"cuMemCreate")), 0x1000);
        // The driver's answer may be the hook itself, which must not call itself.
        assert_eq!(look_up(c"cuMemCreate", 0, 0x2000, Some(0x2000)), 0x2000);
        assert_eq!(given(number(c"cuMemCreate")), 0x1000);
    }

    #[test]
    fn functions_with_several_versions_and_unknown_ones_stay_the_drivers() {
        for name in [c"cuMemAlloc", c"cuMemFree", c"cuNoSuchFunction", c""] {
            assert_eq!(look_up(name, 0, 0x1000, Some(0x2000)), 0x1000, "{name:?}");
        }
    }

    #[test]
    fn a_failed_look_up_or_one_without_an_answer_stays_as_it_is() {
        assert_eq!(look_up(c"cuMemMap", 1, 0x1000, Some(0x2000)), 0x1000);
        assert_eq!(look_up(c"cuMemMap", 0, 0, Some(0x2000)), 0);
        assert_eq!(look_up(c"cuMemMap", 0, 0x1000, None), 0x1000, "there is no hook");
        let nothing = Frame::of_registers([0; 6]);
        replace(&nothing, |_| Some(0x2000));
        assert_eq!(given(number(c"cuMemMap")), 0);
        assert_eq!(given(u32::MAX), 0);
    }
}
