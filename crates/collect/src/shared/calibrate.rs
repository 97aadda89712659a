//! What a hook costs on this machine, measured at start by doing its work here:
//! reading the clock, packing a record, storing it; or moving counters.

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

/// Measures; takes about 0.5 ms.
pub fn measure(is_tsc: bool) -> Costs {
    let clock = || if is_tsc { sys::ticks() } else { sys::monotonic_ns() };
    let ring: Vec<AtomicU64> = (0..1024).map(|_| AtomicU64::new(0)).collect();
    let recorded = best(&|| {
        for round in 0..ROUNDS {
            let (a, b) =
                record::heap(Kind::Alloc, black_box(round << 4), black_box(64), 0, clock());
            let at = (round as usize * 2) & 1022;
            ring[at + 1].store(b, Relaxed);
            ring[at].store(a, Release);
        }
    });
    let counters: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
    let live = AtomicI64::new(0);
    let counted = best(&|| {
        for round in 0..ROUNDS {
            counters[0].store(counters[0].load(Relaxed) + 1, Relaxed);
            counters[1].store(counters[1].load(Relaxed) + black_box(round), Relaxed);
            live.store(live.load(Relaxed) + 64, Relaxed);
            black_box(live.load(Relaxed) > 65_536);
        }
    });
    let noted = best(&|| {
        for round in 0..ROUNDS {
            // A range of NVTX: its name's hash, its time, and four slots.
            let name = black_box([round, 1, 2, 3]);
            let hash = tprof_wire::hash::joined(&name);
            let at = (round as usize * 8) & 1016;
            for (slot, word) in ring.iter().skip(at).take(8).zip([hash; 8]) {
                slot.store(word, Relaxed);
            }
            ring[at].store(clock(), Release);
        }
    });
    Costs { recorded_ns: recorded, counted_ns: counted, noted_ns: noted }
}

/// Nanoseconds per round, the best of several tries.
fn best(work: &dyn Fn()) -> f64 {
    let mut least = f64::MAX;
    for _ in 0..8 {
        let start = sys::monotonic_ns();
        work();
        least = least.min((sys::monotonic_ns() - start) as f64 / ROUNDS as f64);
    }
    least
}
