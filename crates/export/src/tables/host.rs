//! Tables of what host threads did.

use tprof_trace::model::*;

use super::column::{Cell, columns};

columns! { pub SPANS of Span:
    "start_ns" Int "when it began, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::Int(r.duration_ns as i64);
    "kind" Text "runtime, driver, operator, annotation, nvtx, python, overhead or other" |r, _| Cell::Text(kind(r.kind));
    "name" Text "function, operator or range" |r, c| c.name(r.name);
    "category" Text "NVTX domain, or the category of an imported trace where kind does not imply it" |r, c| c.name(r.category);
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "thread" Uint "row of `threads`" |r, _| Cell::Uint(r.thread.into());
    "tid" Uint "thread id" |r, c| c.tid(r.thread);
    "correlation" Uint "the same in what the call started on a device" |r, _| Cell::opt(r.correlation);
    "external" Uint "the same in the operator around it" |r, _| Cell::opt(r.external);
    "id" Uint "number of this span, where others refer to it" |r, _| Cell::opt(r.id);
    "parent" Uint "number of the span that called it" |r, _| Cell::opt(r.parent);
    "sequence" Uint "autograd's number, the same in a forward operator and its backward one" |r, _| Cell::opt(r.sequence);
    "forward_thread" Uint "thread of the forward operator" |r, _| Cell::opt(r.forward_thread);
    "status" Uint "what the call returned; 0 is success" |r, _| Cell::opt(r.status);
    "stack" Uint "stack in `stack_frames`" |r, _| Cell::opt((r.stack > 0).then_some(r.stack));
    "args" Text "all further facts, as a JSON object" |r, c| c.name(r.args);
    "allocations" Uint "allocations of its thread within it, where its process counted them (`--mem sampled`)" |r, _| Cell::opt(r.allocations);
    "allocated_bytes" Uint "bytes asked for by those" |r, _| Cell::opt(r.allocated_bytes);
}

columns! { pub COLLECTIVES of Collective:
    "start_ns" Int "when the host called it, or its kernel began if no call was recorded" |r, c| c.time(r.start_ns);
    "duration_ns" Int "how long the call took" |r, _| r.duration_ns.map_or(Cell::Null, |ns| Cell::Int(ns as i64));
    "name" Text "operation, e.g. all_reduce" |r, c| c.name(r.name);
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "thread" Uint "row of `threads`" |r, _| Cell::opt(r.thread);
    "communicator" Uint "row of `communicators`" |r, _| Cell::opt(r.communicator);
    "sequence" Uint "number of the operation on its communicator" |r, _| Cell::opt(r.sequence);
    "elements_in" Uint "elements that this rank gave" |r, _| Cell::opt(r.elements_in);
    "elements_out" Uint "elements that this rank got" |r, _| Cell::opt(r.elements_out);
    "element_type" Text "type of an element" |r, c| c.name(r.element_type);
    "bytes" Uint "bytes of the larger of the two" |r, _| Cell::opt(r.bytes);
    "group_size" Uint "ranks that take part" |r, _| Cell::opt(r.group_size);
    "peer" Uint "root, or the other rank" |r, _| Cell::opt(r.peer);
    "stream" Uint "stream" |r, _| Cell::opt(r.stream);
    "correlation" Uint "of its kernel" |r, _| Cell::opt(r.correlation);
    "algorithm" Text "algorithm that NCCL chose" |r, c| r.algorithm.map_or(Cell::Null, |name| c.name(name));
    "protocol" Text "protocol that NCCL chose" |r, c| r.protocol.map_or(Cell::Null, |name| c.name(name));
    "channels" Uint "channels that it runs on" |r, _| Cell::opt(r.channels);
}

columns! { pub CHANNEL_WORK of ChannelWork:
    "start_ns" Int "when it began, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::Int(r.duration_ns as i64);
    "kind" Text "kernel, send or receive" |r, _| Cell::Text(match r.kind {
        ChannelWorkKind::Kernel => "kernel",
        ChannelWorkKind::Send => "send",
        ChannelWorkKind::Receive => "receive",
    });
    "name" Text "operation" |r, c| c.name(r.name);
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "thread" Uint "row of `threads`" |r, _| Cell::Uint(r.thread.into());
    "communicator" Uint "row of `communicators`" |r, _| Cell::opt(r.communicator);
    "sequence" Uint "number of the operation, as in `collectives`" |r, _| Cell::opt(r.sequence);
    "channel" Uint "channel" |r, _| Cell::Uint(r.channel.into());
    "peer" Uint "the other rank" |r, _| Cell::opt(r.peer);
    "steps" Uint "steps" |r, _| Cell::opt(r.steps);
    "bytes" Uint "bytes that were moved" |r, _| Cell::opt(r.bytes);
    "device_wait_ns" Uint "time that steps waited for the device, summed" |r, _| Cell::opt(r.device_wait_ns);
    "peer_wait_ns" Uint "time that steps waited for the other rank, summed" |r, _| Cell::opt(r.peer_wait_ns);
    "network_ns" Uint "time that steps were on the network, summed" |r, _| Cell::opt(r.network_ns);
}

