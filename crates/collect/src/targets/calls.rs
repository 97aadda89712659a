//! Turns the hooks' records of calls to the CUDA runtime and driver, NCCL, cuBLAS, MPI and PyTorch
//! into rows of the trace. Calls that CUPTI records too are left to CUPTI. Collectives also come from NCCL's
//! profiler plugin.

mod captures;
mod in_progress;
mod kernels;
mod note;
mod reports;
mod unseen;
mod words;

use captures::Captures;
use in_progress::InProgress;
use kernels::{Kernels, Launched};
pub use note::CallNote;
use note::MemoryChange;
pub use unseen::UnseenLaunches;
use words::arguments;

use crate::gpu::Gpu;
use crate::gpu::by_order::{Handle, StartedWork, StartingCall, hash_of};
use crate::gpu::call_stacks::StackOfCall;
use crate::gpu::context_memory::ContextMemory;
use crate::gpu::coverage::Coverage;
use crate::gpu::matching::{CallKind, MemoryCall};
use crate::gpu::texts::without_version;
use crate::gpu::virtual_memory::{MappingCall, VirtualMemory};
use crate::shared::clock::Clock;
use crate::targets::collectives::{Collectives, HookedCall};
use crate::targets::device_queue::{HookedLaunch, LastLaunches};
use crate::targets::gemms::Gemms;
use crate::targets::progress::Operations;
use std::collections::HashMap;
use tprof_trace::model::*;
use tprof_trace::{TraceError, TraceWriter};
use tprof_wire::calls::{
    Effect, FUNCTIONS, Function, Library, Number, may_be_left_to_hooks, memory, stream_of,
};

/// Rows are written when this many of them wait.
const MAX_ROWS: usize = 16_384;
/// The longest time that rows wait. If the collector is killed, only the rows of this time are
/// lost.
const LONGEST_WAIT_NS: u64 = 250_000_000;

/// What has to be remembered of a thread between its calls.
#[derive(Debug, Default)]
struct ThreadCalls {
    device: u32,
    /// The last change of memory and the number of the function that made it. It waits here for the
    /// record of the call itself, which follows.
    memory: Option<(u32, MemoryCall)>,
}

/// Calls of one image that are not written to its file yet.
#[derive(Debug)]
pub struct Calls {
    process: ProcessIndex,
    /// Time from which CUPTI records this process's calls. Rows of later calls from the hooks would
    /// be duplicates.
    pub cupti_calls_from_ns: Option<u64>,
    /// Whether CUPTI leaves out calls that start work, because the process makes them through a
    /// hooked function of the CUDA runtime.
    pub relies_on_hooks: bool,
    /// Calls that start work and that CUPTI leaves out, on their way to
    /// [`ByOrder`](crate::gpu::by_order::ByOrder).
    starting: Vec<StartingCall>,
    /// What a handle of a kernel or stream means, with the time from which it means that; also on
    /// their way to `ByOrder`.
    handles: Vec<(Handle, u64)>,
    captures: Captures,
    /// Rows of calls that CUPTI leaves out and that started no work, for example because they
    /// failed.
    alone: Vec<Span>,
    /// Rows of copies and fills that wait to be written: the row, the work that it started, its
    /// stream, and the number of the function.
    copies: Vec<(Span, StartedWork, u64, u32)>,
    /// Compares the number of calls that the hooks counted with the number that CUPTI recorded.
    pub coverage: Coverage,
    /// Thread and time of the calls that started work before CUPTI was known to record calls.
    started: Vec<(ThreadIndex, u64)>,
    /// Calls that changed memory, for [`Matching`](crate::gpu::matching::Matching).
    pub memory_calls: Vec<MemoryCall>,
    /// Stack and arguments of the last call, which CUPTI's record of this call will get.
    pub stack_of_call: Option<StackOfCall>,
    virtual_memory: VirtualMemory,
    context_memory: ContextMemory,
    /// Counts work that no record shows, for example graphs that kernels launch.
    pub unseen: UnseenLaunches,
    names: Vec<NameId>,
    spans: Vec<Span>,
    in_progress: InProgress,
    kernels: Kernels,
    allocations: Vec<DeviceAllocation>,
    /// Times when PyTorch's allocator had no memory for a block.
    out_of_memory: Vec<AllocatorEvent>,
    /// Number of such times so far.
    times_out_of_memory: u64,
    /// How many of them [`Calls::lacks_memory`] has told.
    told_out_of_memory: u64,
    /// The process's collectives.
    pub collectives: Collectives,
    /// The operations of MPI that are over.
    pub mpi: Operations,
    /// The last launches of kernels.
    pub launches: LastLaunches,
    /// Time of the last call that gave a device work, ns.
    last_work_ns: Option<u64>,
    threads: HashMap<ThreadIndex, ThreadCalls>,
    gemms: Gemms,
    first_waiting_ns: Option<u64>,
    /// Number of rows that could not be written.
    pub lost: u64,
}

