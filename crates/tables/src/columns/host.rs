//! Defines the columns of tables of host threads' activity.

use tprof_analyze::joined::{JoinedCollective, SpanPlace};
use tprof_trace::model::*;

use crate::column::{Cell, columns};
use crate::context::Context;
use crate::rows::{OperatorInputs, SampleRow, SpanRow};

columns! { pub(crate) SPANS of SpanRow:
    "start_ns" Int "when it began, nanoseconds since the run began" |r, c| c.time(r.row.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::Int(r.row.duration_ns as i64);
    "kind" Text "runtime, driver, operator, annotation, nvtx, python, overhead or other" |r, _| Cell::Text(kind(r.row.kind));
    "name" Text "function, operator or range" |r, c| c.name(r.row.name);
    "category" Text "NVTX domain, or the category of an imported trace where kind does not imply it" |r, c| c.name(r.row.category);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.row.process.into());
    "thread" Id "row of `threads`" |r, _| Cell::uint(r.row.thread.into());
    "tid" Int "thread id" |r, c| c.tid(r.row.thread);
    "row" Int "number of this row in its file" |r, _| Cell::opt(r.at);
    "parent_row" Int "`row` of the innermost span of its thread that holds all of it" |r, c| Cell::opt(place(r, c).and_then(|place| place.parent));
    "depth" Id "how many spans hold it" |r, c| Cell::opt(place(r, c).map(|place| place.depth));
    "self_ns" Int "its duration without that of the spans right within it" |r, c| Cell::opt(place(r, c).map(|place| place.self_ns));
    "step" Int "number of the step in which it began" |r, c| Cell::opt(c.joined().step_at(r.row.process, r.row.start_ns));
    "input_shapes" Text "sizes of an operator's inputs, as a JSON list" |r, _| inputs(r, |inputs| &inputs.shapes);
    "input_types" Text "their types, as a JSON list" |r, _| inputs(r, |inputs| &inputs.types);
    "flops" Int "floating-point operations of an operator that counts, by its sizes (`tprof report flops`)" |r, c| Cell::opt(place(r, c).and_then(|place| place.flops));
    "flop_bytes" Int "bytes that it reads and writes at least" |r, c| Cell::opt(place(r, c).and_then(|place| place.bytes));
    "flop_row" Int "`row` of the innermost operator around it that has `flops`, itself included" |r, c| Cell::opt(place(r, c).and_then(|place| place.counted));
    "correlation" Int "the same in what the call started on a device" |r, _| Cell::opt(r.row.correlation);
    "external" Int "the same in the operator around it" |r, _| Cell::opt(r.row.external);
    "id" Int "number of this span, where others refer to it" |r, _| Cell::opt(r.row.id);
    "parent" Int "number of the span that called it" |r, _| Cell::opt(r.row.parent);
    "sequence" Int "autograd's number, the same in a forward operator and its backward one" |r, _| Cell::opt(r.row.sequence);
    "forward_thread" Int "thread of the forward operator" |r, _| Cell::opt(r.row.forward_thread);
    "status" Int "what the call returned; 0 is success" |r, _| Cell::opt(r.row.status);
    "stack" Int "stack in `stack_frames`" |r, _| Cell::opt((r.row.stack > 0).then_some(r.row.stack));
    "args" Text "all further facts, as a JSON object" |r, c| c.name(r.row.args);
    "allocations" Int "allocations of its thread within it, where its process counted them (`--mem sampled`)" |r, _| Cell::opt(r.row.allocations);
    "allocated_bytes" Int "bytes asked for by those" |r, _| Cell::opt(r.row.allocated_bytes);
}

