//! Short waits without a sample.
//!
//! A thread's stack is sampled as it leaves its processor, but not each time; long
//! waits are read while they last, short ones are not. Of a thread that
//! leaves often (two that contend for Python's lock do so hundreds of times a
//! second) most short waits are without a stack, and those with one are a sample of
//! them. So that time gets their causes, in proportion: an estimate, with its error.

use rustc_hash::FxHashMap;
use tprof_trace::model::{ProcessIndex, ThreadIndex, ThreadState};

use super::stretch::Stretch;

/// The collector reads longer waits while they last.
const LOOKED_AT_NS: u64 = 25_000_000;

/// Fewer waits do not represent the others.
const LEAST_SEEN: u64 = 10;

/// Waits that are no longer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Short {
    /// Their time.
    pub ns: u64,
    /// How many rows.
    pub count: u64,
}

impl Short {
    /// Adds a row, if it is one.
    pub fn add(&mut self, weight_ns: u64) {
        if weight_ns < LOOKED_AT_NS {
            self.ns = self.ns.saturating_add(weight_ns);
            self.count += 1;
        }
    }
}

/// A thread's sampled short waits, and time of those without a sample.
#[derive(Default)]
struct ThreadWaits {
    seen: Vec<usize>,
    seen_ns: u64,
    count: u64,
    unseen: Vec<usize>,
}

/// Gives the time of waits without a sample to sampled ones of the same thread. `shorts` has
/// of each stretch how much of it is short. Sums of a thread stay as they are.
pub(super) fn take_over(stretches: &mut [Stretch], shorts: &[Short]) {
    let mut threads: FxHashMap<(ProcessIndex, ThreadIndex), ThreadWaits> = FxHashMap::default();
    for (at, stretch) in stretches.iter().enumerate() {
        if matches!(stretch.state, ThreadState::Running | ThreadState::Runnable) {
            continue;
        }
        let thread = threads.entry((stretch.process, stretch.thread)).or_default();
        if stretch.stack.is_empty() {
            thread.unseen.push(at);
        } else if shorts[at].ns > 0 {
            thread.seen.push(at);
            thread.seen_ns += shorts[at].ns;
            thread.count += shorts[at].count;
        }
    }
    for thread in threads.into_values() {
        if thread.count < LEAST_SEEN {
            continue;
        }
        let mut whole_ns = 0;
        for at in thread.unseen {
            // A long one without a stack, of a thread that could not be read, stays unknown.
            stretches[at].weight_ns -= shorts[at].ns;
            whole_ns += shorts[at].ns;
        }
        // The last one gets what is left, so that no nanosecond is lost.
        let (mut left_ns, mut before_ns) = (whole_ns, 0);
        for at in thread.seen {
            before_ns += shorts[at].ns;
            let upto = u128::from(whole_ns) * u128::from(before_ns) / u128::from(thread.seen_ns);
            let part_ns = upto as u64 - (whole_ns - left_ns);
            left_ns -= part_ns;
            let share = shorts[at].ns as f64 / thread.seen_ns as f64;
            let spread = share * (1.0 - share) / thread.count as f64;
            stretches[at].weight_ns += part_ns;
            stretches[at].variance = (whole_ns as f64).powi(2) * spread;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(thread: u32, state: ThreadState, stack: &[u32], weight_ns: u64) -> Stretch {
        Stretch {
            process: 0,
            thread,
            state,
            stack: stack.to_vec(),
            id: 0,
            inlined: 0,
            cut: false,
            weight_ns,
            variance: 0.0,
            samples: 1,
            gil_ns: None,
        }
    }

    #[test]
    fn unsampled_waits_count_as_the_sampled_ones_of_their_thread() {
        use ThreadState::{Blocked, Gil, Lock, Runnable, Running, Sleep};
        let mut stretches = [
            stretch(1, Running, &[1], 500),
            stretch(1, Gil, &[1], 30),
            stretch(1, Lock, &[2], 10),
            // Long ones are no evidence for short ones.
            stretch(1, Sleep, &[3], 700),
            // Of this, 60 are one long wait.
            stretch(1, Blocked, &[], 461),
            stretch(1, Runnable, &[], 50),
            // Of this thread too few were seen.
            stretch(2, Lock, &[2], 10),
            stretch(2, Blocked, &[], 90),
        ];
        let whole: u64 = stretches.iter().map(|s| s.weight_ns).sum();
        let short = |ns, count| Short { ns, count };
        let none = Short::default();
        let shorts = [
            none,
            short(30, 15),
            short(10, 5),
            none,
            short(401, 90),
            none,
            short(10, 5),
            short(90, 9),
        ];
        take_over(&mut stretches, &shorts);
        let weights = stretches.clone().map(|s| s.weight_ns);
        assert_eq!(weights, [500, 330, 111, 700, 60, 50, 10, 90]);
        assert_eq!(weights.iter().sum::<u64>(), whole);
        let expected = 401.0_f64.powi(2) * 0.75 * 0.25 / 20.0;
        assert!((stretches[1].variance - expected).abs() < 1e-6);
        assert_eq!(stretches[3].variance, 0.0);
    }
}
