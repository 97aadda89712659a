//! Tables of what ran on devices.

use tprof_trace::model::*;

use super::column::{Cell, columns};

columns! { pub KERNELS of Kernel:
    "start_ns" Int "when it began, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::Int(r.duration_ns as i64);
    "name" Text "name, demangled" |r, c| c.name(r.name);
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "device" Uint "device, as its process numbers them" |r, _| Cell::Uint(r.device.into());
    "context" Uint "context" |r, _| Cell::opt((r.context > 0).then_some(r.context));
    "stream" Uint "stream" |r, _| Cell::Uint(r.stream);
    "correlation" Uint "the same in its launch" |r, _| Cell::opt(r.correlation);
    "external" Uint "the same in the operator that caused it" |r, _| Cell::opt(r.external);
    "grid_x" Uint "blocks" |r, _| size(r.grid, 0);
    "grid_y" Uint "blocks" |r, _| size(r.grid, 1);
    "grid_z" Uint "blocks" |r, _| size(r.grid, 2);
    "block_x" Uint "threads of a block" |r, _| size(r.block, 0);
    "block_y" Uint "threads of a block" |r, _| size(r.block, 1);
    "block_z" Uint "threads of a block" |r, _| size(r.block, 2);
    "registers" Uint "registers of a thread" |r, _| Cell::opt(r.registers);
    "shared_static_bytes" Uint "static shared memory of a block" |r, _| Cell::opt(r.shared_static_bytes);
    "shared_dynamic_bytes" Uint "dynamic shared memory of a block; of imported traces, both kinds" |r, _| Cell::opt(r.shared_dynamic_bytes);
    "graph" Uint "graph that launched it" |r, _| Cell::opt(r.graph);
    "graph_node" Uint "node of that graph" |r, _| Cell::opt(r.graph_node);
    "queued_ns" Int "when it was put into its queue" |r, c| c.time_opt(r.queued_ns);
    "submitted_ns" Int "when it was given to the device" |r, c| c.time_opt(r.submitted_ns);
    "args" Text "all further facts, as a JSON object" |r, c| c.name(r.args);
}

columns! { pub COPIES of MemoryCopy:
    "start_ns" Int "when it began, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::Int(r.duration_ns as i64);
    "kind" Text "h2d, d2h, d2d, h2h, p2p, memset or unknown" |r, _| Cell::Text(kind(r.kind));
    "from_memory" Text "kind of memory read" |r, _| Cell::text(memory(r.from));
    "to_memory" Text "kind of memory written" |r, _| Cell::text(memory(r.to));
    "bytes" Uint "bytes" |r, _| Cell::opt(r.bytes);
    "name" Text "name in an imported trace" |r, c| c.name(r.name);
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "device" Uint "device" |r, _| Cell::Uint(r.device.into());
    "context" Uint "context" |r, _| Cell::opt((r.context > 0).then_some(r.context));
    "stream" Uint "stream" |r, _| Cell::Uint(r.stream);
    "asynchronous" Bool "whether the call could return before it was done" |r, _| r.asynchronous.map_or(Cell::Null, Cell::Bool);
    "peer" Uint "the other device of a peer copy" |r, _| Cell::opt(r.peer);
    "correlation" Uint "the same in its call" |r, _| Cell::opt(r.correlation);
    "external" Uint "the same in the operator that caused it" |r, _| Cell::opt(r.external);
    "graph" Uint "graph that launched it" |r, _| Cell::opt(r.graph);
    "graph_node" Uint "node of that graph" |r, _| Cell::opt(r.graph_node);
    "args" Text "all further facts, as a JSON object" |r, c| c.name(r.args);
}

columns! { pub SYNCHRONIZATIONS of Synchronization:
    "start_ns" Int "when the wait began, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::Int(r.duration_ns as i64);
    "kind" Text "event, stream_wait_event, stream, context or unknown" |r, _| Cell::Text(match r.kind {
        SyncKind::Unknown => "unknown",
        SyncKind::Event => "event",
        SyncKind::StreamWaitEvent => "stream_wait_event",
        SyncKind::Stream => "stream",
        SyncKind::Context => "context",
    });
    "name" Text "name in an imported trace" |r, c| c.name(r.name);
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "device" Uint "device" |r, _| Cell::opt(r.device);
    "context" Uint "context" |r, _| Cell::opt((r.context > 0).then_some(r.context));
    "stream" Uint "stream that waits, or that is waited for" |r, _| Cell::opt(r.stream);
    "correlation" Uint "the same in its call" |r, _| Cell::opt(r.correlation);
    "external" Uint "the same in the operator around it" |r, _| Cell::opt(r.external);
    "event" Uint "event that is waited for" |r, _| Cell::opt(r.event);
    "event_stream" Uint "stream on which the event was recorded" |r, _| Cell::opt(r.event_stream);
    "event_correlation" Uint "of the call that recorded it" |r, _| Cell::opt(r.event_correlation);
    "args" Text "all further facts, as a JSON object" |r, c| c.name(r.args);
}

