//! Which threads of the driving thread's process held Python's lock.

use rustc_hash::FxHashMap;
use tprof_trace::model::ThreadState;

use super::driver::Driver;
use super::line::Place;
use crate::rank::samples::{CpuTrace, Part, Stretch};

/// The lines at which other threads held the lock on a core, most time first.
pub(super) fn gil_holders(driver: &Driver, trace: &CpuTrace) -> Vec<(Place, u64)> {
    let mut holders: FxHashMap<Place, u64> = FxHashMap::default();
    let others = trace.stretches.iter().filter(|one| {
        one.process == driver.process
            && one.thread != driver.thread
            && one.state == ThreadState::Running
    });
    for stretch in others {
        let held_ns = stretch.gil_ns.unwrap_or(0);
        if let Some(place) = place(stretch, trace).filter(|_| held_ns > 0) {
            *holders.entry(place).or_default() += held_ns;
        }
    }
    let mut all: Vec<(Place, u64)> = holders.into_iter().collect();
    all.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    all
}

/// Where a stretch is, apart from what it calls there; `None` without a line of Python or own
/// code.
fn place(stretch: &Stretch, trace: &CpuTrace) -> Option<Place> {
    let stack = trace.stack(stretch.process, stretch.id);
    Place::of(Part::Unknown, stretch.state, stack, &trace.names).line_alone()
}
