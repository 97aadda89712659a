//! Measures how long the thread that drives a rank was ready to run in some times, but had no core.

use tprof_rank::base::intervals::Cover;
use tprof_rank::{RankTrace, Step};
use tprof_trace::model::{Sample, ThreadState};

use super::cut::extent;
use super::driver::Driver;

/// Returns the share of some times in which the thread that drives a rank was ready to run, but had
/// no core, from 0 to 1; `None` if it wasn't sampled in these times.
pub fn no_core_share(rank: &RankTrace<'_>, steps: &[Step], times: &Cover) -> Option<f64> {
    let driver = Driver::of(rank, &rank.cpu, steps)?;
    let of_driver = |row: &Sample| (row.process, row.thread) == (driver.process, driver.thread);
    let rows = rank.file.blocks::<Sample>().flatten().filter(of_driver);
    let (mut was_sampled, mut ready_ns) = (false, 0.0);
    for row in rows {
        let of_row = extent(&row);
        was_sampled |= times.touches(of_row);
        if row.state == ThreadState::Runnable {
            let inside = times.length_within(of_row) as f64 / of_row.length().max(1) as f64;
            ready_ns += row.weight_ns as f64 * inside;
        }
    }
    was_sampled.then(|| (ready_ns / times.length().max(1) as f64).min(1.0))
}
