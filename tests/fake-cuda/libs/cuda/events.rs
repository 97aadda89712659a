//! Implements events: marks in a stream for which other streams and the host can wait.

use crate::{happened, streams, time};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, Condvar, Mutex};
use tprof_fake_cuda::{Happened, Place};

struct Event {
    id: u32,
    /// Number of requested marks, number of completed marks, time of the last one.
    state: Mutex<(u64, u64, u64)>,
    made: Condvar,
}

const EVENT_WAIT: u32 = 1;

fn of(handle: *mut c_void) -> &'static Event {
    // SAFETY: `create` made the handle, and events are never freed.
    unsafe { &*handle.cast::<Event>() }
}

/// The implementation of [`tprof_fake_cuda::Engine::event`].
pub extern "C" fn create() -> *mut c_void {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let id = NEXT.fetch_add(1, Relaxed);
    crate::handle(Arc::new(Event { id, state: Mutex::default(), made: Condvar::new() }))
}

/// Marks the event, on a stream's thread.
pub fn mark(handle: *mut c_void) {
    let event = of(handle);
    let mut state = event.state.lock().unwrap();
    state.1 += 1;
    state.2 = time::now();
    event.made.notify_all();
}

/// Notes that a mark was put on a stream.
pub fn asked(handle: *mut c_void) {
    of(handle).state.lock().unwrap().0 += 1;
}

/// Returns the number of the last requested mark, or 0 if there is none.
pub fn due(handle: *mut c_void) -> u64 {
    of(handle).state.lock().unwrap().0
}

/// Waits for a mark.
pub fn pass(handle: *mut c_void, due: u64) {
    let event = of(handle);
    let mut state = event.state.lock().unwrap();
    while state.1 < due {
        state = event.made.wait(state).unwrap();
    }
}

/// The implementation of [`tprof_fake_cuda::Engine::event_wait`].
pub extern "C" fn wait(handle: *mut c_void, correlation: u32) {
    let start = time::now();
    pass(handle, due(handle));
    let device = crate::chosen();
    let context = streams::context_of(device);
    let place = Place { device, context, stream: u32::MAX, correlation, ..Place::default() };
    happened(&place, start, time::now(), &Happened::Wait(EVENT_WAIT, of(handle).id));
}

/// The implementation of [`tprof_fake_cuda::Engine::event_time`].
pub extern "C" fn time_of(handle: *mut c_void) -> u64 {
    let state = of(handle).state.lock().unwrap();
    if state.1 < state.0 { 0 } else { state.2 }
}
