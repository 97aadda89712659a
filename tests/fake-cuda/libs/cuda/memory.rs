//! Memory of every kind; all of it is the host's.

use crate::{contexts, happened, streams, time};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;
use tprof_fake_cuda::{Happened, Place, memory};

/// Address → kind, bytes, the device that it belongs to, and the context or 0 for a primary one.
static LIVE: Mutex<BTreeMap<usize, (u32, usize, u32, usize)>> = Mutex::new(BTreeMap::new());
/// The default pool of each device: bytes given out, and held. It gives none back by itself.
static POOLS: Mutex<BTreeMap<u32, (u64, u64)>> = Mutex::new(BTreeMap::new());

const ALLOCATION: u32 = 1;
const RELEASE: u32 = 2;
/// Device memory is handed out at such multiples.
const ALIGN: usize = 512;
/// A pool takes memory in such multiples.
const POOL_STEP: u64 = 32 << 20;
/// No stream, by CUPTI's number.
const NO_STREAM: u32 = u32::MAX;

fn place(device: u32, stream: u32, correlation: u32) -> Place {
    streams::enter(device);
    let context = streams::context_of(device);
    Place { device, context, stream, correlation, ..Place::default() }
}

/// Reports a change of memory of a device.
pub fn report_on(device: u32, taken: bool, kind: u32, at: u64, bytes: usize, correlation: u32) {
    let now = time::now();
    let operation = if taken { ALLOCATION } else { RELEASE };
    let what = Happened::Memory(operation, kind, at, bytes as u64);
    happened(&place(device, NO_STREAM, correlation), now, now, &what);
}

fn block(bytes: usize) -> *mut c_void {
    let mut at = std::ptr::null_mut();
    // SAFETY: a block of the host's.
    match unsafe { libc::posix_memalign(&raw mut at, ALIGN, bytes.max(1)) } {
        0 => at,
        _ => std::ptr::null_mut(),
    }
}

/// The implementation of [`tprof_fake_cuda::Engine::allocate`].
pub extern "C" fn allocate(kind: u32, bytes: usize, correlation: u32) -> *mut c_void {
    let at = block(bytes);
    if !at.is_null() {
        adopt(at, kind, bytes, correlation);
    }
    at
}

/// The implementation of [`tprof_fake_cuda::Engine::adopt`].
pub extern "C" fn adopt(at: *mut c_void, kind: u32, bytes: usize, correlation: u32) {
    let device = crate::chosen();
    LIVE.lock().unwrap().insert(at as usize, (kind, bytes, device, contexts::current()));
    report_on(device, true, kind, at as u64, bytes, correlation);
}

/// The implementation of [`tprof_fake_cuda::Engine::allocate_async`].
pub extern "C" fn allocate_async(
    bytes: usize,
    stream: *mut c_void,
    correlation: u32,
) -> *mut c_void {
    let at = block(bytes);
    if !at.is_null() {
        let device = streams::of(stream).device;
        LIVE.lock().unwrap().insert(at as usize, (memory::POOL, bytes, device, 0));
        let change = (ALLOCATION, at as u64, bytes as u64);
        of_pool(device, streams::of(stream).id, change, correlation);
    }
    at
}

fn of_pool(device: u32, stream: u32, (operation, at, bytes): (u32, u64, u64), correlation: u32) {
    let mut pools = POOLS.lock().unwrap();
    let (given, held) = pools.entry(device).or_default();
    match operation {
        ALLOCATION => *given += bytes,
        _ => *given -= bytes,
    }
    *held = (*held).max(given.next_multiple_of(POOL_STEP));
    let now = time::now();
    let pool = [u64::from(device) + 0xd00d, *held, *given];
    let what = Happened::PoolMemory(operation, at, bytes, pool);
    happened(&place(device, stream, correlation), now, now, &what);
}

/// See [`tprof_fake_cuda::Engine::release`]: of a pool on the null stream.
pub extern "C" fn release(at: *mut c_void, correlation: u32) -> bool {
    release_on(at, 0, correlation)
}

/// The implementation of [`tprof_fake_cuda::Engine::release_async`].
pub extern "C" fn release_async(at: *mut c_void, stream: *mut c_void, correlation: u32) -> bool {
    release_on(at, streams::of(stream).id, correlation)
}

fn release_on(at: *mut c_void, stream: u32, correlation: u32) -> bool {
    let Some((kind, bytes, device, _)) = LIVE.lock().unwrap().remove(&(at as usize)) else {
        return false;
    };
    match kind {
        memory::POOL => {
            of_pool(device, stream, (RELEASE, at as u64, bytes as u64), correlation);
        }
        _ => report_on(device, false, kind, at as u64, bytes, correlation),
    }
    if kind != memory::REGISTERED {
        // SAFETY: handed out by this module, and taken out of the table above.
        unsafe { libc::free(at) };
    }
    true
}

/// The implementation of [`tprof_fake_cuda::Engine::release_all`].
pub extern "C" fn release_all(correlation: u32) {
    let device = crate::chosen();
    release_those(correlation, |of, context| of == device && context == 0);
}

/// Frees all blocks of a context, for a call.
pub fn release_context(context: usize, correlation: u32) {
    release_those(correlation, |_, of| of == context);
}

fn release_those(correlation: u32, is_one: impl Fn(u32, usize) -> bool) {
    let live = LIVE.lock().unwrap();
    let those = live.iter().filter(|(_, (_, _, device, context))| is_one(*device, *context));
    let all: Vec<usize> = those.map(|(at, _)| *at).collect();
    drop(live);
    for at in all {
        release(at as *mut c_void, correlation);
    }
}

/// What kind of memory an address is in, as CUPTI names kinds in records of copies.
pub fn kind_of(at: *const c_void) -> u32 {
    let live = LIVE.lock().unwrap();
    let block = live.range(..=at as usize).next_back();
    let kind = block
        .filter(|(start, (_, bytes, ..))| (at as usize) < *start + (*bytes).max(1))
        .map_or(memory::PAGEABLE, |(_, (kind, ..))| *kind);
    match kind {
        memory::POOL | memory::IMPORTED => memory::DEVICE,
        memory::REGISTERED => memory::PINNED,
        kind => kind,
    }
}
