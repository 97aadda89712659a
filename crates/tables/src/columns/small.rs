//! Defines the columns of tables of quantities and instants, and of tables that other tables' rows
//! refer to.

use tprof_facts::frames::{Frame, Frames};
use tprof_facts::histograms;
use tprof_facts::steps::{Step, StepSource};
use tprof_trace::model::*;

use crate::column::{Cell, columns};

columns! { pub(crate) HEAP_TOTALS of HeapTotals:
    "time_ns" Int "when they were read, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "allocations" Int "allocations so far" |r, _| Cell::uint(r.allocations);
    "frees" Int "frees so far" |r, _| Cell::uint(r.frees);
    "allocated_bytes" Int "requested bytes so far" |r, _| Cell::uint(r.allocated_bytes);
    "live_bytes" Int "live bytes" |r, _| Cell::opt(r.live_bytes);
    "peak_bytes" Int "highest live bytes so far" |r, _| Cell::opt(r.peak_bytes);
    "peak_at_ns" Int "when that was" |r, c| c.time_opt(r.peak_at_ns);
}

columns! { pub(crate) COUNTERS of Counter:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "name" Text "quantity with its unit last" |r, c| c.name(r.name);
    "value" Float "value" |r, _| Cell::Float(r.value);
    "process" Id "row of `processes`; null is the host or its cgroup" |r, _| Cell::opt(r.process);
    "device" Int "device, if it is one's" |r, _| Cell::opt(r.device);
}

columns! { pub(crate) MARKS of Mark:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "kind" Text "mark, step, recording_on, recording_off, histogram or machine_error" |r, _| Cell::Text(match r.kind {
        MarkKind::Mark => "mark",
        MarkKind::Step => "step",
        MarkKind::RecordingOn => "recording_on",
        MarkKind::RecordingOff => "recording_off",
        MarkKind::Histogram => "histogram",
        MarkKind::MachineError => "machine_error",
    });
    "name" Text "name" |r, c| match r.kind {
        MarkKind::Histogram => Cell::Text(histograms::split(c.trace.name(r.name)).0),
        _ => c.name(r.name),
    };
    "values" Text "of a histogram: what it counted, as JSON" |r, c| match r.kind {
        MarkKind::Histogram => Cell::Text(histograms::split(c.trace.name(r.name)).1),
        _ => Cell::Null,
    };
    "process" Id "row of `processes`; null is the whole run" |r, _| Cell::opt(r.process);
}

columns! { pub(crate) LOSSES of Loss:
    "time_ns" Int "when it was noticed, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "what" Text "what was lost" |r, c| c.name(r.what);
    "count" Int "how many; null if unknown" |r, _| Cell::opt((r.count > 0).then_some(r.count));
    "why" Text "why" |r, c| c.name(r.why);
    "process" Id "row of `processes`; null is the run" |r, _| Cell::opt(r.process);
}

columns! { pub(crate) PROCESSES of Process:
    "process" Id "number that other tables use; an exec begins another" |r, _| Cell::uint(r.process.into());
    "pid" Int "process id" |r, _| Cell::uint(r.pid.into());
    "parent" Int "parent's process id" |r, _| Cell::opt((r.parent > 0).then_some(r.parent));
    "command" Text "command line" |r, c| c.name(r.command);
    "exe" Text "executable" |r, c| c.name(r.exe);
    "start_ns" Int "when it attached, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "end_ns" Int "when it ended" |r, c| c.time_opt(c.trace.process_end(r.process).map(|end| end.0));
    "exit_status" Id "exit status, if it exited" |r, c| match c.trace.process_end(r.process) {
        Some((_, ProcessEnd::Exited(status))) => Cell::Int(status.into()),
        _ => Cell::Null,
    };
    "signal" Id "signal, if it was killed" |r, c| match c.trace.process_end(r.process) {
        Some((_, ProcessEnd::Signal(signal))) => Cell::Int(signal.into()),
        _ => Cell::Null,
    };
    "memory" Text "how allocations were recorded: exact, sampled or off" |r, _| Cell::Text(match r.memory {
        MemoryRecording::Off => "off",
        MemoryRecording::Sampled { .. } => "sampled",
        MemoryRecording::Exact => "exact",
    });
    "sample_interval_bytes" Int "mean bytes between samples of allocations" |r, _| match r.memory {
        MemoryRecording::Sampled { interval } => Cell::uint(interval),
        MemoryRecording::Off | MemoryRecording::Exact => Cell::Null,
    };
}

columns! { pub(crate) THREADS of Thread:
    "thread" Id "number that other tables use" |r, _| Cell::uint(r.thread.into());
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "tid" Int "thread id" |r, _| Cell::uint(r.tid.into());
    "name" Text "its last name" |r, c| Cell::text(c.trace.thread_name(r.thread).unwrap_or_default());
    "start_ns" Int "when its first event was recorded, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "end_ns" Int "when it ended" |r, c| c.time_opt(c.trace.thread_end(r.thread));
}

columns! { pub(crate) DEVICES of Device:
    "process" Id "row of `processes`; devices are numbered by process" |r, _| Cell::uint(r.process.into());
    "device" Int "number" |r, _| Cell::uint(r.device.into());
    "name" Text "name" |r, c| c.name(r.name);
    "uuid" Text "UUID" |r, c| c.name(r.uuid);
    "memory_bytes" Int "memory" |r, _| Cell::opt(r.memory_bytes);
    "processors" Int "multiprocessors" |r, _| Cell::opt(r.processors);
    "compute_major" Id "compute capability" |r, _| Cell::opt(r.compute_major);
    "compute_minor" Id "compute capability" |r, _| Cell::opt(r.compute_minor);
    "properties" Text "everything else, as a JSON object" |r, c| c.name(r.properties);
}

