//! The tables of functions that NCCL calls, one table for each version of the plugin interface.

use super::events::{self, Communicator};
use super::layout::{self, EventKind};
use super::{mask, transfers};
use crate::gpu::agent;
use core::ffi::{c_char, c_int, c_void};

/// The newest version of the interface that tprof implements; the oldest is 1.
pub const VERSIONS: usize = 6;

const SUCCESS: c_int = 0;

type Start = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const c_void) -> c_int;
type Stop = unsafe extern "C" fn(*mut c_void) -> c_int;
type State = unsafe extern "C" fn(*mut c_void, c_int, *const c_void) -> c_int;

/// NCCL's `ncclProfiler_vN_t`. The arguments of `init` differ from version to version.
#[repr(C)]
pub struct Table {
    name: *const c_char,
    init: *const c_void,
    start: Start,
    stop: Stop,
    state: State,
    finalize: Stop,
}
// SAFETY: the table contains only addresses of constants and functions, and never changes.
unsafe impl Sync for Table {}

/// Sets up a communicator for any version of the interface.
///
/// # Safety
/// Both pointers are null or valid for writes; the name is null or NUL terminated.
unsafe fn init(context: *mut *mut c_void, mask: *mut c_int, of: Communicator) -> c_int {
    agent::prepare();
    // SAFETY: the caller guarantees that both pointers are null or valid for writes, and that the
    // name is null or NUL terminated.
    unsafe {
        if !mask.is_null() {
            mask.write(mask::wanted(of.version));
        }
        if !context.is_null() {
            context.write(events::context(of) as *mut c_void);
        }
    }
    SUCCESS
}

const fn unknown(version: u32) -> Communicator {
    Communicator { version, name: core::ptr::null(), hash: 0, nodes: 0, ranks: 0, rank: 0 }
}

/// The function `init` of versions 1 to 3.
unsafe extern "C" fn init_1<const VERSION: u32>(
    context: *mut *mut c_void,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: by NCCL's header, both pointers are valid for writes; there is no name.
    unsafe { init(context, mask, unknown(VERSION)) }
}

/// The function `init` of version 4.
unsafe extern "C" fn init_4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    hash: u64,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    _log: *const c_void,
) -> c_int {
    // SAFETY: by NCCL's header, both pointers are valid for writes, and the name is null or NUL
    // terminated.
    unsafe { init(context, mask, Communicator { version: 4, name, hash, nodes, ranks, rank }) }
}

/// The function `init` of versions 5 and 6.
unsafe extern "C" fn init_5<const VERSION: u32>(
    context: *mut *mut c_void,
    hash: u64,
    mask: *mut c_int,
    name: *const c_char,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    _log: *const c_void,
) -> c_int {
    // SAFETY: by NCCL's header, both pointers are valid for writes, and the name is null or NUL
    // terminated.
    unsafe {
        init(context, mask, Communicator { version: VERSION, name, hash, nodes, ranks, rank })
    }
}

unsafe extern "C" fn start<const VERSION: u32>(
    context: *mut c_void,
    event: *mut *mut c_void,
    at: *const c_void,
) -> c_int {
    if event.is_null() || at.is_null() {
        return SUCCESS;
    }
    // SAFETY: NCCL found this function in the table of `VERSION`, so it passes a description of
    // that version.
    let (kind, parent, rank) = unsafe { layout::head(VERSION, at) };
    let context = context as u64;
    let handle = match layout::known(kind) {
        None => 0,
        Some(EventKind::ProxyStep) => transfers::step(parent),
        // SAFETY: `at` is a description of version `VERSION`, and its type says that it is a
        // proxy's operation.
        Some(EventKind::ProxyOp) => unsafe { transfers::proxy(context, parent, at) },
        // SAFETY: `at` is a description of version `VERSION`, and its type says that it is a
        // kernel's part.
        Some(EventKind::KernelPart) => unsafe { transfers::kernel(VERSION, context, parent, at) },
        // SAFETY: `at` is a description of version `VERSION`, and its type says that it is of this
        // kind.
        Some(known) => unsafe { events::begin(VERSION, context, known, rank, at) },
    };
    // SAFETY: by NCCL's header, `event` is valid for writing the handle.
    unsafe { event.write(handle as *mut c_void) };
    SUCCESS
}

unsafe extern "C" fn stop(event: *mut c_void) -> c_int {
    transfers::end(event);
    SUCCESS
}

unsafe extern "C" fn state<const VERSION: u32>(
    event: *mut c_void,
    state: c_int,
    arguments: *const c_void,
) -> c_int {
    // SAFETY: NCCL found this function in the table of `VERSION`, so `arguments` is null or what
    // that version passes with this state.
    unsafe { transfers::change(VERSION, event, state, arguments) };
    SUCCESS
}

unsafe extern "C" fn finalize(_context: *mut c_void) -> c_int {
    SUCCESS
}

macro_rules! table {
    ($version:literal, $init:expr) => {
        Table {
            name: c"tprof".as_ptr(),
            init: $init as *const c_void,
            start: start::<$version>,
            stop,
            state: state::<$version>,
            finalize,
        }
    };
}

/// The tables; the index is the version less one.
pub static TABLES: [Table; VERSIONS] = [
    table!(1, init_1::<1>),
    table!(2, init_1::<2>),
    table!(3, init_1::<3>),
    table!(4, init_4),
    table!(5, init_5::<5>),
    table!(6, init_5::<6>),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_six_pointers() {
        assert_eq!(size_of::<Table>(), 6 * size_of::<usize>());
        assert!(TABLES.iter().all(|table| !table.name.is_null() && !table.init.is_null()));
    }
}
