//! Chooses which profiler plugin NCCL gets: the job's own if NCCL would have found one without
//! tprof, otherwise tprof's.
//!
//! Without `NCCL_PROFILER_PLUGIN`, NCCL loads `libnccl-profiler.so`. If that doesn't exist, it uses
//! the plugin in its network plugin's library. tprof sets the variable, so this module searches in
//! the same order for the plugin that NCCL would have found. If there is one, NCCL gets its tables
//! unchanged: for each version, that library's table, or null if it has none, after which NCCL
//! tries the version before.

use super::plugin::{TABLES, Table};
use crate::gpu::agent;
use crate::gpu::loader::{Handle, Loader};
use crate::gpu::notes::{note, reason};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use tprof_inject::{gate, loaded};
use tprof_wire::gpu::trouble;
use tprof_wire::sync::{AtomicU32, Ordering::*};

/// Names of the tables; the index is the version less one.
const NAMES: [&CStr; 6] = [
    c"ncclProfiler_v1",
    c"ncclProfiler_v2",
    c"ncclProfiler_v3",
    c"ncclProfiler_v4",
    c"ncclProfiler_v5",
    c"ncclProfiler_v6",
];
/// Newer versions, by which this module recognises plugins that tprof doesn't implement.
const NEWER: [&CStr; 2] = [c"ncclProfiler_v7", c"ncclProfiler_v8"];

/// Handle of the job's own plugin; `None` if the search found none.
struct Found(UnsafeCell<Option<Handle>>);
// SAFETY: only the thread that changes [`STATE`] from `NEW` to `SEARCHING` writes the value, and
// threads read it only when `STATE` is `KNOWN`.
unsafe impl Sync for Found {}
static FOUND: Found = Found(UnsafeCell::new(None));
static STATE: AtomicU32 = AtomicU32::new(NEW);
const NEW: u32 = 0;
const SEARCHING: u32 = 1;
const KNOWN: u32 = 2;

const LAZY_LOCAL: c_int = 1;
const NOW_LOCAL: c_int = 2;
const NO_LOAD: c_int = 4;

/// The table of a version (1 to 6) for NCCL; null if NCCL must try the version before.
///
/// The C library calls this while `dlsym` resolves the table's name.
pub fn table(version: usize) -> *const c_void {
    let at = version.wrapping_sub(1);
    let (Some(ours), Some(name)) = (TABLES.get(at), NAMES.get(at)) else {
        return core::ptr::null();
    };
    let Some(loader) = Loader::find() else { return core::ptr::null() };
    match own_plugin(&loader) {
        Some(handle) => {
            loader.symbol(handle, name).map_or(core::ptr::null(), |at| at as *const c_void)
        }
        None => core::ptr::from_ref::<Table>(ours).cast(),
    }
}

fn own_plugin(loader: &Loader) -> Option<Handle> {
    // The loader's lock is locked, so only one thread is here. But a search may call this function
    // again, which then finds `SEARCHING`.
    if STATE.compare_exchange(NEW, SEARCHING, AcqRel, Acquire).is_ok() {
        let found = search(loader);
        // SAFETY: only this thread has changed `STATE` to `SEARCHING`, and threads read the value
        // only when `STATE` is `KNOWN`.
        unsafe { *FOUND.0.get() = found };
        STATE.store(KNOWN, Release);
    }
    if STATE.load(Acquire) != KNOWN {
        return None;
    }
    // SAFETY: the value was written before `STATE` became `KNOWN`, and is never written again.
    unsafe { *FOUND.0.get() }
}

fn search(loader: &Loader) -> Option<Handle> {
    let (handle, path) = match loader.open(c"libnccl-profiler.so", NOW_LOCAL) {
        Some(handle) => (handle, c"libnccl-profiler.so"),
        None => network_plugin(loader)?,
    };
    let any = NAMES.iter().chain(&NEWER).any(|name| loader.symbol(handle, name).is_some());
    if !any {
        return None;
    }
    agent::prepare();
    if let Some(thread) = gate::recording() {
        let why = reason(b"NCCL's profiler plugin is the job's own", path.to_bytes());
        note(thread, trouble::OTHER_PROFILER, 1, why.as_c().to_bytes());
    }
    Some(handle)
}

/// The library of the network plugin, if NCCL has loaded one.
fn network_plugin(loader: &Loader) -> Option<(Handle, &'static CStr)> {
    let path = loaded::named(b"libnccl-net")?.path;
    Some((loader.open(path, LAZY_LOCAL | NO_LOAD)?, path))
}
