//! Puts the clocks of a job's ranks onto one, for each block of steps.
//!
//! Ranks of one host have one clock. Of two others, each message bounds the difference: no rank has
//! received it before the other began to send. Messages one way bound it from one side, those of
//! the other way and collectives from the other side. The middle is taken, since transfers take
//! about as long in both directions. Blocks are short, so that drift does not matter within one.

use std::collections::{BTreeMap, BinaryHeap};

use rustc_hash::FxHashMap;

use super::{BLOCK, RankSteps};

/// The time of a rank on a clock that it shares with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedTime {
    /// The clock. Times of two clocks can't be compared.
    pub clock: u32,
    pub ns: i64,
}

/// What is known of two ranks' times: `from`, on the clock of the one, was not after `to`, on that
/// of the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotAfter {
    pub step: u64,
    pub from: (u32, u64),
    pub to: (u32, u64),
}

/// The clocks of all ranks.
#[derive(Debug)]
pub(super) struct SharedClocks {
    /// The clock of each rank: that of its host, or its own.
    of_ranks: Vec<u32>,
    /// For each block of steps and each of these clocks, the shared clock and what to add to its
    /// times, ns.
    lines: BTreeMap<(u64, u32), SharedTime>,
}

/// The least and the largest difference of two clocks, ns.
type Bounds = (i64, i64);
const UNBOUNDED: Bounds = (i64::MIN, i64::MAX);

impl SharedClocks {
    /// Relates the clocks of ranks. `known` is not asked if all have the same.
    pub fn of<'s>(ranks: &[&'s RankSteps], known: impl FnOnce() -> Vec<NotAfter>) -> SharedClocks {
        let mut hosts: FxHashMap<&'s str, u32> = FxHashMap::default();
        let clock = |(rank, steps): (u32, &&'s RankSteps)| match steps.host.is_empty() {
            true => rank,
            false => *hosts.entry(steps.host.as_str()).or_insert(rank),
        };
        let of_ranks = (0..).zip(ranks).map(clock).collect();
        let mut clocks = SharedClocks { of_ranks, lines: BTreeMap::new() };
        if clocks.of_ranks.iter().any(|of| *of != 0) {
            clocks.relate(&known());
        }
        clocks
    }

    fn relate(&mut self, known: &[NotAfter]) {
        let mut blocks: BTreeMap<u64, BTreeMap<(u32, u32), Bounds>> = BTreeMap::new();
        for NotAfter { step, from, to } in known {
            let [a, b] = [from.0, to.0].map(|rank| self.of_ranks[rank as usize]);
            if a == b {
                continue;
            }
            // What must be added to the times of `b`, less what must be added to those of `a`.
            let least_ns = from.1 as i64 - to.1 as i64;
            let pairs = blocks.entry(step / BLOCK).or_default();
            let bounds = pairs.entry((a, b)).or_insert(UNBOUNDED);
            bounds.0 = bounds.0.max(least_ns);
            let bounds = pairs.entry((b, a)).or_insert(UNBOUNDED);
            bounds.1 = bounds.1.min(-least_ns);
        }
        for (block, pairs) in blocks {
            for (clock, time) in spread(&pairs) {
                self.lines.insert((block, clock), time);
            }
        }
    }

    /// Returns the time of a rank in a step on a shared clock.
    pub fn at(&self, rank: u32, step: u64, time_ns: u64) -> SharedTime {
        let clock = self.of_ranks[rank as usize];
        let own = SharedTime { clock, ns: 0 };
        let line = self.lines.get(&(step / BLOCK, clock)).copied().unwrap_or(own);
        SharedTime { clock: line.clock, ns: time_ns as i64 + line.ns }
    }
}

/// Relates clocks by the closest bounds, from the first clock of each set that hangs together.
fn spread(pairs: &BTreeMap<(u32, u32), Bounds>) -> BTreeMap<u32, SharedTime> {
    let mut found: BTreeMap<u32, SharedTime> = BTreeMap::new();
    for (first, _) in pairs.keys() {
        // The clocks that are known and their neighbours, those with the closest bounds first.
        let mut next = BinaryHeap::from([(std::cmp::Reverse(0), *first, 0)]);
        while let Some((_, clock, add_ns)) = next.pop() {
            if found.contains_key(&clock) {
                continue;
            }
            found.insert(clock, SharedTime { clock: *first, ns: add_ns });
            for ((_, other), bounds) in pairs.range((clock, 0)..=(clock, u32::MAX)) {
                let (width_ns, between_ns) = match *bounds {
                    (least, i64::MAX) => (u64::MAX, least),
                    (i64::MIN, most) => (u64::MAX, most),
                    (least, most) => (most.abs_diff(least), least + (most - least) / 2),
                };
                next.push((std::cmp::Reverse(width_ns), *other, add_ns + between_ns));
            }
        }
    }
    found
}
