//! Divides the time of short waits without a sample among sampled ones.
//!
//! A thread's stack is sampled when it leaves its processor, but not each time. The collector reads
//! the stacks of long waits while they last, but not those of short waits. If a thread leaves often
//! (two threads that contend for Python's lock do so hundreds of times a second), most short waits
//! have no stack, and those with a stack are a sample of them. The time of all short waits is
//! divided among the sampled causes in proportion, which is an estimate with an error.
//!
//! The length of each wait is known, and waits at one place have similar lengths: two sleeps in a
//! loop differ more from each other than each varies. So the time of waits of one length is divided
//! by the sampled waits of about that length. The sampled waits of all lengths together count as
//! one more wait of that length. So on a busy machine, where few waits of a length are sampled, a
//! place that was never sampled at this length still gets a share.

use rustc_hash::FxHashMap;
use tprof_trace::model::{ProcessIndex, Sample, ThreadIndex, ThreadState};

use super::stretch::Stretch;
use super::unsampled_share::LENGTHS;

/// The collector reads the stacks of waits of at least this length while they last.
const LOOKED_AT_NS: u64 = 25_000_000;
/// The collector adds up waits of less than this length by their place.
const ADDED_NS: u64 = 1_000_000;

/// If fewer waits of a thread than this were sampled, they do not represent its other waits, which
/// then stay without a stack.
const LEAST_SEEN: u64 = 10;
/// The sampled waits of all lengths together count as this many waits of the length in question.
const ALL_COUNT_AS: u64 = 1;
/// The integer weight of a share of 1.
const WHOLE: f64 = (1_u64 << 53) as f64;

/// The short waits of a stretch, by class of length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShortWaits([WaitsOfLength; LENGTHS]);

/// The waits of one class of length.
#[derive(Clone, Copy, Debug, Default)]
struct WaitsOfLength {
    /// Time of the waits, ns.
    ns: u64,
    /// Number of rows.
    count: u64,
}

impl WaitsOfLength {
    fn add(&mut self, other: WaitsOfLength) {
        self.ns = self.ns.saturating_add(other.ns);
        self.count += other.count;
    }
}

impl ShortWaits {
    /// Adds a row if it is a short wait.
    pub fn add(&mut self, row: &Sample) {
        if row.weight_ns < LOOKED_AT_NS {
            let is_added = row.spread_ns.is_some() || row.weight_ns < ADDED_NS;
            let at = if is_added { 0 } else { length(row.weight_ns) };
            self.0[at].add(WaitsOfLength { ns: row.weight_ns, count: 1 });
        }
    }

    fn all(&self) -> WaitsOfLength {
        self.0.iter().fold(WaitsOfLength::default(), |mut all, one| {
            all.add(*one);
            all
        })
    }
}

/// The class of a single wait's length. The last class is for waits of 23 ms and more.
fn length(ns: u64) -> usize {
    let halves = 2.0 * (ns as f64 / ADDED_NS as f64).log2();
    (1 + halves as usize).min(LENGTHS - 1)
}

/// Indices of a thread's stretches with sampled short waits, and of those without a stack.
#[derive(Default)]
struct ThreadWaits {
    seen: Vec<usize>,
    unseen: Vec<usize>,
}

/// Adds the time of a thread's waits without a sample to its stretches with sampled waits. `shorts`
/// has the short waits of each stretch. The sums over a thread do not change.
pub(super) fn add_unsampled_waits(stretches: &mut [Stretch], shorts: &[ShortWaits]) {
    let mut threads: FxHashMap<(ProcessIndex, ThreadIndex), ThreadWaits> = FxHashMap::default();
    for (at, stretch) in stretches.iter().enumerate() {
        if matches!(stretch.state, ThreadState::Running | ThreadState::Runnable) {
            continue;
        }
        let thread = threads.entry((stretch.process, stretch.thread)).or_default();
        if stretch.stack.is_empty() {
            thread.unseen.push(at);
        } else if shorts[at].all().ns > 0 {
            thread.seen.push(at);
        }
    }
    for ThreadWaits { seen, unseen } in threads.into_values() {
        if seen.iter().map(|at| shorts[*at].all().count).sum::<u64>() < LEAST_SEEN {
            continue;
        }
        for of in 0..LENGTHS {
            let mut whole_ns = 0;
            for at in &unseen {
                // A long wait has no stack only if its thread could not be read. Such a wait stays
                // unknown.
                stretches[*at].weight_ns -= shorts[*at].0[of].ns;
                whole_ns += shorts[*at].0[of].ns;
            }
            divide(stretches, &seen, whole_ns, of, shorts);
        }
    }
}

