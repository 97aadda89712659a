//! Measures how much CPU time a sample and a context switch cost a thread on this machine. The
//! calling thread does fixed work, with and without counters like those of the run, and compares
//! the times.

use super::counters::processors;
use super::options::SamplingOptions;
use crate::config::StackMode;
use crate::os::sys;
use crate::perf::{Attr, Counter, Ring};
use std::hint::black_box;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// `PERF_RECORD_SAMPLE`, the type of records with samples.
const SAMPLE: u32 = 9;
/// Time between samples while their cost is measured, ns.
const PERIOD_NS: u64 = 50_000;
/// Number of rounds of work with samples. Half as many are done without samples.
const ROUNDS: usize = 4;
const SAMPLES: u64 = 4;
/// Number of sleeps in a round. The thread leaves its processor once per sleep.
const NAPS: u32 = 10;
const RING_BYTES: [usize; 4] = [1 << 20, 256 << 10, 128 << 10, 32 << 10];
/// Depth of the stack on which the sampled work runs, bytes. It is as much as a sample can contain,
/// as in a program with deep stacks.
const DEPTH_BYTES: usize = 32 << 10;
/// Bytes that the work reads again and again. It is slower if an interrupt has displaced them from
/// the cache, so that this counts as cost.
const WORK_BYTES: usize = 32 << 10;
/// Bytes of the larger work. Reading them displaces the kernel's data from the near caches between
/// samples, so the samples become more expensive.
const LARGE_BYTES: usize = 2 << 20;
/// Time between samples of the larger work, ns. It is long enough to read all of the work's memory.
const LARGE_PERIOD_NS: u64 = 250_000;

/// The least and the largest measured CPU time, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostSpread {
    #[allow(missing_docs)]
    pub low_ns: f64,
    #[allow(missing_docs)]
    pub high_ns: f64,
}

/// The costs of sampling, measured on this machine.
#[derive(Clone, Copy, Debug)]
pub struct SamplingCosts {
    /// Cost of one sample.
    pub sample: CostSpread,
    /// Cost of leaving a processor and returning to one.
    pub switch: CostSpread,
}

/// Measures the costs, which takes about 15 ms. Fails if the kernel refuses to open the counters.
pub fn measure(wanted: &SamplingOptions) -> io::Result<SamplingCosts> {
    let mut clock = wanted.clock(true, false);
    let kernel = Counter::open(&clock, 0, -1).is_ok();
    clock = wanted.clock(kernel, false);
    clock.set_inherit(0);
    let memory = [1_u8; WORK_BYTES];
    let small = Work { period_ns: PERIOD_NS, few: 16, run: &|rounds| work(&memory, rounds) };
    let shallow = sample_cost(&clock, &small)?;
    let large = vec![1_u8; LARGE_BYTES];
    let depth = if wanted.stacks == StackMode::Off { 0 } else { DEPTH_BYTES };
    let run: &dyn Fn(u64) = &|rounds| below(depth, &large, rounds);
    let deep = sample_cost(&clock, &Work { period_ns: LARGE_PERIOD_NS, few: 1, run })?;
    let sample = CostSpread {
        low_ns: shallow.low_ns.min(deep.low_ns),
        high_ns: shallow.high_ns.max(deep.high_ns),
    };
    Ok(SamplingCosts { sample, switch: switch_cost(wanted, kernel)? })
}

/// Reads memory repeatedly.
#[inline(never)]
fn work(memory: &[u8], rounds: u64) {
    for round in 0..rounds {
        let step = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
        black_box(black_box(memory).iter().step_by(16).fold(round, step));
    }
}

/// Does the work on top of a stack of `bytes` bytes.
#[inline(never)]
fn below(bytes: usize, memory: &[u8], rounds: u64) {
    let frame = [0_u8; 1024];
    black_box(&frame);
    match bytes.checked_sub(frame.len()) {
        Some(rest) => below(rest, memory, rounds),
        None => work(memory, rounds),
    }
    black_box(&frame);
}

/// The work during which samples are taken.
struct Work<'a> {
    /// Time between the samples, ns.
    period_ns: u64,
    /// Number of rounds whose time can be measured: it is at least some microseconds.
    few: u64,
    /// Does a number of rounds.
    run: &'a dyn Fn(u64),
}

