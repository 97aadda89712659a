//! Opens a first perf event, to make those that follow cheap.
//!
//! The first one on a machine takes some 10 ms to open (measured; Linux 6.18): the kernel switches
//! on hooks in its scheduler, and waits until every processor has noticed (`synchronize_rcu` in
//! `account_event`). Events that follow while one is open, and up to a second after the last, take
//! 20 µs.

use super::attr::{Counter, attr_of};
use perf_event_open_sys::bindings::{PERF_COUNT_SW_DUMMY, PERF_TYPE_SOFTWARE};
use std::sync::OnceLock;

/// Open as long as this process is; `None` where the kernel refuses it.
static FIRST: OnceLock<Option<Counter>> = OnceLock::new();

/// Opens an event that counts nothing, on a separate thread, so that the kernel is ready by the
/// time that real counters are opened. If it fails, those take longer.
pub fn open_beside() {
    let named = std::thread::Builder::new().name("tprof-first".to_owned());
    let _ = named.spawn(|| {
        FIRST.get_or_init(|| {
            let mut attr = attr_of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY);
            attr.set_disabled(1);
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
            // The event is of this thread: an event of a processor needs a privilege, and belongs
            // to no task.
            Counter::open(&attr, 0, -1).ok()
        });
    });
}