columns! { pub(crate) COLLECTIVES of Collective:
    "start_ns" Int "when the host called it, or its kernel began if no call was recorded" |r, c| c.time(r.start_ns);
    "duration_ns" Int "how long the call took" |r, _| r.duration_ns.map_or(Cell::Null, |ns| Cell::Int(ns as i64));
    "name" Text "operation, e.g. all_reduce" |r, c| c.name(r.name);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "thread" Id "row of `threads`" |r, _| Cell::opt(r.thread);
    "communicator" Int "row of `communicators`" |r, _| Cell::opt(r.communicator);
    "sequence" Int "number of the operation on its communicator" |r, _| Cell::opt(r.sequence);
    "elements_in" Int "elements that this rank gave" |r, _| Cell::opt(r.elements_in);
    "elements_out" Int "elements that this rank got" |r, _| Cell::opt(r.elements_out);
    "element_type" Text "type of an element" |r, c| c.name(r.element_type);
    "bytes" Int "bytes of the larger of the two" |r, _| Cell::opt(r.bytes);
    "group_size" Int "ranks that take part" |r, _| Cell::opt(r.group_size);
    "peer" Int "root, or the other rank" |r, _| Cell::opt(r.peer);
    "stream" Int "stream" |r, _| Cell::opt(r.stream);
    "correlation" Int "of its kernel" |r, _| Cell::opt(r.correlation);
    "algorithm" Text "algorithm that NCCL chose" |r, c| r.algorithm.map_or(Cell::Null, |name| c.name(name));
    "protocol" Text "protocol that NCCL chose" |r, c| r.protocol.map_or(Cell::Null, |name| c.name(name));
    "channels" Int "channels that it runs on" |r, _| Cell::opt(r.channels);
}

columns! { pub(crate) COLLECTIVE_RUNS of JoinedCollective:
    "start_ns" Int "when its kernel, or its work on the host, began, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "duration_ns" Int "how long that took: the wait for the last rank, and the transfer" |r, _| Cell::uint(r.duration_ns);
    "added_ns" Int "what of that no operation before it took, too" |r, _| Cell::uint(r.added_ns);
    "name" Text "operation, e.g. all_reduce; kernel where not even the kernel's name has it" |r, _| Cell::text(&r.name);
    "meeting" Int "equal in all ranks that took part in the same collective, where every rank waits for all others" |r, _| Cell::opt(r.collective_id);
    "occurrence" Int "its number on its communicator, or its place among those alike of its step, from 1" |r, _| Cell::opt(r.occurrence);
    "step" Int "number of its step" |r, _| Cell::opt(r.step);
    "bytes" Int "bytes of the larger of what the rank gave and got" |r, _| Cell::opt(r.bytes);
    "element_type" Text "type of an element" |r, _| Cell::text(&r.element_type);
    "group_size" Int "ranks that take part" |r, _| Cell::opt(r.group_size);
    "communicator" Int "row of `communicators`" |r, _| Cell::opt(r.communicator);
    "sequence" Int "number of the operation on its communicator" |r, _| Cell::opt(r.sequence);
    "algorithm" Text "algorithm that its library chose" |r, _| Cell::text(&r.algorithm);
    "protocol" Text "protocol that its library chose" |r, _| Cell::text(&r.protocol);
    "channels" Int "channels that it runs on" |r, _| Cell::opt(r.channels);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "device" Int "device; null of one on the host" |r, _| Cell::opt(r.stream.map(|key| key.device));
    "stream" Int "stream; null of one on the host" |r, _| Cell::opt(r.stream.map(|key| key.stream));
}