fn sample_cost(clock: &Attr, work: &Work<'_>) -> io::Result<CostSpread> {
    let Work { period_ns, few, run } = *work;
    let mut attr = *clock;
    attr.sample_period = period_ns;
    let counter = Counter::open(&attr, 0, -1)?;
    let mut ring = ring_of(&counter)?;
    // The number of rounds is computed from the fastest of several tries.
    let timed = |rounds| {
        let began = sys::thread_cpu_ns();
        run(rounds);
        sys::thread_cpu_ns() - began
    };
    let one = (0..3).map(|_| timed(few)).min().unwrap_or(0).max(1) / few;
    let rounds = (SAMPLES * period_ns).div_ceil(one.max(1));
    let mut costs = Vec::with_capacity(ROUNDS);
    let mut plain = u64::MAX;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A sample wakes the sampler, which is part of its cost, so a thread waits for samples
        // here.
        let wait = || {
            while !done.load(Relaxed) {
                sys::poll_readable(&[counter.fd().as_fd()], Duration::from_millis(1));
            }
        };
        let waiter = std::thread::Builder::new().spawn_scoped(scope, wait)?;
        let measured = (0..ROUNDS).try_for_each(|round| {
            if round % 2 == 0 {
                plain = plain.min(timed(rounds));
            }
            counter.enable()?;
            let sampled = timed(rounds);
            counter.disable()?;
            let mut samples = 0_u64;
            ring.drain(|kind, _, _| samples += u64::from(kind == SAMPLE));
            if samples > 0 {
                costs.push((sampled, samples));
            }
            Ok::<(), io::Error>(())
        });
        done.store(true, Relaxed);
        let _ = waiter.join();
        measured
    })?;
    spread(
        costs
            .iter()
            .map(|(sampled, samples)| (*sampled as f64 - plain as f64).max(0.0) / *samples as f64),
    )
}

fn switch_cost(wanted: &SamplingOptions, kernel: bool) -> io::Result<CostSpread> {
    let mut counters = Vec::new();
    let mut rings = Vec::new();
    for cpu in processors() {
        let counter = Counter::open(&wanted.clock(kernel, false), 0, cpu as i32)?;
        // If no more memory may be locked, there is no ring, and the kernel drops the records.
        rings.extend(ring_of(&counter));
        counters.push(counter);
    }
    let timed = || {
        let began = sys::thread_cpu_ns();
        for _ in 0..NAPS {
            std::thread::sleep(Duration::from_nanos(1));
        }
        (sys::thread_cpu_ns() - began) as f64 / f64::from(NAPS)
    };
    let mut plain = f64::MAX;
    let mut watched = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        plain = plain.min(timed());
        counters.iter().try_for_each(Counter::enable)?;
        watched.push(timed());
        counters.iter().try_for_each(Counter::disable)?;
        rings.iter_mut().for_each(|ring| ring.drain(|_, _, _| {}));
    }
    spread(watched.into_iter().map(|cost| (cost - plain).max(0.0)))
}

fn ring_of(counter: &Counter) -> io::Result<Ring> {
    let mut ring = Err(io::Error::from_raw_os_error(libc::EPERM));
    for bytes in RING_BYTES {
        ring = Ring::new(counter, bytes);
        if ring.is_ok() {
            break;
        }
    }
    ring
}

fn spread(costs: impl Iterator<Item = f64>) -> io::Result<CostSpread> {
    let none = CostSpread { low_ns: f64::MAX, high_ns: 0.0 };
    let found = costs.fold(none, |found, cost| CostSpread {
        low_ns: found.low_ns.min(cost),
        high_ns: found.high_ns.max(cost),
    });
    match found.low_ns <= found.high_ns {
        true => Ok(found),
        false => Err(io::Error::other("no sample was taken")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::permitted;

    #[test]
    fn samples_and_switches_have_a_measurable_cost() {
        let wanted = SamplingOptions {
            rate: 99,
            stacks: StackMode::Auto,
            events: Vec::new(),
            pauses: false,
        };
        match measure(&wanted) {
            Ok(costs) => {
                assert!(costs.sample.high_ns > 0.0 && costs.switch.high_ns > 0.0, "{costs:?}");
                assert!(costs.sample.low_ns <= costs.sample.high_ns, "{costs:?}");
            }
            Err(why) => assert!(permitted().user.is_err(), "{why}"),
        }
    }
}
