//! Lists the functions of CUPTI that act on the whole process, which the preloaded library
//! intercepts, and finds the real ones.

use super::super::loader::{Handle, Loader};
use super::super::started;
use super::calls;
use core::ffi::CStr;
use tprof_wire::sync::{AtomicUsize, Ordering::*};

/// Passes the names of these functions to a macro, each with the function in `calls` that
/// replaces it.
#[macro_export]
macro_rules! cupti_functions {
    ($take:ident) => {
        $take! {
            cuptiActivityRegisterCallbacks register_callbacks,
            cuptiActivityEnable enable,
            cuptiActivityDisable disable,
            cuptiActivityEnableContext enable_context,
            cuptiActivityDisableContext disable_context,
            cuptiActivitySetAttribute set_attribute,
            cuptiActivityGetAttribute get_attribute,
            cuptiActivityRegisterTimestampCallback register_timestamp_callback,
            cuptiGetTimestamp get_timestamp,
            cuptiActivityFlushAll flush_all,
            cuptiActivityFlushPeriod flush_period,
            cuptiActivityGetNumDroppedRecords dropped_records,
            cuptiActivityEnableRuntimeApi enable_runtime_api,
            cuptiActivityEnableDriverApi enable_driver_api,
            cuptiSetThreadIdType set_thread_id_type,
            cuptiGetThreadIdType get_thread_id_type,
            cuptiEnableDomain enable_domain,
            cuptiSubscribe_v2 subscribe_v2,
            cuptiFinalize finalize,
        }
    };
}

macro_rules! numbers {
    ($($name:ident $instead:ident,)*) => {
        /// Numbers of the intercepted functions.
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy)]
        pub enum Number { $($name),* }

        const ALL: &[(&[u8], extern "C" fn())] = &[$((
            concat!(stringify!($name), "\0").as_bytes(),
            // SAFETY: only the address is kept. The client calls it with the type of the CUPTI
            // function that it replaces.
            unsafe { core::mem::transmute::<*const (), extern "C" fn()>(calls::$instead as *const ()) },
        )),*];
        static REAL: [AtomicUsize; ALL.len()] = [const { AtomicUsize::new(0) }; ALL.len()];
    };
}
cupti_functions!(numbers);

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
        let address = $crate::gpu::client::functions::address_of(Number::$name);
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

/// Whether a client may begin to use CUPTI with this function. The agent must know of such calls
/// even if the driver has not loaded it yet.
pub fn begins(number: u32) -> bool {
    use Number::*;
    let first = [
        cuptiActivityRegisterCallbacks,
        cuptiActivityEnable,
        cuptiActivitySetAttribute,
        cuptiActivityRegisterTimestampCallback,
        cuptiActivityFlushPeriod,
        cuptiActivityEnableRuntimeApi,
        cuptiActivityEnableDriverApi,
        cuptiSetThreadIdType,
        cuptiSubscribe_v2,
    ];
    first.iter().any(|known| *known as u32 == number)
}
