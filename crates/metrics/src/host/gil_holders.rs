//! Finds the threads of the driving thread's process that held Python's lock.

use rustc_hash::FxHashMap;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{CpuTrace, Part};
use tprof_trace::model::ThreadState;

use super::concurrent::ConcurrentWork;
use super::driver::Driver;
use super::line::Place;

/// The threads that held Python's lock, by line.
#[derive(Clone, Debug, Default)]
pub struct GilHolders {
    /// The lines at which other threads held the lock on a core, with the time in ns, most time
    /// first.
    pub places: Vec<(Place, u64)>,
    /// Whether samples show that the threads held the lock. If not, `places` has the lines at which
    /// other threads ran Python while the driving thread waited for the lock; they can't run Python
    /// without it.
    pub are_sampled: bool,
}

impl GilHolders {
    /// Finds the holders in a rank's samples. `concurrent` is what other threads did while the
    /// driving thread waited for the lock.
    pub(super) fn of(driver: &Driver, trace: &CpuTrace, concurrent: &ConcurrentWork) -> GilHolders {
        let others = trace.stretches.iter().filter(|one| {
            one.process == driver.process
                && one.thread != driver.thread
                && one.state == ThreadState::Running
        });
        let held = others.filter_map(|one| {
            let stack = trace.stack(one.process, one.id);
            let place = Place::of(Part::Unknown, one.state, stack, &trace.names);
            Some((place, one.gil_ns.filter(|ns| *ns > 0)?))
        });
        let places = by_line(held);
        if !places.is_empty() {
            return GilHolders { places, are_sampled: true };
        }
        let ran = concurrent.threads.iter().filter(|other| {
            !other.is_of_other && matches!(other.place.part, Part::Python | Part::Gc)
        });
        let ran = ran.map(|other| (Place { part: Part::Unknown, ..other.place.clone() }, other.ns));
        GilHolders { places: by_line(ran), are_sampled: false }
    }
}

/// Adds up times by line, most time first.
fn by_line(times: impl Iterator<Item = (Place, u64)>) -> Vec<(Place, u64)> {
    let mut sums: FxHashMap<Place, u64> = FxHashMap::default();
    for (place, ns) in times {
        if let Some(place) = place.line_only() {
            *sums.entry(place).or_default() += ns;
        }
    }
    let mut all: Vec<(Place, u64)> = sums.into_iter().collect();
    all.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    all
}
