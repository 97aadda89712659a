//! Which correlations occur, a bit for each.
//!
//! A launch and its kernel lie in different tables; an arrow needs both. Numbers
//! are nearly dense, so that a million launches take some hundred kilobytes.

use rustc_hash::FxHashMap;
use tprof_trace::model::{Kernel, MemoryCopy, ProcessIndex, Synchronization};
use tprof_trace::{TraceFile, TraceRow};

use crate::Window;

const BITS: u64 = 512;

/// A set of correlations of several processes.
#[derive(Debug, Default)]
pub(crate) struct Correlations {
    pages: FxHashMap<(ProcessIndex, u64), [u64; (BITS / 64) as usize]>,
}

impl Correlations {
    /// Those of waits for devices that touch a window.
    pub fn of_waits(trace: &TraceFile, window: Window) -> Correlations {
        let mut set = Correlations::default();
        set.add::<Synchronization>(trace, window, |row| (row.process, row.correlation));
        set
    }

    /// Those of kernels and copies that touch a window.
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
                self.insert(process, correlation);
            }
        }
    }

    pub fn insert(&mut self, process: ProcessIndex, correlation: u64) {
        let page = self.pages.entry((process, correlation / BITS)).or_default();
        page[(correlation % BITS / 64) as usize] |= 1 << (correlation % 64);
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
    fn what_was_put_in_is_there() {
        let mut set = Correlations::default();
        let there = [(0, 0), (0, 63), (0, 64), (0, 511), (0, 512), (1, 64), (0, u64::MAX)];
        there.iter().for_each(|(process, correlation)| set.insert(*process, *correlation));
        assert!(there.iter().all(|(process, correlation)| set.holds(*process, *correlation)));
        assert!(![(1, 0), (0, 65), (0, 513), (2, 64)].iter().any(|(p, c)| set.holds(*p, *c)));
    }
}
