//! A thread's rows in a window of its time.
//!
//! Short waits were added up before they were written: their place is known within their spread,
//! over which they are divided evenly. Longer waits are exact and keep their time: if a window has
//! no room for both, those that were added up lie elsewhere.

use tprof_trace::model::{Sample, ThreadState};

use crate::base::apportion::apportion;
use crate::base::intervals::Interval;

/// The rows in a window. Rows off a core take no longer than the window, unless they overlap.
pub(super) fn rows_in(rows: &[Sample], window: Interval) -> Vec<Sample> {
    let mut inside: Vec<Sample> = rows.iter().filter_map(|row| row_in(row, window)).collect();
    let is_off = |row: &&Sample| row.state != ThreadState::Running;
    let (added, exact): (Vec<&Sample>, Vec<&Sample>) =
        inside.iter().filter(is_off).partition(|row| row.spread_ns.is_some());
    let sum =
        |rows: &[&Sample]| rows.iter().fold(0_u64, |sum, row| sum.saturating_add(row.weight_ns));
    let left_ns = window.length().saturating_sub(sum(&exact));
    if sum(&added) > left_ns {
        let weights: Vec<u64> = added.iter().map(|row| row.weight_ns).collect();
        let added = inside.iter_mut().filter(|row| is_off(&&**row) && row.spread_ns.is_some());
        for (row, ns) in added.zip(apportion(left_ns, weights.into_iter())) {
            row.weight_ns = ns;
        }
        inside.retain(|row| row.weight_ns > 0);
    }
    inside
}

/// The part of a row in a window; `None` if there is none, or if it is time on a core that no
/// sample stands for: that is in the rest of the window.
fn row_in(row: &Sample, window: Interval) -> Option<Sample> {
    if row.state == ThreadState::Running {
        let is_in = (window.start..window.end).contains(&row.time_ns);
        return (is_in && row.cpu.is_some()).then_some(*row);
    }
    let weight_ns = off_in(row, window);
    let inside = extent(row).overlap(window);
    let spread_ns = row.spread_ns.map(|_| inside.length());
    (weight_ns > 0).then_some(Sample { time_ns: inside.start, weight_ns, spread_ns, ..*row })
}

/// The time of a row off a core in a window, ns, and no more than the window lasts. Windows that
/// touch share out all of it.
pub(super) fn off_in(row: &Sample, window: Interval) -> u64 {
    let all = extent(row);
    let inside = all.overlap(window);
    if inside.length() == 0 {
        return 0;
    }
    let upto = |end: u64| {
        let share = u128::from(row.weight_ns) * u128::from(end - all.start);
        (share / u128::from(all.length())) as u64
    };
    // A wait that lasts beyond the end of the clock has more time than room.
    (upto(inside.end) - upto(inside.start)).min(inside.length())
}

/// The time from a row's beginning to its end; for several waits that were added up, to the end of
/// the last.
pub(super) fn extent(row: &Sample) -> Interval {
    let within_ns = row.spread_ns.unwrap_or(row.weight_ns).max(row.weight_ns);
    Interval::new(row.time_ns, row.time_ns.saturating_add(within_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(time_ns: u64, weight_ns: u64, spread_ns: Option<u64>) -> Sample {
        let state = ThreadState::Lock;
        Sample { time_ns, weight_ns, state, spread_ns, ..Sample::default() }
    }

    #[test]
    fn waits_that_were_added_up_are_divided_over_their_spread() {
        let row = wait(100, 31, Some(90));
        let parts = [(0, 130), (130, 131), (131, 900)];
        let parts = parts.map(|(start, end)| off_in(&row, Interval::new(start, end)));
        assert_eq!(parts, [10, 0, 21]);
        assert_eq!(rows_in(&[row], Interval::new(130, 160))[0], wait(130, 10, Some(30)));
    }

    #[test]
    fn a_wait_beyond_the_end_of_the_clock_has_what_there_is_of_a_window() {
        let row = wait(u64::MAX - 10, u64::MAX, None);
        assert_eq!(off_in(&row, Interval::new(0, u64::MAX - 4)), 6);
    }

    #[test]
    fn an_exact_wait_keeps_its_time_beside_those_that_were_added_up() {
        let rows = [wait(0, 90, None), wait(40, 30, Some(60)), wait(10, 9, Some(90))];
        let inside = rows_in(&rows, Interval::new(0, 100));
        let weights: Vec<u64> = inside.iter().map(|row| row.weight_ns).collect();
        assert_eq!(weights, [90, 7, 3]);
    }
}
