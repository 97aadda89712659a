//! Samples threads that run, once each, for a command that asks while the job runs. Registers of a
//! running thread can't be read from outside, so the kernel must interrupt it: a counter of the
//! thread's time does that within a millisecond of running.

use super::options::SamplingOptions;
use crate::config::StackMode;
use crate::perf::record::{Layout, Record, Registers, decode};
use crate::perf::{Counter, Ring};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tprof_os::sys;

/// Time that a thread runs until it is sampled, ns.
const PERIOD_NS: u64 = 1_000_000;
/// Longest time to wait for the samples. Other threads may have the processors meanwhile: with nine
/// that run for each processor, 40 ms were too few.
const WITHIN: Duration = Duration::from_millis(150);
/// Bytes of a ring. A sample with its stack fits.
const RING_BYTES: usize = 64 << 10;
/// Largest number of threads that are sampled.
const MAX_THREADS: usize = 32;

/// A sample of a running thread.
#[derive(Debug)]
pub struct RunningThread {
    /// Registers of user code.
    pub registers: Registers,
    /// The top of the thread's stack.
    pub stack: Vec<u8>,
}

/// Samples these threads, and returns the samples by tid. A thread that didn't run or ended has
/// none. If the kernel refuses perf events, nothing has.
pub fn sample(tids: impl Iterator<Item = u32>) -> HashMap<u32, RunningThread> {
    let mut open: Vec<(u32, Counter, Ring)> =
        tids.take(MAX_THREADS).filter_map(|tid| open(tid).map(|(c, r)| (tid, c, r))).collect();
    let (mut samples, until) = (HashMap::new(), Instant::now() + WITHIN);
    while !open.is_empty() && Instant::now() < until {
        let fds: Vec<_> = open.iter().map(|(_, counter, _)| counter.fd().as_fd()).collect();
        sys::poll_readable(&fds, until.saturating_duration_since(Instant::now()));
        open.retain_mut(|(tid, _, ring)| match last_of(ring) {
            Some(sample) => samples.insert(*tid, sample).is_some(),
            None => true,
        });
    }
    samples
}

fn open(tid: u32) -> Option<(Counter, Ring)> {
    let stacks = StackMode::Auto;
    let options = SamplingOptions { rate: 99, stacks, events: Vec::new(), pauses: true };
    let mut attr = options.clock(false, false);
    attr.sample_period = PERIOD_NS;
    attr.set_context_switch(0);
    attr.set_inherit(0);
    let counter = Counter::open(&attr, tid.cast_signed(), -1).ok()?;
    let ring = Ring::new(&counter, RING_BYTES).ok()?;
    counter.enable().ok()?;
    Some((counter, ring))
}

fn last_of(ring: &mut Ring) -> Option<RunningThread> {
    let mut last = None;
    ring.drain(|kind, misc, body| {
        if let Some((_, Record::Sample(sample))) = decode(kind, misc, body, |_| Layout::Stack)
            && let Some(registers) = sample.registers
        {
            last = Some(RunningThread { registers, stack: sample.stack.to_vec() });
        }
    });
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::permitted;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_that_runs_has_registers_and_a_stack_and_one_that_waits_has_none() {
        let (over, (sender, receiver)) = (AtomicBool::new(false), channel());
        let is_over = &over;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                sender.send(sys::own_tid()).unwrap();
                while !is_over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let (running, waiting) = (receiver.recv().unwrap(), sys::own_tid());
            let mut samples = HashMap::new();
            while samples.is_empty() && permitted().user.is_ok() {
                samples = sample([running, waiting].into_iter());
            }
            is_over.store(true, Relaxed);
            let sample = samples.remove(&running);
            assert_eq!(sample.is_some(), permitted().user.is_ok());
            assert!(sample.is_none_or(|of| of.registers.pc != 0 && of.stack.len() > 8));
        });
    }
}