/// Whether a call gives a device work.
fn gives_work(function: &Function) -> bool {
    let is_graph = || function.name.text().starts_with("cudaGraphLaunch");
    matches!(function.does, Effect::Launches { .. } | Effect::Copies { .. }) || is_graph()
}

impl Calls {
    /// Returns the calls of an image that has made none yet.
    pub fn new(process: ProcessIndex) -> Calls {
        Calls {
            process,
            cupti_calls_from_ns: None,
            relies_on_hooks: false,
            starting: Vec::new(),
            handles: Vec::new(),
            captures: Captures::default(),
            alone: Vec::new(),
            copies: Vec::new(),
            coverage: Coverage::default(),
            started: Vec::new(),
            memory_calls: Vec::new(),
            stack_of_call: None,
            virtual_memory: VirtualMemory::new(process),
            context_memory: ContextMemory::default(),
            unseen: UnseenLaunches::default(),
            names: Vec::new(),
            spans: Vec::new(),
            in_progress: InProgress::default(),
            kernels: Kernels::default(),
            allocations: Vec::new(),
            out_of_memory: Vec::new(),
            times_out_of_memory: 0,
            told_out_of_memory: 0,
            collectives: Collectives::new(process),
            mpi: Operations::default(),
            launches: LastLaunches::default(),
            last_work_ns: None,
            threads: HashMap::new(),
            gemms: Gemms::default(),
            first_waiting_ns: None,
            lost: 0,
        }
    }

