//! Finds the most memory that processes held within windows of time, such as spans. The memory is
//! either the heap or device memory.
//!
//! The caller passes the levels in order of time. When a window ends, the sweep must know the
//! highest level since the window's start. So it keeps past levels, but drops those that a later
//! level exceeds.

use rustc_hash::FxHashMap;
use tprof_rank::base::reading::Reading;
use tprof_trace::model::ProcessIndex;

/// A window of one process's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldWindow {
    pub process: ProcessIndex,
    pub start_ns: u64,
    pub end_ns: u64,
}

/// The bytes held at a time, the error of that number, and an upper bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldLevel {
    pub bytes: u64,
    pub off: u64,
    pub most: u64,
}

impl HeldLevel {
    /// A level that is known exactly.
    pub fn is(bytes: u64) -> HeldLevel {
        HeldLevel { bytes, off: 0, most: bytes }
    }
}

/// The most memory that was held within a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeldWithin {
    /// The most bytes that were held at any moment of the window.
    pub peak_bytes: Reading<u64>,
    /// The rise from the start of the window to the peak, bytes.
    pub rise_bytes: Reading<u64>,
}

impl HeldWithin {
    /// Returns figures that are unknown for this reason.
    pub fn missing(why: &str) -> HeldWithin {
        HeldWithin { peak_bytes: Reading::missing(why), rise_bytes: Reading::missing(why) }
    }

    /// Joins two results. Each figure is the higher of the two, and unknown if either of them is
    /// unknown.
    pub fn or_higher(self, other: &HeldWithin) -> HeldWithin {
        let higher = |a: Reading<u64>, b: &Reading<u64>| match (a.get(), b.get()) {
            (Some(a_bytes), Some(b_bytes)) if b_bytes > a_bytes => b.clone(),
            (Some(_), None) => b.clone(),
            _ => a,
        };
        HeldWithin {
            peak_bytes: higher(self.peak_bytes, &other.peak_bytes),
            rise_bytes: higher(self.rise_bytes, &other.rise_bytes),
        }
    }

    fn of(start: HeldLevel, (bytes, off): (u64, u64), most: u64) -> HeldWithin {
        let reading = |value: u64, error: u64| match error {
            0 => Reading::Is(value),
            error => Reading::Estimate { value, error },
        };
        let error = most.saturating_sub(bytes).max(off);
        HeldWithin {
            peak_bytes: reading(bytes, error),
            rise_bytes: reading(bytes.saturating_sub(start.bytes), error.max(start.off)),
        }
    }
}

/// Past levels with their times, highest first. A level is removed when a later one is at least as
/// high, so the first level at or after a time is the highest since that time.
#[derive(Default)]
struct SlidingMaximum(Vec<(u64, (u64, u64))>);

impl SlidingMaximum {
    /// Adds a level, and a value that is returned together with it.
    fn push(&mut self, time_ns: u64, level: u64, with: u64) {
        while self.0.last().is_some_and(|(_, last)| last.0 <= level) {
            self.0.pop();
        }
        self.0.push((time_ns, (level, with)));
    }

    fn since(&self, time_ns: u64) -> (u64, u64) {
        let at = self.0.partition_point(|(of_ns, _)| *of_ns < time_ns);
        self.0.get(at).map_or((0, 0), |(_, level)| *level)
    }
}

/// The windows of one process, and its levels so far.
#[derive(Default)]
struct WindowsOfProcess {
    /// Indices of the windows that have not started yet, the latest start first. [`Self::ends`] has
    /// the windows that have not ended yet, the latest end first.
    starts: Vec<u32>,
    ends: Vec<u32>,
    bytes: SlidingMaximum,
    most: SlidingMaximum,
    now: HeldLevel,
}

/// Computes the most memory that is held in each window, from levels in order of time.
pub(crate) struct HeldSweep<'w> {
    windows: &'w [HeldWindow],
    of: FxHashMap<ProcessIndex, WindowsOfProcess>,
    at_start: Vec<HeldLevel>,
    found: Vec<Option<HeldWithin>>,
}

