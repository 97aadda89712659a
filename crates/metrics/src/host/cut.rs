//! Cuts a thread's rows to a window. A row is a sample taken while the thread ran, or a wait: a
//! time without a core.
//!
//! The collector sums short waits in one row. Such a row has only its total and its spread, which
//! is the length of the interval in which the waits lie. So the total is divided evenly over the
//! spread. Longer waits have rows of their own with exact times. If the waits do not all fit into a
//! window, the exact waits keep their time and the summed waits are shortened, since some of them
//! must lie outside of the window.

use tprof_rank::base::apportion::apportion;
use tprof_rank::base::intervals::Interval;
use tprof_trace::model::{Sample, ThreadState};

/// Returns the rows in a window. Together, waits last at most as long as the window, unless exact
/// waits overlap.
pub(super) fn rows_in(rows: &[Sample], window: Interval) -> Vec<Sample> {
    let mut inside: Vec<Sample> = rows.iter().filter_map(|row| row_in(row, window)).collect();
    let is_wait = |row: &&Sample| row.state != ThreadState::Running;
    let (summed, exact): (Vec<&Sample>, Vec<&Sample>) =
        inside.iter().filter(is_wait).partition(|row| row.spread_ns.is_some());
    let total_ns =
        |rows: &[&Sample]| rows.iter().fold(0_u64, |sum, row| sum.saturating_add(row.weight_ns));
    let left_ns = window.length().saturating_sub(total_ns(&exact));
    if total_ns(&summed) > left_ns {
        let weights: Vec<u64> = summed.iter().map(|row| row.weight_ns).collect();
        let summed = inside.iter_mut().filter(|row| is_wait(&&**row) && row.spread_ns.is_some());
        for (row, ns) in summed.zip(apportion(left_ns, weights.into_iter())) {
            row.weight_ns = ns;
        }
        inside.retain(|row| row.weight_ns > 0);
    }
    inside
}

/// Returns the part of a row in a window. Returns `None` if there is none. Also returns `None` if
/// the row is time on a core without a sample: the ledger, which divides the window among what the
/// thread did, takes that time as the rest of the window.
fn row_in(row: &Sample, window: Interval) -> Option<Sample> {
    if row.state == ThreadState::Running {
        let is_in = (window.start..window.end).contains(&row.time_ns);
        return (is_in && row.cpu.is_some()).then_some(*row);
    }
    let weight_ns = wait_ns_in(row, window);
    let inside = extent(row).overlap(window);
    let spread_ns = row.spread_ns.map(|_| inside.length());
    (weight_ns > 0).then_some(Sample { time_ns: inside.start, weight_ns, spread_ns, ..*row })
}

/// Returns how much of the time of a wait lies in a window, ns, but at most the window's length.
/// For adjacent windows that cover the wait, the results add up to its time.
pub(super) fn wait_ns_in(row: &Sample, window: Interval) -> u64 {
    let all = extent(row);
    let inside = all.overlap(window);
    if inside.length() == 0 {
        return 0;
    }
    let before = |end: u64| {
        let share = u128::from(row.weight_ns) * u128::from(end - all.start);
        (share / u128::from(all.length())) as u64
    };
    // The interval of a wait that lasts beyond the largest time is cut off there, so the wait's
    // time may exceed it.
    (before(inside.end) - before(inside.start)).min(inside.length())
}

/// Returns the interval of a wait. If the row sums several waits, it lasts from the first wait's
/// beginning to the last one's end.
pub(super) fn extent(row: &Sample) -> Interval {
    let length_ns = row.spread_ns.unwrap_or(row.weight_ns).max(row.weight_ns);
    Interval::new(row.time_ns, row.time_ns.saturating_add(length_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(time_ns: u64, weight_ns: u64, spread_ns: Option<u64>) -> Sample {
        let state = ThreadState::Lock;
        Sample { time_ns, weight_ns, state, spread_ns, ..Sample::default() }
    }

    #[test]
    fn summed_waits_are_divided_over_their_spread() {
        let row = wait(100, 31, Some(90));
        let parts = [(0, 130), (130, 131), (131, 900)];
        let parts = parts.map(|(start, end)| wait_ns_in(&row, Interval::new(start, end)));
        assert_eq!(parts, [10, 0, 21]);
        assert_eq!(rows_in(&[row], Interval::new(130, 160))[0], wait(130, 10, Some(30)));
    }

    #[test]
    fn a_wait_past_the_end_of_the_clock_gets_at_most_the_window() {
        let row = wait(u64::MAX - 10, u64::MAX, None);
        assert_eq!(wait_ns_in(&row, Interval::new(0, u64::MAX - 4)), 6);
    }

    #[test]
    fn an_exact_wait_keeps_its_time_beside_summed_waits() {
        let rows = [wait(0, 90, None), wait(40, 30, Some(60)), wait(10, 9, Some(90))];
        let inside = rows_in(&rows, Interval::new(0, 100));
        let weights: Vec<u64> = inside.iter().map(|row| row.weight_ns).collect();
        assert_eq!(weights, [90, 7, 3]);
    }
}