    /// Adds a record that a thread wrote. `time_ns` is when the call began or when memory changed.
    pub fn take(
        &mut self,
        note: CallNote,
        thread: ThreadIndex,
        time_ns: u64,
        clock: &Clock,
        writer: &mut TraceWriter,
    ) {
        match note {
            CallNote::Call { function, number, end, result, kind, stream, detail, stack } => {
                let duration_ns = clock.ns(end).saturating_sub(time_ns);
                self.of_thread(thread, function, number, result, detail, time_ns + duration_ns);
                self.changed_memory(thread, number, time_ns, time_ns + duration_ns);
                self.unseen.called(function, result, detail);
                match function.does {
                    Effect::Meets { .. } if result == 0 => {
                        self.mpi.add(function.name.text(), None, time_ns + duration_ns);
                    }
                    Effect::Launches { .. } if result == 0 => {
                        self.launches.add(HookedLaunch {
                            start_ns: time_ns,
                            end_ns: time_ns + duration_ns,
                            kernel: detail,
                            stream: stream_of(number, stream),
                        });
                    }
                    _ => {}
                }
                if result == 0 && gives_work(function) {
                    self.last_work_ns = Some(time_ns);
                }
                if result == 0 {
                    let stream = stream_of(number, stream);
                    self.captures.called(number, stream, [time_ns, time_ns + duration_ns]);
                }
                if function.does == Effect::Ends && result == 0 {
                    self.context_ended(detail, thread, [time_ns, time_ns + duration_ns]);
                }
                if matches!(function.library, Library::Runtime | Library::Driver) {
                    // CUPTI records calls only while recording is on, so the hooks' calls are
                    // counted in the same time.
                    let starts_work =
                        matches!(function.does, Effect::Launches { .. } | Effect::Copies { .. });
                    match self.is_recorded_by_cupti(time_ns) {
                        true if starts_work => self.coverage.counted(thread, time_ns),
                        // CUPTI isn't known to record this call. Its agent may report later that it
                        // does.
                        false if starts_work => self.started.push((thread, time_ns)),
                        _ => {}
                    }
                    // The arguments must be kept: CUPTI's records have none, and no row of memory
                    // shows an allocation that failed. They are kept even if CUPTI isn't known to
                    // record this call, because its agent may report that later.
                    let takes = matches!(function.does, Effect::Allocates { .. } | Effect::Maps(_));
                    let args = (takes && result != 0)
                        .then(|| arguments(function, kind, stream, detail))
                        .flatten();
                    let args = args.map_or(NameId(0), |args| writer.name(&args));
                    let name = without_version(function.name.text());
                    let (from_ns, to_ns) = (time_ns, time_ns + duration_ns);
                    let call = StackOfCall { thread, name, from_ns, to_ns, stack, args };
                    let is_left_to_hooks = self.relies_on_hooks && may_be_left_to_hooks(number);
                    self.stack_of_call = (stack != 0 || args != NameId(0))
                        .then_some(call)
                        .filter(|_| !is_left_to_hooks);
                    if self.is_recorded_by_cupti(time_ns) && !is_left_to_hooks {
                        return;
                    }
                }
                let mut row =
                    self.row(thread, function, number, (time_ns, duration_ns, result), writer);
                row.stack = stack;
                if let Effect::Launches { .. } = function.does {
                    self.kernels.launched(Launched { row, kernel: detail, stream, number });
                } else {
                    let args = arguments(function, kind, stream, detail);
                    row.args = args.map_or(NameId(0), |args| writer.name(&args));
                    match function.does {
                        Effect::Copies { .. } => {
                            let is_fill = function.name.text().starts_with("cudaMemset");
                            let work = if is_fill { StartedWork::Fill } else { StartedWork::Copy };
                            let stream = stream_of(number, stream);
                            self.copies.push((row, work(detail), stream, number));
                        }
                        _ => self.spans.push(row),
                    }
                }
            }
            CallNote::Memory { function, number, change } => {
                self.memory(thread, time_ns, (function, number), &change);
            }
            CallNote::Reported(report) => self.reported(&report, thread, time_ns, writer),
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
                    function: function.name.text(),
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
                let times = (time_ns, duration_ns, result);
                let row = self.row(thread, function, number, times, writer);
                self.spans.push(Span { args: text.unwrap_or_default(), ..row });
            }
            CallNote::Communicator(joined) => self.collectives.joined(joined),
            CallNote::Kernel(kernel, name) => {
                self.handles.push((Handle::Kernel(kernel, hash_of(&name)), time_ns));
                self.kernels.name(kernel, &name);
            }
            CallNote::Stream(handle, stream) => {
                self.handles.push((Handle::Stream(handle, thread, stream), time_ns));
            }
        }
        self.first_waiting_ns.get_or_insert(time_ns);
    }

    /// Returns the time of the last call that gave a device work, ns.
    pub fn last_work_ns(&self) -> Option<u64> {
        self.last_work_ns
    }

    /// Returns the name of the kernel that was launched last, empty if it is unknown, and the time.
    pub fn last_launch(&self) -> Option<(&str, u64)> {
        let last = self.launches.last()?;
        Some((self.kernel_name(last.kernel), last.start_ns))
    }

    /// Returns the name of a kernel by its stub or handle; empty if it is unknown.
    pub fn kernel_name(&self, kernel: u64) -> &str {
        self.kernels.name_of(kernel)
    }

    /// Returns a row for a call, without the arguments.
    fn row(
        &mut self,
        thread: ThreadIndex,
        function: &Function,
        number: u32,
        (start_ns, duration_ns, result): (u64, u64, u32),
        writer: &mut TraceWriter,
    ) -> Span {
        let (kind, category) = match function.library {
            Library::Runtime => (SpanKind::Runtime, ""),
            Library::Driver => (SpanKind::Driver, ""),
            Library::Nccl => (SpanKind::Other, "nccl"),
            Library::Cublas | Library::CublasLt => (SpanKind::Other, "cublas"),
            Library::Mpi => (SpanKind::Other, "mpi"),
            Library::Torch => (SpanKind::Other, "torch"),
        };
        let name = self.name(function, number, writer);
        Span {
            start_ns,
            duration_ns,
            process: self.process,
            thread,
            kind,
            name,
            category: writer.name(category),
            status: Some(result),
            ..Span::default()
        }
    }

    fn is_recorded_by_cupti(&self, start_ns: u64) -> bool {
        self.cupti_calls_from_ns.is_some_and(|from| start_ns >= from)
    }

    /// Notes that CUPTI recorded a call to the CUDA runtime or driver, so the hooks' row isn't
    /// needed.
    pub fn recorded_by_cupti(&mut self, row: &Span) {
        if row.kind == SpanKind::Runtime {
            self.coverage.covered(row.thread, row.start_ns);
        }
        let since_ns = self.cupti_calls_from_ns.map_or(0, |from| row.start_ns.saturating_sub(from));
        self.in_progress.recorded(row, since_ns);
    }

    /// Sorts the calls that start work. Those that CUPTI leaves to the hooks wait for CUPTI's
    /// records of the work that they started. All others become spans.
    fn hand_over(&mut self, writer: &mut TraceWriter) {
        let launches = self.kernels.rows(writer).into_iter().map(|launched| {
            let Launched { row, kernel, stream, number } = launched;
            (row, StartedWork::Kernel(kernel), stream_of(number, stream), number)
        });
        let from_ns = self.cupti_calls_from_ns.filter(|_| self.relies_on_hooks);
        for (row, work, stream, number) in launches.chain(std::mem::take(&mut self.copies)) {
            let until_ns = row.start_ns + row.duration_ns;
            let runs = row.status == Some(0)
                && !matches!(work, StartedWork::Copy(0) | StartedWork::Fill(0));
            let is_left_to_hooks = may_be_left_to_hooks(number);
            if from_ns.is_none_or(|from_ns| until_ns < from_ns || !is_left_to_hooks) {
                // If CUPTI turns out to record this call, [`Self::leave_to_cupti`] removes the row
                // again.
                self.spans.push(row);
            } else if runs {
                let may_be_captured = self.captures.was_on(row.start_ns);
                if may_be_captured {
                    self.coverage.covered(row.thread, row.start_ns);
                }
                self.starting.push(StartingCall { row, stream, work, may_be_captured });
            } else {
                self.coverage.covered(row.thread, row.start_ns);
                self.alone.push(row);
            }
        }
    }

    /// Removes the rows of calls that CUPTI records as well. There are such rows if CUPTI began to
    /// record while they waited.
    fn leave_to_cupti(&mut self) {
        let Some(from_ns) = self.cupti_calls_from_ns else { return };
        let ends_later = |span: &mut Span| {
            matches!(span.kind, SpanKind::Runtime | SpanKind::Driver)
                && span.start_ns + span.duration_ns >= from_ns
        };
        for span in self.spans.extract_if(.., ends_later) {
            if span.start_ns < from_ns {
                self.in_progress.hold(span);
            }
        }
    }

    /// Applies what a call changes for later calls of its thread: the selected device, or an NCCL
    /// group.
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
        if function.does == Effect::Selects && result == 0 {
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
        (function, number): (&Function, u32),
        change: &MemoryChange,
    ) {
        let MemoryChange { address, bytes, stream, stack, free, context } = *change;
        let of_thread = self.threads.entry(thread).or_default().device;
        let selected = context.map_or(of_thread, |(_, device)| device);
        let (of, in_stream, device) = match function.does {
            Effect::Allocates { memory, stream, .. } | Effect::Frees { memory, stream } => {
                (memory, stream.is_some(), selected)
            }
            Effect::Resets { .. } => {
                (memory::DEVICE, false, (stream as u32).checked_sub(1).unwrap_or(selected))
            }
            Effect::Maps(how) => {
                let (what, of) = (address, stream);
                let call = MappingCall { how, time_ns, thread, what, bytes, of, stack };
                self.virtual_memory.called(call);
                return self.changes(thread, number, MemoryCall::of_mapping(&call));
            }
            _ => return,
        };
        let how = match function.does {
            Effect::Resets { .. } => CallKind::Reset(device),
            _ => CallKind::Plain,
        };
        let change = MemoryCall { address, bytes, free, from_ns: time_ns, to_ns: time_ns, how };
        self.changes(thread, number, change);
        let on_host = matches!(of, memory::PINNED | memory::REGISTERED);
        let row = DeviceAllocation {
            time_ns,
            process: self.process,
            thread,
            allocator: match of {
                memory::IMPORTED => Allocator::Imported,
                memory::REGISTERED => Allocator::Registered,
                _ if in_stream => Allocator::Pool,
                _ => Allocator::Library,
            },
            free,
            device: (!on_host).then_some(device),
            address,
            // The size of a freed block is left out here. Rings are read one after the other, so
            // the block that a free ends is known only when all rows are sorted by time.
            bytes: (!free && bytes > 0).then_some(bytes),
            kind: match of {
                memory::PINNED | memory::REGISTERED => MemoryKind::Pinned,
                memory::MANAGED => MemoryKind::Managed,
                memory::ARRAY => MemoryKind::Array,
                _ => MemoryKind::Device,
            },
            stream: in_stream.then_some(stream),
            stack,
            ..DeviceAllocation::default()
        };
        match context {
            _ if free => self.context_memory.freed(address, time_ns),
            Some((context, _)) if !in_stream => self.context_memory.allocated(context, row),
            _ => {}
        }
        self.allocations.push(row);
    }

    /// Records that a context ended during this call. The memory of the context was counted as
    /// freed here already, so CUPTI's reports of the same frees must not be counted.
    fn context_ended(&mut self, context: u64, thread: ThreadIndex, [from_ns, to_ns]: [u64; 2]) {
        if let Some(device) = self.context_memory.context_destroyed(context, thread, from_ns) {
            let how = CallKind::Reset(device);
            self.memory_calls.push(MemoryCall {
                address: 0,
                bytes: 0,
                free: true,
                from_ns,
                to_ns,
                how,
            });
        }
    }

    /// Notes that a thread changed memory in a call. The record of the call itself follows.
    fn changes(&mut self, thread: ThreadIndex, number: u32, change: MemoryCall) {
        let state = self.threads.entry(thread).or_default();
        if let Some((_, before)) = state.memory.replace((number, change)) {
            self.memory_calls.push(before);
        }
    }

    /// Records that a call returned. If the call changed memory, the change gets the start and the
    /// end of the call.
    fn changed_memory(&mut self, thread: ThreadIndex, number: u32, from_ns: u64, to_ns: u64) {
        let Some(state) = self.threads.get_mut(&thread) else { return };
        let Some((_, change)) = state.memory.take_if(|(of, _)| *of == number) else { return };
        self.memory_calls.push(MemoryCall { from_ns, to_ns, ..change });
    }

    fn name(&mut self, function: &Function, number: u32, writer: &mut TraceWriter) -> NameId {
        let at = number as usize;
        if self.names.len() <= at {
            self.names.resize(FUNCTIONS.len().max(at + 1), NameId(0));
        }
        if self.names[at] == NameId(0) {
            self.names[at] = writer.name(function.name.text());
        }
        self.names[at]
    }

    /// Passes the calls that only hooks recorded to `gpu`, which joins them with CUPTI's records of
    /// the work that they started.
    pub fn join_by_order(&mut self, gpu: &mut Gpu, now_ns: u64, last: bool) {
        for (handle, from_ns) in self.handles.drain(..) {
            gpu.by_order.is_from(handle, from_ns);
        }
        self.starting.drain(..).for_each(|call| gpu.by_order.called(call));
        for row in gpu.join_by_order(now_ns, last) {
            if row.correlation.is_some() {
                self.coverage.covered(row.thread, row.start_ns);
            }
        }
    }

    /// Returns the number of rows that wait to be written.
    fn rows(&self) -> usize {
        let calls = self.spans.len() + self.kernels.len() + self.copies.len();
        calls + self.in_progress.len() + self.allocations.len() + self.out_of_memory.len()
    }

    /// Makes the next call of [`Self::write`] write all rows, even if too few wait.
    pub fn write_all_next(&mut self) {
        self.first_waiting_ns = self.first_waiting_ns.map(|_| 0);
    }

    /// Writes the waiting rows if there are enough of them, if they have waited long enough, or if
    /// `last` is set.
    pub fn write(
        &mut self,
        now_ns: u64,
        last: bool,
        writer: &mut TraceWriter,
    ) -> Result<(), TraceError> {
        self.allocations.extend(self.virtual_memory.settle(now_ns, last));
        self.allocations.extend(self.context_memory.settle(now_ns, last));
        let rows = self.rows();
        let waited = self.first_waiting_ns.map_or(0, |first| now_ns.saturating_sub(first));
        if rows == 0 || !(last || rows >= MAX_ROWS || waited >= LONGEST_WAIT_NS) {
            return Ok(());
        }
        self.first_waiting_ns = None;
        self.hand_over(writer);
        self.leave_to_cupti();
        self.spans.extend(self.in_progress.settle(now_ns, last));
        self.spans.append(&mut self.alone);
        for (thread, start_ns) in std::mem::take(&mut self.started) {
            if self.is_recorded_by_cupti(start_ns) {
                self.coverage.counted(thread, start_ns);
            }
        }
        let lost = self.spans.len() + self.allocations.len() + self.out_of_memory.len();
        let mut result = writer.write(&mut self.spans);
        result = result.and(writer.write(&mut self.allocations));
        result = result.and(writer.write(&mut self.out_of_memory));
        if result.is_err() {
            self.lost += lost as u64;
        }
        result
    }
}

#[cfg(test)]
mod tests;
