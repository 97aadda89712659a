//! CUPTI's numbers of streams, which are needed if the hooks record the calls that start work:
//! CUPTI's records of work have such numbers, and the calls have handles. The agent asks CUPTI,
//! once for each handle.

use crate::block::Thread;
use crate::{agent_link, ring};
use core::sync::atomic::{AtomicU64, Ordering::*};
use tprof_wire::calls::{LEGACY_STREAM, THREADS_STREAM, stream_of};
use tprof_wire::hash::spread;
use tprof_wire::record::ExtKind;

/// Number of handles that are cached.
const MOST: usize = 1 << 10;
const PROBES: usize = 4;
/// Handles whose number was recorded. A forked child makes no CUDA calls.
static SENT: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// The entries in which a handle may be.
fn places(handle: u64) -> impl Iterator<Item = &'static AtomicU64> {
    let first = (spread(handle) >> (u64::BITS - MOST.ilog2())) as usize;
    (0..PROBES).filter_map(move |probe| SENT.get((first + probe) % MOST))
}

/// The key under which a handle is cached. For a default stream it contains the thread, since
/// another thread's default stream may be on another device.
fn remembered(thread: &Thread, handle: u64) -> u64 {
    match handle {
        LEGACY_STREAM | THREADS_STREAM => 1 << 63 | u64::from(thread.tid.get()) << 2 | handle,
        handle => handle,
    }
}

/// Called when a function with this number started work in a stream. Records CUPTI's number of the
/// stream, if it was not recorded before.
#[inline]
pub fn used(thread: &Thread, number: u32, handle: u64, clock: u64) {
    let Some(ask) = agent_link::numbers_streams() else { return };
    let handle = stream_of(number, handle);
    let key = remembered(thread, handle);
    if !places(key).any(|place| place.load(Relaxed) == key) {
        send(thread, ask, (handle, key), clock);
    }
}

#[cold]
#[inline(never)]
fn send(thread: &Thread, ask: extern "C" fn(u64) -> u64, (handle, key): (u64, u64), clock: u64) {
    if !ring::quick(thread, ExtKind::HostStream, 0, clock, &[handle, ask(handle)]) {
        return;
    }
    // If all entries are taken, one is replaced, and its handle will be recorded again.
    let free = places(key).find(|place| place.load(Relaxed) == 0);
    if let Some(place) = free.or_else(|| places(key).next()) {
        place.store(key, Relaxed);
    }
}

/// Called when a stream was destroyed: another one may get its handle next.
pub fn destroyed(handle: u64) {
    for place in places(handle).filter(|place| place.load(Relaxed) == handle) {
        place.store(0, Relaxed);
    }
}

/// Called when the thread has changed its device or context, so that its default streams are
/// others.
pub fn moved(thread: &Thread) {
    for handle in [LEGACY_STREAM, THREADS_STREAM] {
        destroyed(remembered(thread, handle));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_few_places_that_end_with_its_stream() {
        let handle = 0x7f00_1234_5670;
        let place = places(handle).next().unwrap();
        place.store(handle, Relaxed);
        assert_eq!(places(handle).filter(|place| place.load(Relaxed) == handle).count(), 1);
        destroyed(handle);
        assert!(places(handle).all(|place| place.load(Relaxed) != handle));
    }
}