columns! { pub SAMPLES of Sample:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "thread" Uint "row of `threads`" |r, _| Cell::Uint(r.thread.into());
    "tid" Uint "thread id" |r, c| c.tid(r.thread);
    "stack" Uint "stack in `stack_frames`" |r, _| Cell::opt((r.stack > 0).then_some(r.stack));
    "weight_ns" Int "time for which it stands" |r, _| Cell::Int(r.weight_ns as i64);
    "state" Text "running, or what the thread waited for" |r, _| Cell::Text(state(r.state));
    "cpu" Uint "processor" |r, _| Cell::opt(r.cpu);
    "gil" Bool "whether it held Python's global lock" |r, _| r.gil.map_or(Cell::Null, Cell::Bool);
    "spread_ns" Int "of several stretches that were added up, from the first one to the last one's end" |r, _| r.spread_ns.map_or(Cell::Null, |ns| Cell::Int(ns as i64));
}

columns! { pub FLOW_POINTS of FlowPoint:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "category" Text "category of the arrow" |r, c| c.name(r.category);
    "name" Text "name of the arrow" |r, c| c.name(r.name);
    "id" Uint "number of the arrow in its category" |r, _| Cell::Uint(r.id);
    "end" Text "start, step or end" |r, _| Cell::Text(match r.end {
        FlowEnd::Start => "start",
        FlowEnd::Step => "step",
        FlowEnd::End => "end",
    });
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "thread" Uint "row of `threads`; null on a device" |r, _| Cell::opt(r.thread);
    "device" Uint "device, if it lies on one" |r, _| Cell::opt(r.device);
    "stream" Uint "stream" |r, _| Cell::opt(r.stream);
}

columns! { pub HEAP_EVENTS of HeapEvent:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "thread" Uint "row of `threads`" |r, _| Cell::Uint(r.thread.into());
    "free" Bool "given back rather than taken" |r, _| Cell::Bool(matches!(r.what, HeapWhat::Free { .. }));
    "ordinal" Uint "number of the allocation in its process; of a free, the one that it ends" |r, _| match r.what {
        HeapWhat::Alloc { ordinal, .. } => Cell::Uint(ordinal),
        HeapWhat::Free { ordinal, .. } => Cell::opt(ordinal),
    };
    "bytes" Uint "requested bytes" |r, _| match r.what {
        HeapWhat::Alloc { size, .. } => Cell::Uint(size),
        HeapWhat::Free { .. } => Cell::Null,
    };
    "realloc" Bool "half of a realloc" |r, _| match r.what {
        HeapWhat::Alloc { realloc, .. } | HeapWhat::Free { realloc, .. } => Cell::Bool(realloc),
    };
    "stack" Uint "stack in `stack_frames`" |r, _| match r.what {
        HeapWhat::Alloc { stack, .. } if stack > 0 => Cell::Uint(stack.into()),
        _ => Cell::Null,
    };
}

columns! { pub MAP_EVENTS of MapEvent:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "thread" Uint "row of `threads`" |r, _| Cell::Uint(r.thread.into());
    "kind" Text "map, unmap or remap" |r, _| Cell::Text(match r.kind {
        MapKind::Map => "map",
        MapKind::Unmap => "unmap",
        MapKind::Remap => "remap",
    });
    "address" Uint "first address" |r, _| Cell::Uint(r.address);
    "bytes" Uint "length" |r, _| Cell::Uint(r.length);
    "old_bytes" Uint "length of what a remap replaces" |r, _| Cell::opt((r.kind == MapKind::Remap).then_some(r.old_length));
    "stack" Uint "stack in `stack_frames`" |r, _| Cell::opt((r.stack > 0).then_some(r.stack));
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