columns! { pub(crate) CHANNEL_WORK of ChannelWork:
    "start_ns" Int "when it began, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::Int(r.duration_ns as i64);
    "kind" Text "kernel, send or receive" |r, _| Cell::Text(match r.kind {
        ChannelWorkKind::Kernel => "kernel",
        ChannelWorkKind::Send => "send",
        ChannelWorkKind::Receive => "receive",
    });
    "name" Text "operation" |r, c| c.name(r.name);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "thread" Id "row of `threads`" |r, _| Cell::uint(r.thread.into());
    "communicator" Int "row of `communicators`" |r, _| Cell::opt(r.communicator);
    "sequence" Int "number of the operation, as in `collectives`" |r, _| Cell::opt(r.sequence);
    "channel" Int "channel" |r, _| Cell::uint(r.channel.into());
    "peer" Int "the other rank" |r, _| Cell::opt(r.peer);
    "steps" Int "steps" |r, _| Cell::opt(r.steps);
    "bytes" Int "bytes that were moved" |r, _| Cell::opt(r.bytes);
    "device_wait_ns" Int "time that steps waited for the device, summed" |r, _| Cell::opt(r.device_wait_ns);
    "peer_wait_ns" Int "time that steps waited for the other rank, summed" |r, _| Cell::opt(r.peer_wait_ns);
    "network_ns" Int "time that steps were on the network, summed" |r, _| Cell::opt(r.network_ns);
}

columns! { pub(crate) SAMPLES of SampleRow:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.row.time_ns);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.row.process.into());
    "thread" Id "row of `threads`" |r, _| Cell::uint(r.row.thread.into());
    "tid" Int "thread id" |r, c| c.tid(r.row.thread);
    "stack" Int "stack in `stack_frames`" |r, _| Cell::opt((r.row.stack > 0).then_some(r.row.stack));
    "function" Text "its innermost function, which may be an inlined one" |r, _| r.innermost.as_ref().map_or(Cell::Null, |at| Cell::text(&at.function));
    "file" Text "source file of the line that ran or waited" |r, _| r.innermost.as_ref().map_or(Cell::Null, |at| Cell::text(&at.file));
    "line" Int "that line" |r, _| Cell::opt(r.innermost.as_ref().map(|at| at.line).filter(|line| *line > 0));
    "module" Text "library or program of the function" |r, _| r.innermost.as_ref().map_or(Cell::Null, |at| Cell::text(&at.module));
    "weight_ns" Int "time for which it stands" |r, _| Cell::Int(r.row.weight_ns as i64);
    "state" Text "running, or what the thread waited for" |r, _| Cell::Text(state(r.row.state));
    "cpu" Id "processor" |r, _| Cell::opt(r.row.cpu);
    "gil" Bool "whether it held Python's global lock" |r, _| r.row.gil.map_or(Cell::Null, Cell::Bool);
    "spread_ns" Int "of several stretches that were added up, from the first one to the last one's end" |r, _| r.row.spread_ns.map_or(Cell::Null, |ns| Cell::Int(ns as i64));
}

columns! { pub(crate) FLOW_POINTS of FlowPoint:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "category" Text "category of the arrow" |r, c| c.name(r.category);
    "name" Text "name of the arrow" |r, c| c.name(r.name);
    "id" Int "number of the arrow in its category" |r, _| Cell::uint(r.id);
    "end" Text "start, step or end" |r, _| Cell::Text(match r.end {
        FlowEnd::Start => "start",
        FlowEnd::Step => "step",
        FlowEnd::End => "end",
    });
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "thread" Id "row of `threads`; null on a device" |r, _| Cell::opt(r.thread);
    "device" Int "device, if it lies on one" |r, _| Cell::opt(r.device);
    "stream" Int "stream" |r, _| Cell::opt(r.stream);
}

columns! { pub(crate) HEAP_EVENTS of HeapEvent:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "thread" Id "row of `threads`" |r, _| Cell::uint(r.thread.into());
    "free" Bool "given back rather than taken" |r, _| Cell::Bool(matches!(r.what, HeapChange::Free { .. }));
    "ordinal" Int "number of the allocation in its process; of a free, the one that it ends" |r, _| match r.what {
        HeapChange::Alloc { ordinal, .. } => Cell::uint(ordinal),
        HeapChange::Free { ordinal, .. } => Cell::opt(ordinal),
    };
    "bytes" Int "requested bytes" |r, _| match r.what {
        HeapChange::Alloc { size, .. } => Cell::uint(size),
        HeapChange::Free { .. } => Cell::Null,
    };
    "realloc" Bool "half of a realloc" |r, _| match r.what {
        HeapChange::Alloc { realloc, .. } | HeapChange::Free { realloc, .. } => Cell::Bool(realloc),
    };
    "stack" Int "stack in `stack_frames`" |r, _| match r.what {
        HeapChange::Alloc { stack, .. } if stack > 0 => Cell::uint(stack.into()),
        _ => Cell::Null,
    };
}