columns! { pub DEVICE_SPANS of DeviceSpan:
    "start_ns" Int "when it began, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::Int(r.duration_ns as i64);
    "kind" Text "annotation, counters or other" |r, _| Cell::Text(match r.kind {
        DeviceSpanKind::Annotation => "annotation",
        DeviceSpanKind::Counters => "counters",
        DeviceSpanKind::Other => "other",
    });
    "name" Text "name" |r, c| c.name(r.name);
    "category" Text "category where kind does not imply it" |r, c| c.name(r.category);
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "device" Uint "device" |r, _| Cell::Uint(r.device.into());
    "stream" Uint "stream; null if it covers the device" |r, _| Cell::opt(r.stream);
    "correlation" Uint "correlation" |r, _| Cell::opt(r.correlation);
    "external" Uint "the same in the host's span" |r, _| Cell::opt(r.external);
    "args" Text "all further facts, as a JSON object" |r, c| c.name(r.args);
}

columns! { pub ALLOCATIONS of DeviceAllocation:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "process" Uint "row of `processes`" |r, _| Cell::Uint(r.process.into());
    "thread" Uint "row of `threads`" |r, _| Cell::Uint(r.thread.into());
    "allocator" Text "library (cudaMalloc), framework, pool, virtual (cuMemCreate), imported or registered" |r, _| Cell::Text(match r.allocator {
        Allocator::Library => "library",
        Allocator::Framework => "framework",
        Allocator::Pool => "pool",
        Allocator::Virtual => "virtual",
        Allocator::Imported => "imported",
        Allocator::Registered => "registered",
    });
    "free" Bool "given back rather than taken" |r, _| Cell::Bool(r.free);
    "device" Uint "device; null for host memory" |r, _| Cell::opt(r.device);
    "address" Uint "address" |r, _| Cell::opt(r.is_placed().then_some(r.address));
    "bytes" Uint "bytes" |r, _| Cell::opt(r.bytes);
    "memory" Text "kind of memory" |r, _| Cell::text(memory(r.kind));
    "total_allocated_bytes" Uint "bytes that the allocator has given out afterwards" |r, _| Cell::opt(r.total_allocated_bytes);
    "total_reserved_bytes" Uint "bytes that the allocator holds afterwards" |r, _| Cell::opt(r.total_reserved_bytes);
    "stream" Uint "stream of a stream-ordered allocation" |r, _| Cell::opt(r.stream);
    "correlation" Uint "the same in its call" |r, _| Cell::opt(r.correlation);
    "external" Uint "the same in the operator around it" |r, _| Cell::opt(r.external);
    "stack" Uint "stack in `stack_frames`" |r, _| Cell::opt((r.stack > 0).then_some(r.stack));
}

/// One of three sizes; zeros are unknown.
fn size<'a>(sizes: [u32; 3], at: usize) -> Cell<'a> {
    Cell::opt((sizes != [0; 3]).then_some(sizes[at]))
}

fn kind(kind: CopyKind) -> &'static str {
    match kind {
        CopyKind::Unknown => "unknown",
        CopyKind::HostToDevice => "h2d",
        CopyKind::DeviceToHost => "d2h",
        CopyKind::DeviceToDevice => "d2d",
        CopyKind::HostToHost => "h2h",
        CopyKind::PeerToPeer => "p2p",
        CopyKind::Memset => "memset",
    }
}

fn memory(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Unknown => "",
        MemoryKind::Pageable => "pageable",
        MemoryKind::Pinned => "pinned",
        MemoryKind::Device => "device",
        MemoryKind::Array => "array",
        MemoryKind::Managed => "managed",
        MemoryKind::DeviceStatic => "device_static",
        MemoryKind::ManagedStatic => "managed_static",
    }
}
