//! Finds the real ones of the functions of CUPTI that the preloaded library intercepts
//! ([`mod@tprof_inject::cupti_functions`]), and chooses what serves a call.

use super::super::loader::{Handle, Loader};
use super::super::started;
use super::calls;
use core::ffi::CStr;
use tprof_inject::cupti_functions::Number;
use tprof_wire::sync::{AtomicUsize, Ordering::*};

macro_rules! replacements {
    ($($name:ident $instead:ident,)*) => {
        const ALL: &[(&[u8], extern "C" fn())] = &[$((
            concat!(stringify!($name), "\0").as_bytes(),
            // SAFETY: only the address is kept. The client calls it with the type of the CUPTI
            // function that it replaces.
            unsafe { core::mem::transmute::<*const (), extern "C" fn()>(calls::$instead as *const ()) },
        )),*];
        static REAL: [AtomicUsize; ALL.len()] = [const { AtomicUsize::new(0) }; ALL.len()];
    };
}
tprof_inject::cupti_functions!(replacements);

fn found(loader: &Loader, handle: Handle, name: &[u8]) -> usize {
    let name = CStr::from_bytes_until_nul(name).ok();
    name.and_then(|name| loader.symbol(handle, name)).unwrap_or(0)
}

/// Whether a client already uses another CUPTI library than this one.
pub fn is_other(loader: &Loader, handle: Handle) -> bool {
    ALL.iter().zip(&REAL).any(|((name, _), real)| {
        let known = real.load(Relaxed);
        known != 0 && known != found(loader, handle, name)
    })
}

/// Looks up the real functions. Called before the agent starts.
pub fn prepare(loader: &Loader, handle: Handle) {
    for ((name, _), real) in ALL.iter().zip(&REAL) {
        real.store(found(loader, handle, name), Relaxed);
    }
}

/// Address of the real function in the CUPTI that the agent uses; 0 if that CUPTI lacks it.
pub fn address_of(number: Number) -> usize {
    REAL.get(number as usize).map_or(0, |real| real.load(Relaxed))
}

/// Calls the real function, or returns an error if it is absent.
macro_rules! real {
    ($name:ident as $type:ty, ($($argument:expr),*)) => {{
        let address = $crate::gpu::client::intercepted::address_of(Number::$name);
        if address == 0 {
            CUPTI_ERROR_NOT_INITIALIZED
        } else {
            let call = $crate::gpu::loader::function!(address, $type);
            // SAFETY: `$type` is the function's type, and the arguments are those that the client
            // passed to it.
            unsafe { call($($argument),*) }
        }
    }};
}

pub(super) use real;

/// Returns the address of the function to call in place of the one at `real`. That is the agent's
/// function while the agent uses the CUPTI library that has `real`. It is also the agent's function
/// before the agent starts, since the agent is likely to use that library.
pub fn instead(number: u32, real: usize) -> usize {
    let index = number as usize;
    let (Some((_, own)), Some(known)) = (ALL.get(index), REAL.get(index)) else { return real };
    if started::is_awaited() {
        let _ = known.compare_exchange(0, real, Relaxed, Relaxed);
    } else if started::cupti().is_none() {
        return real;
    }
    if known.load(Relaxed) == real { *own as usize } else { real }
}
