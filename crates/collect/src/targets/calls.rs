//! CUDA runtime, NCCL and cuBLAS calls, as the preloaded library recorded
//! them: rows of the trace. Where CUPTI records the same calls, its records are used; memory comes
//! only from these hooks, collectives also from NCCL's profiler plugin.

mod note;
mod words;

pub use note::CallNote;
use words::arguments;

use crate::gpu::coverage::Coverage;
use crate::shared::clock::Clock;
use crate::targets::collectives::{Collectives, HookedCall};
use crate::targets::gemms::Gemms;
use std::collections::HashMap;
use tprof_trace::model::*;
use tprof_trace::{TraceError, TraceWriter};
use tprof_wire::calls::{Does, FUNCTIONS, Function, Library, Number, memory};

/// Rows that are written at the latest together.
const MOST_ROWS: usize = 16_384;
/// Rows wait this long at most, so that a run that is cut off lacks little.
const LONGEST_WAIT_NS: u64 = 250_000_000;

/// A thread's state between calls.
#[derive(Debug, Default)]
struct OfThread {
    device: u32,
}

/// Calls of an image, on their way into its file.
#[derive(Debug)]
pub struct Calls {
    process: ProcessIndex,
    /// From then on CUPTI records this process's calls: the hooks' would be there
    /// twice.
    pub cupti_calls_from_ns: Option<u64>,
    /// What the hooks counted, beside what CUPTI recorded.
    pub coverage: Coverage,
    /// Of the rows that wait, those that started work: by whom, and when.
    started: Vec<(ThreadIndex, u64)>,
    /// The hooks see how this process takes device memory.
    pub records_memory: bool,
    names: Vec<NameId>,
    spans: Vec<Span>,
    allocations: Vec<DeviceAllocation>,
    /// Collectives, which other records are joined to.
    pub collectives: Collectives,
    threads: HashMap<ThreadIndex, OfThread>,
    gemms: Gemms,
    first_waiting_ns: Option<u64>,
    /// Rows that could not be written.
    pub lost: u64,
}

impl Calls {
    /// Of an image that has made none yet.
    pub fn new(process: ProcessIndex) -> Calls {
        Calls {
            process,
            cupti_calls_from_ns: None,
            coverage: Coverage::default(),
            started: Vec::new(),
            records_memory: false,
            names: Vec::new(),
            spans: Vec::new(),
            allocations: Vec::new(),
            collectives: Collectives::new(process),
            threads: HashMap::new(),
            gemms: Gemms::default(),
            first_waiting_ns: None,
            lost: 0,
        }
    }

    /// Takes a record that a thread wrote at this time: the call's beginning, or
    /// the moment of a change of memory.
    pub fn take(
        &mut self,
        note: CallNote,
        thread: ThreadIndex,
        time_ns: u64,
        clock: &Clock,
        writer: &mut TraceWriter,
    ) {
        match note {
            CallNote::Call(function, number, end, result, kind, stream, detail) => {
                let duration_ns = clock.ns(end).saturating_sub(time_ns);
                self.of_thread(thread, function, number, result, detail, time_ns + duration_ns);
                if function.library == Library::Runtime {
                    // What starts work is counted while recording is on, as CUPTI's records are.
                    let starts_work =
                        matches!(function.does, Does::Launches { .. } | Does::Copies { .. });
                    match self.is_recorded_by_cupti(time_ns) {
                        true if starts_work => self.coverage.counted(thread, time_ns),
                        // CUPTI's agent may report later that its records cover this moment.
                        false if starts_work => self.started.push((thread, time_ns)),
                        _ => {}
                    }
                    if self.is_recorded_by_cupti(time_ns) {
                        return;
                    }
                }
                let args = arguments(function, kind, stream, detail);
                let args = args.map_or(NameId(0), |args| writer.name(&args));
                self.span(thread, function, number, (time_ns, duration_ns, result), args, writer);
            }
            CallNote::Memory { function, address, bytes, stream, stack, free } => {
                self.records_memory = true;
                self.memory(thread, time_ns, function, (address, bytes, stream), stack, free);
            }
            CallNote::Collective {
                function,
                end,
                data_type,
                communicator,
                count,
                stream,
                peer,
            } => {
                let call = HookedCall {
                    thread,
                    function: function.name,
                    start_ns: time_ns,
                    end_ns: clock.ns(end),
                    address: communicator,
                    count,
                    data_type,
                    stream,
                    peer,
                };
                self.collectives.called(&call, writer);
            }
            CallNote::Gemm(function, number, end, result, shape) => {
                let duration_ns = clock.ns(end).saturating_sub(time_ns);
                let text = shape.and_then(|shape| self.gemms.text(&shape, writer));
                let args = text.unwrap_or_default();
                self.span(thread, function, number, (time_ns, duration_ns, result), args, writer);
            }
            CallNote::Communicator(joined) => self.collectives.joined(joined),
        }
        self.first_waiting_ns.get_or_insert(time_ns);
    }

