//! Reads the rows of a slice from a large table, and counts them.

use tprof_trace::TraceRow;

use crate::{OpenRank, Window, Written};

/// Returns the rows of a large table that touch the slice, in order of time. Of rows that begin
/// together, the longest come first. Adds their number to `written`.
pub(crate) fn wanted<R: TraceRow>(part: &OpenRank<'_>, written: &mut Written) -> Vec<R> {
    let rows: Vec<R> =
        part.trace.in_order::<R>(part.window.from_ns, part.window.to_ns).flatten().collect();
    written.events += rows.len() as u64;
    written.left_out += part.trace.row_count::<R>().saturating_sub(rows.len() as u64);
    rows
}

impl Window {
    /// Returns the start and end of the part of an interval that lies within the slice.
    pub(crate) fn clip(&self, start_ns: u64, duration_ns: u64) -> (u64, u64) {
        let start = start_ns.max(self.from_ns);
        (start, start_ns.saturating_add(duration_ns).min(self.to_ns).max(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_clipped_to_its_window() {
        let window = Window { from_ns: 10, to_ns: 20 };
        assert_eq!(window.clip(5, 10), (10, 15));
        assert_eq!(window.clip(15, 10), (15, 20));
        assert_eq!(window.clip(0, 100), (10, 20));
        assert_eq!(window.clip(30, 5), (30, 30));
        assert_eq!(Window::ALL.clip(3, 4), (3, 7));
    }
}
