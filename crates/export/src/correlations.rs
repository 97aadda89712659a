//! Stores which correlations occur in a file, with one bit for each.
//!
//! A launch and its kernel are in different tables, so an arrow is drawn only after a look-up of
//! the other end. Correlations are nearly consecutive numbers, so the bits of a million launches
//! take some hundred kilobytes.

use rustc_hash::FxHashMap;
use tprof_trace::model::{Kernel, MemoryCopy, ProcessIndex, Synchronization};
use tprof_trace::{TraceFile, TraceRow};

use crate::Window;

const BITS: u64 = 512;

/// A set of correlations of several processes.
#[derive(Debug, Default)]
pub(crate) struct Correlations {
    pages: FxHashMap<(ProcessIndex, u64), [u64; (BITS / 64) as usize]>,
    /// How often a correlation occurs again. For example, all nodes of a launched graph have the
    /// launch's correlation.
    further: FxHashMap<(ProcessIndex, u64), u64>,
}

impl Correlations {
    /// Reads the correlations of waits for devices that touch a window.
    pub fn of_waits(trace: &TraceFile, window: Window) -> Correlations {
        let mut set = Correlations::default();
        set.add::<Synchronization>(trace, window, |row| (row.process, row.correlation));
        set
    }

    /// Reads the correlations of kernels and copies that touch a window.
    pub fn of_work(trace: &TraceFile, window: Window) -> Correlations {
        let mut set = Correlations::default();
        set.add::<Kernel>(trace, window, |row| (row.process, row.correlation));
        set.add::<MemoryCopy>(trace, window, |row| (row.process, row.correlation));
        set
    }

    fn add<R: TraceRow>(
        &mut self,
        trace: &TraceFile,
        window: Window,
        of: impl Fn(&R) -> (ProcessIndex, Option<u64>),
    ) {
        for row in trace.blocks_between::<R>(window.from_ns, window.to_ns).flatten() {
            if let (process, Some(correlation)) = of(&row) {
                self.count_one(process, correlation);
            }
        }
    }

    fn count_one(&mut self, process: ProcessIndex, correlation: u64) {
        if self.holds(process, correlation) {
            *self.further.entry((process, correlation)).or_default() += 1;
        }
        self.insert(process, correlation);
    }

    pub fn insert(&mut self, process: ProcessIndex, correlation: u64) {
        let page = self.pages.entry((process, correlation / BITS)).or_default();
        page[(correlation % BITS / 64) as usize] |= 1 << (correlation % 64);
    }

    /// Returns the number of rows with this correlation.
    pub fn count(&self, process: ProcessIndex, correlation: u64) -> u64 {
        let further = self.further.get(&(process, correlation)).copied().unwrap_or(0);
        u64::from(self.holds(process, correlation)) + further
    }

    pub fn holds(&self, process: ProcessIndex, correlation: u64) -> bool {
        let page = self.pages.get(&(process, correlation / BITS));
        page.is_some_and(|page| {
            page[(correlation % BITS / 64) as usize] >> (correlation % 64) & 1 == 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_correlations_are_found() {
        let mut set = Correlations::default();
        let there = [(0, 0), (0, 63), (0, 64), (0, 511), (0, 512), (1, 64), (0, u64::MAX)];
        there.iter().for_each(|(process, correlation)| set.insert(*process, *correlation));
        assert!(there.iter().all(|(process, correlation)| set.holds(*process, *correlation)));
        (0..3).for_each(|_| set.count_one(0, 64));
        assert_eq!([64, 63, 65].map(|correlation| set.count(0, correlation)), [4, 1, 0]);
        assert!(![(1, 0), (0, 65), (0, 513), (2, 64)].iter().any(|(p, c)| set.holds(*p, *c)));
    }
}
