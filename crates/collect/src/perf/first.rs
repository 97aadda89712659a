//! Opens a first perf event, so that later ones open quickly.
//!
//! The first event on a machine takes about 10 ms to open (measured with Linux 6.18), because the
//! kernel enables hooks in its scheduler and waits until every processor has noticed
//! (`synchronize_rcu` in `account_event`). Later events take 20 µs, as long as one is open and up
//! to a second after that.

use super::attr::{Counter, attr_of};
use perf_event_open_sys::bindings::{PERF_COUNT_SW_DUMMY, PERF_TYPE_SOFTWARE};
use std::sync::OnceLock;

/// The first event. It stays open as long as this process runs; `None` if the kernel refused it.
static FIRST: OnceLock<Option<Counter>> = OnceLock::new();

/// Opens an event that counts nothing, on a separate thread, so that the kernel is ready when real
/// counters are opened. If that fails, opening those takes longer.
pub fn open_beside() {
    let named = std::thread::Builder::new().name("tprof-first".to_owned());
    let _ = named.spawn(|| {
        FIRST.get_or_init(|| {
            let mut attr = attr_of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY);
            attr.set_disabled(1);
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
            // The event belongs to this thread, since an event of a whole processor needs a
            // privilege.
            Counter::open(&attr, 0, -1).ok()
        });
    });
}