/// Divides the time of waits of a length among stretches with sampled waits, in proportion to
/// these. The cumulative sums are rounded, not the parts, so that no nanosecond is lost.
fn divide(
    stretches: &mut [Stretch],
    seen: &[usize],
    whole_ns: u64,
    length: usize,
    shorts: &[ShortWaits],
) {
    let (mut alike, mut all) = (WaitsOfLength::default(), WaitsOfLength::default());
    for at in seen {
        alike.add(shorts[*at].0[length]);
        all.add(shorts[*at].all());
    }
    if whole_ns == 0 || all.ns == 0 {
        return;
    }
    let count = alike.count + ALL_COUNT_AS;
    let share_of = |at: usize| {
        let of_alike = shorts[at].0[length].ns as f64 / alike.ns.max(1) as f64;
        let of_all = shorts[at].all().ns as f64 / all.ns as f64;
        (alike.count as f64 * of_alike + ALL_COUNT_AS as f64 * of_all) / count as f64
    };
    let weights: Vec<u64> = seen.iter().map(|at| (share_of(*at) * WHOLE) as u64).collect();
    let whole: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let (mut given_ns, mut before) = (0, 0);
    for (&at, &weight) in seen.iter().zip(&weights) {
        before += u128::from(weight);
        let upto = (u128::from(whole_ns) * before / whole.max(1)) as u64;
        stretches[at].weight_ns += upto - given_ns;
        given_ns = upto;
        stretches[at].shared.take(length, whole_ns, weight as f64 / whole as f64, count);
    }
}

#[cfg(test)]
mod tests {
    use super::super::unsampled_share::UnsampledShare;
    use super::*;

    fn stretch(thread: u32, state: ThreadState, stack: &[u32], weight_ns: u64) -> Stretch {
        Stretch {
            process: 0,
            thread,
            state,
            stack: stack.to_vec(),
            id: 0,
            cut: false,
            weight_ns,
            shared: UnsampledShare::default(),
            samples: 1,
            gil_ns: None,
        }
    }

    #[test]
    fn unsampled_waits_are_divided_like_the_sampled_waits_of_their_thread() {
        use ThreadState::{Blocked, Gil, Lock, Runnable, Running, Sleep};
        let mut stretches = [
            stretch(1, Running, &[1], 500),
            stretch(1, Gil, &[1], 30),
            stretch(1, Lock, &[2], 10),
            // A long wait, which the division of short waits ignores.
            stretch(1, Sleep, &[3], 700),
            // 60 of these 461 ns are one long wait without a stack.
            stretch(1, Blocked, &[], 461),
            stretch(1, Runnable, &[], 50),
            // Too few waits of this thread were sampled, so its times do not change.
            stretch(2, Lock, &[2], 10),
            stretch(2, Blocked, &[], 90),
        ];
        let whole: u64 = stretches.iter().map(|s| s.weight_ns).sum();
        let short = |ns, count| {
            let mut short = ShortWaits::default();
            short.0[0] = WaitsOfLength { ns, count };
            short
        };
        let none = ShortWaits::default();
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
        add_unsampled_waits(&mut stretches, &shorts);
        let weights = stretches.clone().map(|s| s.weight_ns);
        assert_eq!(weights, [500, 330, 111, 700, 60, 50, 10, 90]);
        assert_eq!(weights.iter().sum::<u64>(), whole);
        let expected = 401.0_f64.powi(2) * 0.75 * 0.25 / 21.0;
        assert!((stretches[1].shared.variance() - expected).abs() < 1e-6);
        assert_eq!(stretches[3].shared.variance(), 0.0);
        // Both places together certainly have all of the time, so their sum has no variance.
        let mut both = stretches[1].shared;
        both.add(&stretches[2].shared);
        assert_eq!(both.variance(), 0.0);
    }

    #[test]
    fn unsampled_waits_are_divided_like_sampled_waits_of_their_length() {
        use ThreadState::{Blocked, Sleep};
        let ms = |ms: f64| (ms * 1e6) as u64;
        let rows = |lengths: &[(f64, u64)]| {
            let mut short = ShortWaits::default();
            for (length_ms, count) in lengths {
                let row = Sample { weight_ns: ms(*length_ms), ..Sample::default() };
                (0..*count).for_each(|_| short.add(&row));
            }
            short
        };
        // Two of each ten waits of 10 ms were sampled, and six of each ten of 4 ms. Divided by time
        // alone, the first place would get too little.
        let shorts = [rows(&[(10.1, 20)]), rows(&[(4.1, 60)]), rows(&[(10.2, 80), (4.2, 40)])];
        let mut stretches = [
            stretch(1, Sleep, &[1], shorts[0].all().ns),
            stretch(1, Sleep, &[2], shorts[1].all().ns),
            stretch(1, Blocked, &[], shorts[2].all().ns),
        ];
        add_unsampled_waits(&mut stretches, &shorts);
        let (long, short, unseen) = (ms(10.1) * 20, ms(4.1) * 60, [ms(10.2) * 80, ms(4.2) * 40]);
        let of_all = long as f64 / (long + short) as f64;
        let share = [(20.0 + of_all) / 21.0, of_all / 61.0];
        let expected = long as f64 + share[0] * unseen[0] as f64 + share[1] * unseen[1] as f64;
        let weights = stretches.clone().map(|one| one.weight_ns);
        assert!((weights[0] as f64 - expected).abs() < 2.0, "{weights:?}, {expected}");
        assert_eq!(weights[1..], [long + short + unseen[0] + unseen[1] - weights[0], 0]);
        let error = |of: usize, count: f64| {
            unseen[of] as f64 * (share[of] * (1.0 - share[of]) / count).sqrt()
        };
        let variance = error(0, 21.0).powi(2) + error(1, 61.0).powi(2);
        assert!((stretches[0].shared.variance() / variance - 1.0).abs() < 1e-6);
    }
}
