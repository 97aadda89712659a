//! Measures the cost of a hook on this machine. The collector does the same work as a hook: it
//! reads the clock, packs a record and stores it, or changes counters. It does so twice. With
//! everything in the nearest cache, the result is the least that a hook can cost. With nothing in
//! the near caches, it is the cost of a hook after other work.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::*};
use std::time::Duration;
use tprof_os::sys;
use tprof_wire::gpu::Range;
use tprof_wire::hash;
use tprof_wire::record::{self, ExtKind, Kind};

/// The cost of a hook, without the real function that it calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// A recorded event, ns.
    pub recorded_ns: f64,
    /// An event that is only counted, ns.
    pub counted_ns: f64,
    /// A record of several slots, such as those of NVTX ranges, CUDA calls and CUPTI, ns.
    pub noted_ns: f64,
}

const ROUNDS: u64 = 4096;
/// Number of events in a row after the near caches were emptied. A thread usually calls a few hooks
/// in a row.
const COLD_ROUNDS: u64 = 8;
/// Bytes that are read between the tries, to empty the near caches. That is more than the
/// second-level cache of most processors.
const COLD_BYTES: usize = 2 << 20;
const COLD_TRIES: usize = 16;
const HANDED_TRIES: usize = 64;
/// Time in which another core certainly reads and clears the ring, ns.
const HANDING_NS: u64 = 20_000;
const NAP: Duration = Duration::from_micros(100);
/// Longest time for which the handover to another core is measured, ns.
const HANDED_FOR_NS: u64 = 20_000_000;
/// Number of words in the ring.
const RING_WORDS: usize = 1024;
/// Number of words in the record of a range: its first slot, and its payload in whole slots.
const NOTE_WORDS: usize = 2 + Range::WORDS.next_multiple_of(2);
/// Number of entries in the table of names, which is a hash table as in a hook.
const NAMES: usize = 1024;

/// Memory like that of a process, and the work that hooks do with it.
struct Hooks {
    is_tsc: bool,
    ring: Vec<AtomicU64>,
    counters: [AtomicU64; 2],
    live: AtomicI64,
    /// A filter like the one that tells hooks whether an address may have a recorded block.
    filter: Vec<u8>,
    /// The hash table of names: hash and number of each name.
    names: Vec<[AtomicU64; 2]>,
}