columns! { pub(crate) MAP_EVENTS of MapEvent:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "thread" Id "row of `threads`" |r, _| Cell::uint(r.thread.into());
    "kind" Text "map, unmap, remap; attach or detach of a System V segment" |r, _| Cell::Text(match r.kind {
        MapKind::Map => "map",
        MapKind::Unmap => "unmap",
        MapKind::Remap => "remap",
        MapKind::Attach => "attach",
        MapKind::Detach => "detach",
    });
    "address" Int "first address" |r, _| Cell::uint(r.address);
    "bytes" Int "length" |r, _| Cell::uint(r.length);
    "old_bytes" Int "length of what a remap replaces" |r, _| Cell::opt((r.kind == MapKind::Remap).then_some(r.old_length));
    "stack" Int "stack in `stack_frames`" |r, _| Cell::opt((r.stack > 0).then_some(r.stack));
}

/// Returns the place of a span among its thread's spans; `None` if no wanted column needs it.
fn place(row: &SpanRow, context: &Context<'_>) -> Option<SpanPlace> {
    Some(context.places().place(row.at?))
}

fn inputs(row: &SpanRow, of: fn(&OperatorInputs) -> &String) -> Cell<'_> {
    row.inputs.as_deref().map_or(Cell::Null, |inputs| Cell::text(of(inputs)))
}

fn kind(kind: SpanKind) -> &'static str {
    match kind {
        SpanKind::Runtime => "runtime",
        SpanKind::Driver => "driver",
        SpanKind::Operator => "operator",
        SpanKind::Annotation => "annotation",
        SpanKind::Nvtx => "nvtx",
        SpanKind::Python => "python",
        SpanKind::Overhead => "overhead",
        SpanKind::Other => "other",
    }
}

fn state(state: ThreadState) -> &'static str {
    match state {
        ThreadState::Running => "running",
        ThreadState::Runnable => "runnable",
        ThreadState::Blocked => "blocked",
        ThreadState::Lock => "lock",
        ThreadState::Io => "io",
        ThreadState::Sleep => "sleep",
        ThreadState::Poll => "poll",
        ThreadState::Gil => "gil",
        ThreadState::Device => "device",
    }
}

columns! { pub(crate) THREAD_COUNTS of ThreadCounts:
    "time_ns" Int "when they were read, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "thread" Id "row of `threads`" |r, _| Cell::uint(r.thread.into());
    "tid" Int "thread id" |r, c| c.tid(r.thread);
    "voluntary" Int "how often it left its core to wait" |r, _| Cell::opt(r.voluntary);
    "involuntary" Int "how often it left its core although it could have gone on" |r, _| Cell::opt(r.involuntary);
    "migrations" Int "how often it came back on another core" |r, _| Cell::opt(r.migrations);
    "minor_faults" Int "pages that it touched first, and that were in memory" |r, _| Cell::opt(r.minor_faults);
    "major_faults" Int "pages that it touched and that had to be read" |r, _| Cell::opt(r.major_faults);
}

columns! { pub(crate) EVENT_SAMPLES of EventSample:
    "time_ns" Int "when the last of them was counted, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "thread" Id "row of `threads`" |r, _| Cell::uint(r.thread.into());
    "tid" Int "thread id" |r, c| c.tid(r.thread);
    "event" Text "kind of event, as `perf list` calls it" |r, c| c.name(r.event);
    "count" Int "how many since the last row of that kind and thread" |r, _| Cell::uint(r.count);
    "stack" Int "stack in `stack_frames`: the innermost frame of the last one" |r, _| Cell::opt((r.stack > 0).then_some(r.stack));
}
