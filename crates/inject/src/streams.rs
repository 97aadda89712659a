//! Streams as CUPTI numbers them, where the hooks record the calls that start work: its records of
//! work have such numbers, and the calls have handles. The agent asks CUPTI, once for each handle.

use crate::block::Thread;
use crate::{agent_link, ring};
use core::sync::atomic::{AtomicU64, Ordering::*};
use tprof_wire::calls::{LEGACY_STREAM, THREADS_STREAM, stream_of};
use tprof_wire::hash::spread;
use tprof_wire::record::ExtKind;

/// Handles that are remembered, and places that are tried for one.
const MOST: usize = 1 << 10;
const PROBES: usize = 4;
/// Handles with a record. A forked child makes no calls of CUDA's.
static SENT: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// The places where a handle may be.
fn places(handle: u64) -> impl Iterator<Item = &'static AtomicU64> {
    let first = (spread(handle) >> (u64::BITS - MOST.ilog2())) as usize;
    (0..PROBES).filter_map(move |probe| SENT.get((first + probe) % MOST))
}

/// A handle as it is remembered: a default stream is the thread's own, since it may be of another device
/// than that of another thread.
fn remembered(thread: &Thread, handle: u64) -> u64 {
    match handle {
        LEGACY_STREAM | THREADS_STREAM => 1 << 63 | u64::from(thread.tid.get()) << 2 | handle,
        handle => handle,
    }
}

/// Work was started in a stream by the function of this number: records how CUPTI numbers it, once.
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
    // Where all places are taken, one gives way: its handle is recorded once more.
    let free = places(key).find(|place| place.load(Relaxed) == 0);
    if let Some(place) = free.or_else(|| places(key).next()) {
        place.store(key, Relaxed);
    }
}

/// A stream was destroyed: its handle may be another's next.
pub fn destroyed(handle: u64) {
    for place in places(handle).filter(|place| place.load(Relaxed) == handle) {
        place.store(0, Relaxed);
    }
}

/// The thread has another device or context: its default streams are others.
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
