//! Reads perf records that the fuzzer wrote.

use super::super::options::SamplingOptions;
use super::super::sample::{Measure, SamplerEvent};
use super::Worker;
use crate::config::{PerfEvent, StackMode};
use crate::elf::VDSO;
use crate::os::maps::Mapping;
use crate::perf::Ring;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

/// A process whose code is known, so that its stacks are unwound: the vDSO, at [`CODE`].
const PID: u32 = 1 << 30;
const CODE: u64 = 0x7fff_0000_0000;
/// Records until this time are handled first, ns.
const FIRST_NS: u64 = 1 << 32;

/// What was read from a ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordsRead {
    /// Number of samples and intervals of threads.
    pub samples: usize,
    /// Largest number of frames of a sample.
    pub frames: usize,
    /// Number of things that were reported as lost.
    pub lost: u64,
}

/// Reads a ring that holds these bytes, from its position `at` on, and hands out all that the
/// records say. Samples of the counters 1 and 2 are of running and of waiting threads, those of 3
/// and 4 count events.
pub fn read_records(bytes: &[u8], at: u64, with_stack: bool) -> RecordsRead {
    let (emit, emitted) = channel();
    let wanted =
        SamplingOptions { rate: 99, stacks: StackMode::Auto, events: Vec::new(), pauses: false };
    let emit = move |event| drop(emit.send(event));
    let mut worker =
        Worker::new(wanted, Arc::default(), Box::new(emit), Arc::new(AtomicBool::new(false)));
    worker.counters.pretend(with_stack, [PerfEvent::Cycles, PerfEvent::PageFaults]);
    let (start, path) = (CODE, PathBuf::from(VDSO));
    let end = CODE + 0x2000;
    let (offset, dev, inode, exec, deleted) = (0, 0, 0, true, false);
    let vdso = Mapping { start, end, offset, dev, inode, path, exec, deleted };
    worker.spaces.mapped(PID, vdso, 0);
    let ring = Ring::of_bytes(bytes, at).expect("there is memory");
    worker.counters.rings.push((0, 0, ring));
    worker.drain();
    worker.process_queued(FIRST_NS);
    let mut intervals = Vec::new();
    worker.threads.emit(&mut intervals);
    worker.take_intervals(std::mem::take(&mut intervals));
    worker.process_queued(u64::MAX);
    worker.threads.end(u64::MAX, &mut intervals);
    worker.take_intervals(intervals);
    worker.deliver();
    drop(worker);
    let mut read = RecordsRead::default();
    for event in emitted {
        match event {
            SamplerEvent::Samples(samples) => {
                read.samples += samples.len();
                for sample in samples {
                    read.frames = read.frames.max(sample.frames.len());
                    if let Measure::Time = sample.measure {
                        let _ = sample.time_ns.saturating_add(sample.weight_ns);
                    }
                }
            }
            SamplerEvent::Lost(_, _, count) => read.lost = read.lost.saturating_add(count),
            _ => {}
        }
    }
    read
}