    /// A call as a span of its thread.
    fn span(
        &mut self,
        thread: ThreadIndex,
        function: &Function,
        number: u32,
        (start_ns, duration_ns, result): (u64, u64, u32),
        args: NameId,
        writer: &mut TraceWriter,
    ) {
        let (kind, category) = match function.library {
            Library::Runtime => (SpanKind::Runtime, ""),
            Library::Nccl => (SpanKind::Other, "nccl"),
            Library::Cublas | Library::CublasLt => (SpanKind::Other, "cublas"),
        };
        let name = self.name(function, number, writer);
        self.spans.push(Span {
            start_ns,
            duration_ns,
            process: self.process,
            thread,
            kind,
            name,
            category: writer.name(category),
            status: Some(result),
            args,
            ..Span::default()
        });
    }

    fn is_recorded_by_cupti(&self, start_ns: u64) -> bool {
        self.cupti_calls_from_ns.is_some_and(|from| start_ns >= from)
    }

    /// What a call changes for its thread.
    fn of_thread(
        &mut self,
        thread: ThreadIndex,
        function: &Function,
        number: u32,
        result: u32,
        detail: u64,
        end_ns: u64,
    ) {
        let state = self.threads.entry(thread).or_default();
        if function.does == Does::Selects && result == 0 {
            state.device = detail as u32;
        } else if number == Number::ncclGroupStart as u32 {
            self.collectives.group_begins(thread);
        } else if number == Number::ncclGroupEnd as u32 {
            self.collectives.group_ends(thread, end_ns);
        }
    }

    fn memory(
        &mut self,
        thread: ThreadIndex,
        time_ns: u64,
        function: &Function,
        (address, bytes, stream): (u64, u64, u64),
        stack: u32,
        free: bool,
    ) {
        let (of, in_stream) = match function.does {
            Does::Allocates { memory, stream, .. } | Does::Frees { memory, stream } => {
                (memory, stream.is_some())
            }
            Does::Resets => (memory::DEVICE, false),
            _ => return,
        };
        let device = self.threads.entry(thread).or_default().device;
        self.allocations.push(DeviceAllocation {
            time_ns,
            process: self.process,
            thread,
            allocator: if in_stream { Allocator::Pool } else { Allocator::Library },
            free,
            device: (of != memory::PINNED).then_some(device),
            address,
            // Threads' rings are read one by one: which block a free ends shows only
            // when all rows lie in order of time.
            bytes: (!free).then_some(bytes),
            kind: match of {
                memory::PINNED => MemoryKind::Pinned,
                memory::MANAGED => MemoryKind::Managed,
                _ => MemoryKind::Device,
            },
            stream: in_stream.then_some(stream),
            stack,
            ..DeviceAllocation::default()
        });
    }

    fn name(&mut self, function: &Function, number: u32, writer: &mut TraceWriter) -> NameId {
        let at = number as usize;
        if self.names.len() <= at {
            self.names.resize(FUNCTIONS.len().max(at + 1), NameId(0));
        }
        if self.names[at] == NameId(0) {
            self.names[at] = writer.name(function.name);
        }
        self.names[at]
    }

    /// Rows that wait.
    fn rows(&self) -> usize {
        self.spans.len() + self.allocations.len()
    }

    /// Writes what waits, if there is enough of it or it has waited long enough.
    pub fn write(
        &mut self,
        now_ns: u64,
        last: bool,
        writer: &mut TraceWriter,
    ) -> Result<(), TraceError> {
        let rows = self.rows();
        let waited = self.first_waiting_ns.map_or(0, |first| now_ns.saturating_sub(first));
        if rows == 0 || !(last || rows >= MOST_ROWS || waited >= LONGEST_WAIT_NS) {
            return Ok(());
        }
        self.first_waiting_ns = None;
        // CUPTI's agent may have begun while they waited.
        let mut spans = std::mem::take(&mut self.spans);
        spans.retain(|span| {
            span.kind != SpanKind::Runtime || !self.is_recorded_by_cupti(span.start_ns)
        });
        self.spans = spans;
        for (thread, start_ns) in std::mem::take(&mut self.started) {
            if self.is_recorded_by_cupti(start_ns) {
                self.coverage.counted(thread, start_ns);
            }
        }
        let lost = self.spans.len() + self.allocations.len();
        let mut result = writer.write(&mut self.spans);
        result = result.and(writer.write(&mut self.allocations));
        if result.is_err() {
            self.lost += lost as u64;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_wire::calls::{FUNCTIONS, Number};

    #[test]
    fn launches_that_were_heard_of_before_cupti_told_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &Default::default()).unwrap();
        let (clock, mut calls) = (Clock::new(), Calls::new(0));
        let launch = &FUNCTIONS[Number::cudaLaunchKernel as usize];
        let note = || CallNote::Call(launch, Number::cudaLaunchKernel as u32, 0, 0, 0, 0, 0);
        for at in 0..10 {
            calls.take(note(), 0, 1_000_000_000 + at, &clock, &mut writer);
        }
        // The agent says only now that it tells since the fifth of them.
        calls.cupti_calls_from_ns = Some(1_000_000_005);
        calls.take(note(), 0, 1_000_000_010, &clock, &mut writer);
        calls.write(2_000_000_000, true, &mut writer).unwrap();
        assert_eq!(calls.coverage.finish(1_000_000_011), (Vec::new(), 6));
        writer.finish().unwrap();
        let file = tprof_trace::TraceFile::open(&path).unwrap();
        assert_eq!(file.row_count::<Span>(), 5);
    }
}