impl Hooks {
    fn new(is_tsc: bool) -> Hooks {
        Hooks {
            is_tsc,
            ring: (0..RING_WORDS).map(|_| AtomicU64::new(0)).collect(),
            counters: [AtomicU64::new(0), AtomicU64::new(0)],
            live: AtomicI64::new(0),
            filter: vec![0; 1 << 16],
            names: (0..NAMES).map(|_| [AtomicU64::new(0), AtomicU64::new(1)]).collect(),
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
            // `noted` begins at another place of the ring, so its first records are not in the
            // cache yet.
            let at = (round as usize * 2 + 512) & 1022;
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

    /// Writes records of NVTX ranges, which consist of the time, a payload, and the number of a
    /// name. Only the beginning of a range has a name.
    #[inline(never)]
    fn noted(&self, rounds: u64, is_named: bool) {
        let mut at = 0;
        for round in 0..rounds {
            let name = match is_named && round & 1 == 0 {
                true => self.name(black_box(b"forward pass")),
                false => 0,
            };
            let clock = self.clock();
            let payload =
                black_box(Range { id: black_box(round), name, ..Range::default() }).pack();
            if at + NOTE_WORDS > self.ring.len() {
                at = 0;
            }
            let (record, _) = self.ring[at..].split_at(NOTE_WORDS);
            record[0].store(Kind::Pending as u64, Release);
            for (place, word) in record[2..].iter().zip(payload) {
                place.store(word, Relaxed);
            }
            record[1].store(clock, Relaxed);
            record[0].store(record::ext(ExtKind::RangePush, NOTE_WORDS / 2, 0), Release);
            at += NOTE_WORDS;
        }
    }

    fn name(&self, text: &[u8]) -> u32 {
        let hash = hash::fnv1a(text);
        let [known, number] = &self.names[hash as usize & (NAMES - 1)];
        black_box(known.load(Acquire) == hash);
        number.load(Acquire) as u32
    }

    /// Returns the median time per record of several slots, ns, if another core has read and
    /// cleared the ring before. The collector does that while a program records much. `None` if no
    /// thread can be started, or if the thread gets no processor in time.
    fn handed_over(&self) -> Option<f64> {
        let by = sys::monotonic_ns() + HANDED_FOR_NS;
        let is_cleared = AtomicBool::new(false);
        let clear = || {
            while wait_until(by, || !is_cleared.load(Acquire)) {
                self.ring.iter().for_each(|word| _ = word.swap(0, Relaxed));
                is_cleared.store(true, Release);
            }
        };
        std::thread::scope(|scope| {
            let named = std::thread::Builder::new().name("tprof-prices".to_owned());
            named.spawn_scoped(scope, clear).ok()?;
            let rounds = (RING_WORDS / NOTE_WORDS) as u64;
            let mut all = Vec::with_capacity(HANDED_TRIES);
            while all.len() < HANDED_TRIES && wait_until(by, || is_cleared.load(Acquire)) {
                all.push(timed(&|rounds| self.noted(rounds, true), rounds));
                is_cleared.store(false, Release);
            }
            all.sort_unstable();
            all.get(all.len() / 2).map(|ns| *ns as f64 / rounds as f64)
        })
    }

    /// Returns the costs per round of all three kinds of work. `cost` measures them.
    fn costs(&self, is_named: bool, cost: impl Fn([&dyn Fn(u64); 3]) -> [f64; 3]) -> Costs {
        let [recorded_ns, counted_ns, noted_ns] =
            cost([&|rounds| self.recorded(rounds), &|rounds| self.counted(rounds), &|rounds| {
                self.noted(rounds, is_named)
            }]);
        Costs { recorded_ns, counted_ns, noted_ns }
    }
}

/// Returns the least cost of hooks, with hot caches. This takes about 0.5 ms.
pub fn measure(is_tsc: bool) -> Costs {
    Hooks::new(is_tsc).costs(false, best)
}

/// Returns the cost of hooks with cold caches. This takes some milliseconds.
pub fn measure_cold(is_tsc: bool) -> Costs {
    let memory = vec![1_u8; COLD_BYTES];
    let hooks = Hooks::new(is_tsc);
    let costs = hooks.costs(true, |work| cold(work, &memory));
    let handed_over = hooks.handed_over().unwrap_or_default();
    Costs { noted_ns: costs.noted_ns.max(handed_over), ..costs }
}

/// Waits until another thread makes the condition true or until `by_ns`, and returns whether it is
/// true. A thread that runs on another core needs only a moment, so this spins first. If the thread
/// waits for a processor, this sleeps longer and longer.
fn wait_until(by_ns: u64, is_so: impl Fn() -> bool) -> bool {
    let begun = sys::monotonic_ns();
    let mut nap = NAP;
    loop {
        if is_so() {
            return true;
        }
        let now = sys::monotonic_ns();
        if now >= by_ns {
            return false;
        }
        if now - begun < HANDING_NS {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(nap);
            nap *= 2;
        }
    }
}

/// Returns the ns per round of each kind of work: the lowest of several tries.
fn best(work: [&dyn Fn(u64); 3]) -> [f64; 3] {
    work.map(|work| {
        let least = (0..8).map(|_| timed(work, ROUNDS)).min().unwrap_or_default();
        least as f64 / ROUNDS as f64
    })
}

/// Returns the ns per round of each kind of work, for a few rounds after all of `memory` was read.
/// The result is the median, because interrupts disturb some tries.
fn cold(work: [&dyn Fn(u64); 3], memory: &[u8]) -> [f64; 3] {
    let mut all = [[0; COLD_TRIES]; 3];
    for at in 0..COLD_TRIES {
        black_box(memory.iter().step_by(64).fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
        for (all, work) in all.iter_mut().zip(work) {
            all[at] = timed(work, COLD_ROUNDS);
        }
    }
    all.map(|mut all| {
        all.sort_unstable();
        all[COLD_TRIES / 2] as f64 / COLD_ROUNDS as f64
    })
}

/// Returns the nanoseconds that this many rounds take.
fn timed(work: &dyn Fn(u64), rounds: u64) -> u64 {
    let start = sys::monotonic_ns();
    work(rounds);
    sys::monotonic_ns() - start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_costs_more_than_nothing_and_less_than_a_millisecond() {
        for costs in [measure(true), measure_cold(true)] {
            for ns in [costs.recorded_ns, costs.counted_ns, costs.noted_ns] {
                assert!(ns > 0.0 && ns < 1e6, "{costs:?}");
            }
        }
    }
}