impl<'w> HeldSweep<'w> {
    pub fn of(windows: &'w [HeldWindow]) -> HeldSweep<'w> {
        let mut of: FxHashMap<ProcessIndex, WindowsOfProcess> = FxHashMap::default();
        for (window, at) in windows.iter().zip(0_u32..) {
            let of = of.entry(window.process).or_default();
            of.starts.push(at);
            of.ends.push(at);
        }
        for of in of.values_mut() {
            of.starts.sort_by_key(|at| std::cmp::Reverse(windows[*at as usize].start_ns));
            of.ends.sort_by_key(|at| std::cmp::Reverse(windows[*at as usize].end_ns));
        }
        let at_start = vec![HeldLevel::default(); windows.len()];
        HeldSweep { windows, of, at_start, found: vec![None; windows.len()] }
    }

    /// Whether any window belongs to a process.
    pub fn is_of(&self, process: ProcessIndex) -> bool {
        self.of.contains_key(&process)
    }

    /// Sets the level of a process from this time on; the times of one process must not decrease.
    pub fn level(&mut self, process: ProcessIndex, time_ns: u64, level: HeldLevel) {
        let Some(of) = self.of.get_mut(&process) else { return };
        let windows = self.windows;
        while let Some(at) = of.starts.pop_if(|at| windows[*at as usize].start_ns <= time_ns) {
            self.at_start[at as usize] = of.now;
            let start_ns = windows[at as usize].start_ns;
            of.bytes.push(start_ns, of.now.bytes, of.now.off);
            of.most.push(start_ns, of.now.most, 0);
        }
        while let Some(at) = of.ends.pop_if(|at| windows[*at as usize].end_ns < time_ns) {
            let start_ns = windows[at as usize].start_ns;
            let (bytes, most) = (of.bytes.since(start_ns), of.most.since(start_ns).0);
            self.found[at as usize] = Some(HeldWithin::of(self.at_start[at as usize], bytes, most));
        }
        of.bytes.push(time_ns, level.bytes, level.off);
        of.most.push(time_ns, level.most, 0);
        of.now = level;
        if of.starts.len() == of.ends.len() {
            // If no window is open, earlier levels are not needed: a window that starts later
            // begins with the last level.
            of.bytes.0.drain(..of.bytes.0.len() - 1);
            of.most.0.drain(..of.most.0.len() - 1);
        }
    }

    /// Ends the sweep after the last level of each process, and returns the result of each window.
    pub fn finish(mut self) -> Vec<Option<HeldWithin>> {
        let last: Vec<(ProcessIndex, HeldLevel)> =
            self.of.iter().map(|(process, of)| (*process, of.now)).collect();
        for (process, now) in last {
            self.level(process, u64::MAX, now);
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start_ns: u64, end_ns: u64) -> HeldWindow {
        HeldWindow { process: 0, start_ns, end_ns }
    }

    #[test]
    fn each_window_has_the_most_from_its_start_to_its_end() {
        let windows =
            [window(0, 100), window(15, 16), window(15, 25), window(26, 34), window(40, 90)];
        let mut sweep = HeldSweep::of(&windows);
        for (time_ns, bytes) in [(10, 5), (20, 9), (25, 3), (30, 4), (35, 7), (50, 1), (60, 2)] {
            sweep.level(0, time_ns, HeldLevel::is(bytes));
        }
        let found: Vec<_> = (sweep.finish().into_iter().flatten())
            .map(|held| (held.peak_bytes.get().unwrap(), held.rise_bytes.get().unwrap()))
            .collect();
        assert_eq!(found, [(9, 9), (5, 0), (9, 4), (4, 1), (7, 0)]);
    }

    #[test]
    fn a_window_ignores_other_processes() {
        let windows = [window(0, 10), HeldWindow { process: 7, ..window(0, 10) }, window(20, 30)];
        let mut sweep = HeldSweep::of(&windows);
        sweep.level(7, 1, HeldLevel { bytes: 4, off: 1, most: 6 });
        sweep.level(0, 5, HeldLevel::is(3));
        let found: Vec<HeldWithin> = sweep.finish().into_iter().flatten().collect();
        assert_eq!(found[0].peak_bytes, Reading::Is(3));
        assert_eq!(found[1].peak_bytes, Reading::Estimate { value: 4, error: 2 });
        assert_eq!(
            (&found[2].peak_bytes, &found[2].rise_bytes),
            (&Reading::Is(3), &Reading::Is(0))
        );
    }
}
