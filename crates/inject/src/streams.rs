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
    use crate::testing::Attached;

    #[test]
    fn a_handle_is_forgotten_when_its_stream_is_destroyed() {
        let _process = Attached::new();
        let handle = 0x7f00_1234_5670;
        let place = places(handle).next().unwrap();
        place.store(handle, Relaxed);
        assert_eq!(places(handle).filter(|place| place.load(Relaxed) == handle).count(), 1);
        destroyed(handle);
        assert!(places(handle).all(|place| place.load(Relaxed) != handle));
    }

    extern "C" fn number_of(handle: u64) -> u64 {
        handle + 1000
    }

    fn numbered() -> Attached {
        let process = Attached::new();
        SENT.iter().for_each(|place| place.store(0, Relaxed));
        agent_link::set_numbers_streams(Some(number_of));
        process
    }

    fn sent(process: &Attached) -> Vec<Vec<u64>> {
        let all = process.of_kind(process.thread(), ExtKind::HostStream);
        all.iter().map(|record| record.payload().to_vec()).collect()
    }

    #[test]
    fn a_streams_number_is_recorded_at_its_first_work_and_after_it_was_destroyed() {
        let process = numbered();
        let thread = process.thread();
        for _ in 0..3 {
            used(thread, 0, 0x7000, 5);
        }
        assert_eq!(sent(&process), [[0x7000, 0x7000 + 1000]]);
        destroyed(0x7000);
        used(thread, 0, 0x7000, 6);
        assert_eq!(sent(&process).len(), 2);
        agent_link::set_numbers_streams(None);
        used(thread, 0, 0x8000, 7);
        assert_eq!(sent(&process).len(), 2, "nobody asks for numbers");
    }

    #[test]
    fn a_default_stream_is_another_after_its_thread_has_moved() {
        let process = numbered();
        let thread = process.thread();
        used(thread, 0, THREADS_STREAM, 5);
        used(thread, 0, THREADS_STREAM, 5);
        assert_eq!(sent(&process).len(), 1);
        moved(thread);
        used(thread, 0, THREADS_STREAM, 5);
        assert_eq!(sent(&process).len(), 2);
        agent_link::set_numbers_streams(None);
    }

    #[test]
    fn a_default_stream_of_another_thread_has_a_number_of_its_own() {
        let process = numbered();
        let own = remembered(process.thread(), LEGACY_STREAM);
        let other =
            std::thread::spawn(|| remembered(crate::gate::recording().unwrap(), LEGACY_STREAM));
        assert_ne!(other.join().unwrap(), own);
        assert_eq!(remembered(process.thread(), 0x7000), 0x7000);
        agent_link::set_numbers_streams(None);
    }

    #[test]
    fn a_number_that_found_no_room_is_recorded_later() {
        let process = numbered();
        let thread = process.thread();
        process.set_free(0, 0);
        while ring::quick(thread, ExtKind::HostStream, 0, 0, &[0; 2]) {}
        used(thread, 0, 0x9000, 5);
        process.set_free(0, 1);
        used(thread, 0, 0x9000, 6);
        assert_eq!(sent(&process).last().unwrap()[..], [0x9000, 0x9000 + 1000]);
        agent_link::set_numbers_streams(None);
    }
}
