//! Writes the samples of one process image, and the threads, stacks and frames that they refer to.
//! Each thread, stack and frame gets a number when it is first seen. Frames that are addresses need
//! no number.

use super::thread_table::ThreadTable;
use crate::gpu::ThreadRows;
use crate::output::files::OpenFile;
use crate::targets::code::Code;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use tprof_os::proc;
use tprof_sampler::cpu::{CpuSample, Frame, Kind, Measure, ThreadTotals};
use tprof_sampler::python::{self, PyFunction};
use tprof_symbols::KERNEL;
use tprof_trace::model::*;

/// Numbers of sampled stacks begin here. The numbers of stacks that the process took itself have 24
/// bits, so they are below.
const FIRST_STACK: StackId = 1 << 24;
/// Number of stacks that are remembered. Then all are forgotten, and a stack that occurs again is
/// written again.
const MAX_STACKS: usize = 1 << 16;

/// Times of samples are rounded down to 1,024 ns. Their last ten bits are noise, which wouldn't
/// compress.
const GRAIN_NS: u64 = 1023;

/// The threads, stacks and frames of one image that have a number.
#[derive(Default)]
pub struct CpuRows {
    /// Rows of threads. Threads that recorded events themselves are included.
    pub threads: ThreadTable,
    stacks: FxHashMap<(Vec<u64>, u8), StackId>,
    next_stack: StackId,
    kernel: FxHashMap<u64, u64>,
    kernel_functions: HashMap<Arc<str>, u64>,
    named: FxHashMap<Arc<PyFunction>, u64>,
}

/// The file and the process that samples are written to.
pub struct RowSink<'a> {
    /// The open file.
    pub open: &'a mut OpenFile,
    /// Index of the process in the file.
    pub process: ProcessIndex,
    /// Pid of the process.
    pub pid: u32,
    /// Code of the process.
    pub code: &'a mut Code,
    /// The names that threads have set for themselves, by tid.
    pub names: &'a HashMap<u32, String>,
    /// Whether paths are left out.
    pub redact: bool,
}

/// Removes the directories from a name that contains a path, such as that of the file that a thread
/// waits for.
fn without_path(name: &str) -> Cow<'_, str> {
    match (name.find('/'), name.rfind('/')) {
        (Some(first), Some(last)) => [&name[..first], &name[last + 1..]].concat().into(),
        _ => name.into(),
    }
}

impl CpuRows {
    /// Returns the rows of an image whose threads are in this table.
    pub fn new(threads: ThreadTable) -> CpuRows {
        CpuRows { threads, ..CpuRows::default() }
    }

    /// Writes one sample.
    pub fn take(&mut self, taken: CpuSample, sink: &mut RowSink<'_>) {
        let thread = self.thread(taken.tid, taken.time_ns, sink);
        match taken.measure {
            Measure::Time => self.write_time(taken, thread, sink),
            Measure::Events(event, count) => {
                let stack = self.stack(&taken, sink);
                sink.open.event_samples.push(EventSample {
                    time_ns: taken.time_ns & !GRAIN_NS,
                    process: sink.process,
                    thread,
                    stack,
                    event: sink.open.writer.name(event.name()),
                    count,
                });
            }
            Measure::Counted(ThreadTotals { time_ns, counts, faults }) => {
                sink.open.writer.thread_counts(ThreadCounts {
                    time_ns,
                    process: sink.process,
                    thread,
                    voluntary: counts.map(|c| c.voluntary),
                    involuntary: counts.map(|c| c.involuntary),
                    migrations: counts.map(|c| c.migrations),
                    minor_faults: faults.map(|f| f[0]),
                    major_faults: faults.map(|f| f[1]),
                });
            }
        }
    }

