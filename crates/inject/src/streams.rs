//! Records CUPTI's numbers of streams, if the hooks record the calls that start work. Then CUPTI's
//! records of work contain numbers of streams, but the hooks' records contain handles. The agent
//! asks CUPTI for the number, once for each handle.

use crate::block::Thread;
use crate::{agent_link, ring};
use tprof_wire::calls::{LEGACY_STREAM, THREADS_STREAM, stream_of};
use tprof_wire::hash::spread;
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicU64, Ordering::*};

/// Number of handles that are cached.
const MOST: usize = 1 << 10;
const PROBES: usize = 4;
/// Handles whose numbers were recorded. A forked child makes no CUDA calls, so it needs none.
static SENT: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// The entries that a handle may occupy.
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

/// Called when the function with this number has started work in a stream. Records CUPTI's number
/// of the stream, unless it was recorded before.
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
    // If all entries are used, one is replaced, so the number of its handle will be recorded again.
    let free = places(key).find(|place| place.load(Relaxed) == 0);
    if let Some(place) = free.or_else(|| places(key).next()) {
        place.store(key, Relaxed);
    }
}

/// Forgets a handle. Called when its stream was destroyed, since another stream may get the same
/// handle next.
pub fn destroyed(handle: u64) {
    for place in places(handle).filter(|place| place.load(Relaxed) == handle) {
        place.store(0, Relaxed);
    }
}

/// Forgets this thread's default streams. Called when the thread has changed its device or context,
/// which has other default streams.
pub fn moved(thread: &Thread) {
    for handle in [LEGACY_STREAM, THREADS_STREAM] {
        destroyed(remembered(thread, handle));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_forgotten_when_its_stream_is_destroyed() {
        let handle = 0x7f00_1234_5670;
        let place = places(handle).next().unwrap();
        place.store(handle, Relaxed);
        assert_eq!(places(handle).filter(|place| place.load(Relaxed) == handle).count(), 1);
        destroyed(handle);
        assert!(places(handle).all(|place| place.load(Relaxed) != handle));
    }
}
