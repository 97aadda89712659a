//! Implements memory of every kind. All of it is host memory.

use crate::{contexts, happened, streams, time};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;
use tprof_fake_cuda::{Happened, Place, memory};

/// Live blocks. Maps the address of a block to its kind, its bytes, its device, and its context (0
/// for a primary one).
static LIVE: Mutex<BTreeMap<usize, (u32, usize, u32, usize)>> = Mutex::new(BTreeMap::new());
/// For each device, the bytes that its default pool has handed out, and those that it holds. The
/// pool never releases memory by itself.
static POOLS: Mutex<BTreeMap<u32, (u64, u64)>> = Mutex::new(BTreeMap::new());

const ALLOCATION: u32 = 1;
const RELEASE: u32 = 2;
/// Alignment of device memory.
const ALIGN: usize = 512;
/// A pool grows in multiples of this size.
const POOL_STEP: u64 = 32 << 20;
/// CUPTI's number for "no stream".
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
    // SAFETY: `at` is a local variable, and the alignment is a power of two.
    match unsafe { libc::posix_memalign(&raw mut at, ALIGN, bytes.max(1)) } {
        0 => at,
        _ => std::ptr::null_mut(),
    }
}

/// Whether this many more bytes don't fit on a device. If nothing limits it, any number fits.
fn is_full(bytes: usize) -> bool {
    let Some(limit) = tprof_fake_cuda::device_limit() else { return false };
    let live = LIVE.lock().unwrap();
    let held = live.values().filter(|(kind, ..)| *kind == memory::DEVICE);
    let held: usize = held.map(|(_, bytes, ..)| bytes).sum();
    (held + bytes) as u64 > limit
}

/// The implementation of [`tprof_fake_cuda::Engine::allocate`].
pub extern "C" fn allocate(kind: u32, bytes: usize, correlation: u32) -> *mut c_void {
    if kind == memory::DEVICE && is_full(bytes) {
        return std::ptr::null_mut();
    }
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

/// The implementation of [`tprof_fake_cuda::Engine::release`]. A pool's block is freed on the null
/// stream.
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
        // SAFETY: this module allocated the block, and it was just removed from the table, so it is
        // freed once.
        unsafe { libc::free(at) };
    }
    true
}

/// The implementation of [`tprof_fake_cuda::Engine::release_all`].
pub extern "C" fn release_all(correlation: u32) {
    let device = crate::chosen();
    release_where(correlation, |of, context| of == device && context == 0);
}

/// Frees all blocks of a context, on behalf of a call.
pub fn release_context(context: usize, correlation: u32) {
    release_where(correlation, |_, of| of == context);
}

fn release_where(correlation: u32, is_due: impl Fn(u32, usize) -> bool) {
    let live = LIVE.lock().unwrap();
    let those = live.iter().filter(|(_, (_, _, device, context))| is_due(*device, *context));
    let all: Vec<usize> = those.map(|(at, _)| *at).collect();
    drop(live);
    for at in all {
        release(at as *mut c_void, correlation);
    }
}

/// Returns the kind of memory at an address, with CUPTI's number for records of copies.
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