columns! { pub(crate) STREAMS of Stream:
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "device" Int "device" |r, _| Cell::uint(r.device.into());
    "context" Int "context" |r, _| Cell::opt((r.context > 0).then_some(r.context));
    "stream" Int "stream" |r, _| Cell::uint(r.stream);
    "name" Text "name" |r, c| c.name(r.name);
    "priority" Int "priority, as its library has it: lower ones go first" |r, _| r.priority.map_or(Cell::Null, |of| Cell::Int(i64::from(of) - (1 << 31)));
}

columns! { pub(crate) STEPS of StepRow:
    "step" Int "its number as its source gave it; without one, its place, from 0" |r, _| Cell::uint(r.step.number);
    "start_ns" Int "when it began, nanoseconds since the run began" |r, c| c.time(r.step.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::uint(r.step.end_ns.saturating_sub(r.step.start_ns));
    "process" Id "row of `processes`" |r, _| Cell::uint(r.step.process.into());
    "source" Text "what names it: explicit, profiler, optimizer, loader, or inferred, an estimate" |r, _| r.source.map_or(Cell::Null, |of| Cell::Text(of.word()));
}

/// A training step.
#[derive(Clone, Debug)]
pub(crate) struct StepRow {
    pub step: Step,
    pub source: Option<StepSource>,
}

columns! { pub(crate) EXTERNAL_IDS of ExternalId:
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "correlation" Int "the same in the call" |r, _| Cell::uint(r.correlation);
    "kind" Text "numbering: custom0 (PyTorch's operators), custom1 (its annotations), custom2, \
                 openacc, unknown" |r, _| Cell::Text(match r.kind {
        ExternalKind::Unknown => "unknown",
        ExternalKind::OpenAcc => "openacc",
        ExternalKind::Custom0 => "custom0",
        ExternalKind::Custom1 => "custom1",
        ExternalKind::Custom2 => "custom2",
    });
    "id" Int "the id that its thread had pushed" |r, _| Cell::uint(r.id);
}

columns! { pub(crate) COMMUNICATORS of Communicator:
    "process" Id "row of `processes` that uses it so" |r, _| Cell::uint(r.process.into());
    "communicator" Int "number" |r, _| Cell::uint(r.communicator);
    "name" Text "name of the process group" |r, c| c.name(r.name);
    "description" Text "what it is for" |r, c| c.name(r.description);
    "backend" Text "nccl, gloo, …" |r, c| c.name(r.backend);
    "size" Int "ranks in it" |r, _| Cell::opt(r.size);
    "group_rank" Int "this process's rank in it" |r, _| Cell::opt(r.rank);
}

columns! { pub(crate) CONNECTIONS of Connection:
    "process" Id "row of `processes` that wrote so" |r, _| Cell::uint(r.process.into());
    "communicator" Int "row of `communicators`; null where several fit" |r, _| Cell::opt(r.communicator);
    "from_rank" Int "rank in the communicator that sends; null for a switch" |r, _| Cell::opt(r.from);
    "to_rank" Int "rank in the communicator that receives; null for a switch" |r, _| Cell::opt(r.to);
    "sends" Bool "whether the process sends; a connection over a network is in both ranks" |r, _| Cell::Bool(r.sends);
    "transport" Text "P2P/CUMEM, SHM/direct/direct, NET/IB/0/GDRDMA, …" |r, c| c.name(r.transport);
    "channels" Int "channels that are connected so" |r, _| Cell::uint(r.channels.into());
}

/// One function of a stack.
#[derive(Clone, Debug)]
pub(crate) struct StackFrame {
    process: ProcessIndex,
    stack: StackId,
    depth: u64,
    function: String,
    file: String,
    line: u32,
    module: String,
}

/// Returns the functions of a stack, the outermost first.
pub(crate) fn frames(frames: &Frames<'_>, stack: &Stack) -> Vec<StackFrame> {
    let (process, stack) = (stack.process, stack.stack);
    let located = frames.of_stack(process, stack).into_iter().zip(0..);
    let one = |(found, depth): (Frame<'_>, u64)| StackFrame {
        process,
        stack,
        depth,
        function: found.function.into_owned(),
        file: found.file.to_owned(),
        line: found.line,
        module: found.module.to_owned(),
    };
    located.map(one).collect()
}

columns! { pub(crate) STACK_FRAMES of StackFrame:
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "stack" Int "number that other tables use, in its process" |r, _| Cell::uint(r.stack.into());
    "depth" Id "0 is the outermost function" |r, _| Cell::uint(r.depth);
    "function" Text "function, inlined ones included" |r, _| Cell::text(&r.function);
    "file" Text "source file" |r, _| Cell::text(&r.file);
    "line" Int "line" |r, _| Cell::opt((r.line > 0).then_some(r.line));
    "module" Text "library or program" |r, _| Cell::text(&r.module);
}

/// A property of the file, as a key and a value.
#[derive(Clone, Debug)]
pub(crate) struct PropertyText {
    pub key: String,
    pub value: String,
}

columns! { pub(crate) PROPERTIES of PropertyText:
    "key" Text "what; of an imported trace, a member of its top level" |r, _| Cell::text(&r.key);
    "value" Text "the fact, as JSON" |r, _| Cell::text(&r.value);
}
