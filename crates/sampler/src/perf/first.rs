//! Opens a first perf event when tprof starts, so that the counters of the run open quickly.
//!
//! Opening the first event on a machine takes about 10 ms (with Linux 6.18). The kernel enables
//! hooks in its scheduler and waits until every processor has noticed (`synchronize_rcu` in
//! `account_event`). Opening further events takes 20 µs, as long as an event is open and up to a
//! second longer.

use super::attr::{Counter, attr_of};
use perf_event_open_sys::bindings::{PERF_COUNT_SW_DUMMY, PERF_TYPE_SOFTWARE};
use std::sync::OnceLock;

/// The first event, which stays open as long as this process runs; `None` if the kernel refused it.
static FIRST: OnceLock<Option<Counter>> = OnceLock::new();

/// Opens an event that counts nothing, on a separate thread. If that fails, opening the counters of
/// the run takes longer.
pub fn open_beside() {
    let named = std::thread::Builder::new().name("tprof-first".to_owned());
    let _ = named.spawn(|| {
        FIRST.get_or_init(|| {
            let mut attr = attr_of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY);
            attr.set_disabled(1);
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
            // The event is for this thread only. An event for a whole processor needs a privilege.
            Counter::open(&attr, 0, -1).ok()
        });
    });
}
