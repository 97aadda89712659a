//! Memory of every kind; all of it is the host's.

use crate::{happened, streams, time};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;
use tprof_fake_cuda::{Happened, Place, memory};

/// Address → kind, bytes, and the device whose it is.
static LIVE: Mutex<BTreeMap<usize, (u32, usize, u32)>> = Mutex::new(BTreeMap::new());

const ALLOCATION: u32 = 1;
const RELEASE: u32 = 2;
/// Device memory is handed out at such multiples.
const ALIGN: usize = 512;

fn place(correlation: u32) -> Place {
    let device = crate::chosen();
    let context = streams::context_of(device);
    Place { device, context, correlation, ..Place::default() }
}

/// See [`tprof_fake_cuda::Engine::allocate`].
pub extern "C" fn allocate(kind: u32, bytes: usize, correlation: u32) -> *mut c_void {
    let mut at = std::ptr::null_mut();
    // SAFETY: a block of the host's.
    if unsafe { libc::posix_memalign(&raw mut at, ALIGN, bytes.max(1)) } != 0 {
        return std::ptr::null_mut();
    }
    LIVE.lock().unwrap().insert(at as usize, (kind, bytes, crate::chosen()));
    let now = time::now();
    let what = Happened::Memory(ALLOCATION, kind, at as u64, bytes as u64);
    happened(&place(correlation), now, now, &what);
    at
}

/// See [`tprof_fake_cuda::Engine::release`].
pub extern "C" fn release(at: *mut c_void, correlation: u32) -> bool {
    let Some((kind, bytes, _)) = LIVE.lock().unwrap().remove(&(at as usize)) else { return false };
    let now = time::now();
    let what = Happened::Memory(RELEASE, kind, at as u64, bytes as u64);
    happened(&place(correlation), now, now, &what);
    // SAFETY: handed out by `allocate`, and taken out of the table above.
    unsafe { libc::free(at) };
    true
}

/// See [`tprof_fake_cuda::Engine::release_all`].
pub extern "C" fn release_all(correlation: u32) {
    let device = crate::chosen();
    let of_device = |(at, (_, _, of)): (&usize, &(u32, usize, u32))| (*of == device).then_some(*at);
    let all: Vec<usize> = LIVE.lock().unwrap().iter().filter_map(of_device).collect();
    for at in all {
        release(at as *mut c_void, correlation);
    }
}

/// What kind of memory an address is in.
pub fn kind_of(at: *const c_void) -> u32 {
    let live = LIVE.lock().unwrap();
    let block = live.range(..=at as usize).next_back();
    block
        .filter(|(start, (_, bytes, _))| (at as usize) < *start + (*bytes).max(1))
        .map_or(memory::PAGEABLE, |(_, (kind, ..))| *kind)
}