    fn write_time(&mut self, taken: CpuSample, thread: ThreadIndex, sink: &mut RowSink<'_>) {
        let stack = self.stack(&taken, sink);
        // A sample stands for its whole period, so rounding its time does no harm. Both ends are
        // rounded alike, so intervals that touch still touch after rounding.
        let time_ns = taken.time_ns & !GRAIN_NS;
        let end_ns = taken.time_ns.saturating_add(taken.weight_ns) & !GRAIN_NS;
        sink.open.samples.push(Sample {
            time_ns,
            process: sink.process,
            thread,
            stack,
            weight_ns: match taken.cpu {
                Some(_) => taken.weight_ns,
                None => end_ns - time_ns,
            },
            state: match taken.kind {
                Kind::Ran => ThreadState::Running,
                Kind::Ready => ThreadState::Runnable,
                Kind::Waited => taken.waits_for.unwrap_or(ThreadState::Blocked),
            },
            cpu: taken.cpu,
            gil: taken.gil,
            spread_ns: taken.spread_ns.filter(|_| taken.kind != Kind::Ran),
        });
    }

    fn thread(&mut self, tid: u32, time_ns: u64, sink: &mut RowSink<'_>) -> ThreadIndex {
        if let Some(index) = self.threads.sampled.get(&tid) {
            return *index;
        }
        let mut place = ThreadRows { file: sink.open, threads: &mut self.threads.sampled };
        let index = place.thread(sink.process, tid, time_ns);
        let name = sink
            .names
            .get(&tid)
            .cloned()
            .or_else(|| Some(proc::name_of(sink.pid, tid)).filter(|name| !name.is_empty()));
        if let Some(name) = name {
            self.name(tid, time_ns, &name, sink.open);
        }
        index
    }

    /// Writes the name that a thread has set.
    pub fn name(&self, tid: u32, time_ns: u64, name: &str, open: &mut OpenFile) {
        if let Some(index) = self.threads.sampled.get(&tid) {
            let name = open.writer.name(name);
            open.writer.thread_name(*index, time_ns, name);
        }
    }

    fn stack(&mut self, taken: &CpuSample, sink: &mut RowSink<'_>) -> StackId {
        if taken.frames.is_empty() {
            return 0;
        }
        let frames: Vec<u64> = taken.frames.iter().map(|frame| self.frame(frame, sink)).collect();
        let key = (frames, taken.end);
        if let Some(id) = self.stacks.get(&key) {
            return *id;
        }
        if self.stacks.len() >= MAX_STACKS {
            self.stacks.clear();
        }
        let stack = FIRST_STACK + self.next_stack;
        self.next_stack += 1;
        let row = Stack { process: sink.process, stack, end: taken.end, frames: key.0.clone() };
        sink.code.take(taken.time_ns, row);
        self.stacks.insert(key, stack);
        stack
    }

    /// Returns a frame as the trace stores it, but without a generation.
    fn frame(&mut self, frame: &Frame, sink: &mut RowSink<'_>) -> u64 {
        let made = self.kernel.len() + self.kernel_functions.len() + self.named.len();
        let next = SYNTHETIC_FRAME | made as u64 & 0xffff_ffff;
        match frame {
            Frame::Address(address) => address & (SYNTHETIC_FRAME - 1),
            Frame::Kernel(address) => *self.kernel.entry(*address).or_insert_with(|| {
                sink.code.name_kernel(next, *address);
                next
            }),
            Frame::KernelFunction(name) => {
                if let Some(frame) = self.kernel_functions.get(name) {
                    return *frame;
                }
                let writer = &mut sink.open.writer;
                let shown = if sink.redact { without_path(name) } else { Cow::Borrowed(&**name) };
                let (function, file) = (writer.name(&shown), writer.name(""));
                let (process, module) = (sink.process, writer.name(KERNEL));
                let (line, depth) = (0, 0);
                writer.symbol(&Symbol {
                    process,
                    address: next,
                    depth,
                    function,
                    file,
                    line,
                    module,
                });
                self.kernel_functions.insert(Arc::clone(name), next);
                next
            }
            Frame::Python(named) => {
                if let Some(frame) = self.named.get(named) {
                    return *frame;
                }
                let writer = &mut sink.open.writer;
                python::write_name(next, named, sink.process, sink.redact, writer);
                if !sink.redact {
                    sink.open.python_source(&named.file, sink.pid);
                }
                self.named.insert(Arc::clone(named), next);
                next
            }
        }
    }
}
