//! Memory of every kind; all of it is the host's.

use crate::{happened, streams, time};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;
use tprof_fake_cuda::{Happened, Place, memory};

/// Address → kind and bytes.
static LIVE: Mutex<BTreeMap<usize, (u32, usize)>> = Mutex::new(BTreeMap::new());

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
    LIVE.lock().unwrap().insert(at as usize, (kind, bytes));
    let now = time::now();
    let what = Happened::Memory(ALLOCATION, kind, at as u64, bytes as u64);
    happened(&place(correlation), now, now, &what);
    at
}

/// See [`tprof_fake_cuda::Engine::release`].
pub extern "C" fn release(at: *mut c_void, correlation: u32) -> bool {
    let Some((kind, bytes)) = LIVE.lock().unwrap().remove(&(at as usize)) else { return false };
    let now = time::now();
    let what = Happened::Memory(RELEASE, kind, at as u64, bytes as u64);
    happened(&place(correlation), now, now, &what);
    // SAFETY: handed out by `allocate`, and taken out of the table above.
    unsafe { libc::free(at) };
    true
}

/// What kind of memory an address is in.
pub fn kind_of(at: *const c_void) -> u32 {
    let live = LIVE.lock().unwrap();
    let block = live.range(..=at as usize).next_back();
    block
        .filter(|(start, (_, bytes))| (at as usize) < *start + (*bytes).max(1))
        .map_or(memory::PAGEABLE, |(_, (kind, _))| *kind)
}
