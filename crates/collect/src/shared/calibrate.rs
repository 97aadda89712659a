//! What a hook costs on this machine, measured by doing its work here: reading the clock,
//! packing a record, storing it; or moving counters. Twice: with all of it in the nearest cache,
//! which is the least that a hook can cost, and with none of it there, as after other work.

use crate::os::sys;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::*};
use tprof_wire::record::{self, Kind};

/// Cost of a hook, beyond the real function.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// A recorded event, ns.
    pub recorded_ns: f64,
    /// A counted event, ns.
    pub counted_ns: f64,
    /// A record of several slots, as NVTX's ranges, CUDA calls and CUPTI's records are, ns.
    pub noted_ns: f64,
}

const ROUNDS: u64 = 4096;
/// Events in a row that find their code and data in no near cache: a thread comes to its
/// hooks a few at a time.
const COLD_ROUNDS: u64 = 8;
/// Bytes that are touched in between: more than the second-level cache of most processors.
const COLD_BYTES: usize = 2 << 20;
const COLD_TRIES: usize = 16;

/// The work of hooks.
struct Hooks {
    is_tsc: bool,
    ring: Vec<AtomicU64>,
    counters: [AtomicU64; 2],
    live: AtomicI64,
    /// Which addresses have recorded blocks.
    filter: Vec<u8>,
}

impl Hooks {
    fn new(is_tsc: bool) -> Hooks {
        Hooks {
            is_tsc,
            ring: (0..1024).map(|_| AtomicU64::new(0)).collect(),
            counters: [AtomicU64::new(0), AtomicU64::new(0)],
            live: AtomicI64::new(0),
            filter: vec![0; 1 << 16],
        }
    }

    fn clock(&self) -> u64 {
        if self.is_tsc { sys::ticks() } else { sys::monotonic_ns() }
    }

    #[inline(never)]
    fn recorded(&self, rounds: u64) {
        for round in 0..rounds {
            let (a, b) =
                record::heap(Kind::Alloc, black_box(round << 4), black_box(64), 0, self.clock());
            let at = (round as usize * 2) & 1022;
            self.ring[at + 1].store(b, Relaxed);
            self.ring[at].store(a, Release);
        }
    }

    #[inline(never)]
    fn counted(&self, rounds: u64) {
        for round in 0..rounds {
            let [calls, bytes] = &self.counters;
            calls.store(calls.load(Relaxed) + 1, Relaxed);
            bytes.store(bytes.load(Relaxed) + black_box(round), Relaxed);
            self.live.store(self.live.load(Relaxed) + 64, Relaxed);
            let place = (black_box(round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
            black_box(self.filter.get(place).copied());
            black_box(self.live.load(Relaxed) > 65_536);
        }
    }

    #[inline(never)]
    fn noted(&self, rounds: u64) {
        for round in 0..rounds {
            // A range of NVTX: its name's hash, its time, and four slots.
            let name = black_box([round, 1, 2, 3]);
            let hash = tprof_wire::hash::joined(&name);
            let at = (round as usize * 8) & 1016;
            for (slot, word) in self.ring.iter().skip(at).take(8).zip([hash; 8]) {
                slot.store(word, Relaxed);
            }
            self.ring[at].store(self.clock(), Release);
        }
    }

    fn costs(&self, cost: impl Fn(&dyn Fn(u64)) -> f64) -> Costs {
        Costs {
            recorded_ns: cost(&|rounds| self.recorded(rounds)),
            counted_ns: cost(&|rounds| self.counted(rounds)),
            noted_ns: cost(&|rounds| self.noted(rounds)),
        }
    }
}

/// The least that hooks cost; takes about 0.5 ms.
pub fn measure(is_tsc: bool) -> Costs {
    Hooks::new(is_tsc).costs(best)
}

/// What hooks cost that find nothing in the near caches; takes some milliseconds.
pub fn measure_cold(is_tsc: bool) -> Costs {
    let memory = vec![1_u8; COLD_BYTES];
    Hooks::new(is_tsc).costs(|work| cold(work, &memory))
}

/// Nanoseconds per round, the best of several tries.
fn best(work: &dyn Fn(u64)) -> f64 {
    let mut least = f64::MAX;
    for _ in 0..8 {
        let start = sys::monotonic_ns();
        work(ROUNDS);
        least = least.min((sys::monotonic_ns() - start) as f64 / ROUNDS as f64);
    }
    least
}

/// Nanoseconds per round of few, each time after all of `memory` was touched; the median, which
/// leaves out interrupts.
fn cold(work: &dyn Fn(u64), memory: &[u8]) -> f64 {
    let mut all: Vec<u64> = (0..COLD_TRIES)
        .map(|_| {
            black_box(memory.iter().step_by(64).fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
            let start = sys::monotonic_ns();
            work(COLD_ROUNDS);
            sys::monotonic_ns() - start
        })
        .collect();
    all.sort_unstable();
    all.get(COLD_TRIES / 2).map_or(0.0, |ns| *ns as f64 / COLD_ROUNDS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_costs_something_and_no_millisecond() {
        for costs in [measure(true), measure_cold(true)] {
            for ns in [costs.recorded_ns, costs.counted_ns, costs.noted_ns] {
                assert!(ns > 0.0 && ns < 1e6, "{costs:?}");
            }
        }
    }
}
