//! The entry point of the fuzz target `perf`: passes records that the fuzzer made up through the
//! sampler's worker, as if the kernel had written them to a ring of perf events.

use super::super::options::SamplingOptions;
use super::super::sample::SamplerEvent;
use super::Worker;
use crate::config::{PerfEvent, StackMode};
use crate::perf::Ring;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use tprof_os::maps::Mapping;
use tprof_symbols::elf::VDSO;

/// Pid of a made-up process that has one mapping, the vDSO at [`CODE`]. Stacks of its samples can
/// be unwound there.
const PID: u32 = 1 << 30;
/// Address at which [`PID`] maps the vDSO.
const CODE: u64 = 0x7fff_0000_0000;
/// Records are handled in two steps: first those until this time, ns.
const FIRST_NS: u64 = 1 << 32;

/// What was read from a ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordsRead {
    /// Number of samples, and of intervals in which threads ran or waited.
    pub samples: usize,
    /// Number of frames of the deepest sample.
    pub frames: usize,
    /// Number of losses that were reported: of records, samples, or threads' times.
    pub lost: u64,
}

/// Reads a ring that holds these bytes, from its byte `position` on, and counts what the worker
/// makes of the records. Of the event ids in the records, 1 and 2 are those of running and of
/// waiting threads, and 3 and 4 those of counted events. `with_stack` says whether samples have
/// registers and a copy of the stack. The fuzzer checks that this panics on no bytes.
pub fn read_records(bytes: &[u8], position: u64, with_stack: bool) -> RecordsRead {
    let (send, events) = channel();
    let options =
        SamplingOptions { rate: 99, stacks: StackMode::Auto, events: Vec::new(), pauses: false };
    let emit = move |event| drop(send.send(event));
    let mut worker =
        Worker::new(options, Arc::default(), Box::new(emit), Arc::new(AtomicBool::new(false)));
    worker.counters.pretend(with_stack, [PerfEvent::Cycles, PerfEvent::PageFaults]);
    let (start, path) = (CODE, PathBuf::from(VDSO));
    let end = CODE + 0x2000;
    let (offset, dev, inode, exec, deleted) = (0, 0, 0, true, false);
    let vdso = Mapping { start, end, offset, dev, inode, path, exec, deleted };
    worker.spaces.mapped(PID, vdso, 0);
    let ring = Ring::of_bytes(bytes, position).expect("there is memory");
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
    for event in events {
        match event {
            SamplerEvent::Samples(samples) => {
                read.samples += samples.len();
                let deepest = samples.iter().map(|sample| sample.frames.len()).max();
                read.frames = read.frames.max(deepest.unwrap_or(0));
            }
            SamplerEvent::Lost(_, _, count) => read.lost = read.lost.saturating_add(count),
            _ => {}
        }
    }
    read
}
