//! Defines the columns of tables of device work.

use tprof_facts::stalls::StallReason;
use tprof_trace::model::*;

use crate::column::{Cell, columns};
use crate::context::Context;
use crate::rows::PlacedWork;

columns! { pub(crate) KERNELS of PlacedWork<Kernel>:
    "start_ns" Int "when it began, nanoseconds since the run began" |r, c| c.time(r.row.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::Int(r.row.duration_ns as i64);
    "name" Text "name, demangled" |r, c| c.name(r.row.name);
    "short_name" Text "name without template arguments and parameters, as reports print it" |r, _| Cell::text(&r.short_name);
    "class" Text "compute or communication, by the rules of `tprof report breakdown`" |r, c| class(r.at, c);
    "step" Int "number of the step in which it was launched" |r, c| Cell::opt(r.step(c));
    "launch_start_ns" Int "when the call that launched it began" |r, c| c.time_opt(r.launch(c).map(|call| call.start_ns));
    "launch_duration_ns" Int "how long that call took" |r, c| Cell::opt(r.launch(c).map(|call| call.duration_ns));
    "launch_name" Text "function of that call" |r, c| r.launch(c).map_or(Cell::Null, |call| c.name(call.name));
    "launch_thread" Id "row of `threads` of that call" |r, c| Cell::opt(r.launch(c).map(|call| call.thread));
    "process" Id "row of `processes`" |r, _| Cell::uint(r.row.process.into());
    "device" Int "device, as its process numbers them" |r, _| Cell::uint(r.row.device.into());
    "context" Int "context" |r, _| Cell::opt((r.row.context > 0).then_some(r.row.context));
    "stream" Int "stream" |r, _| Cell::uint(r.row.stream);
    "correlation" Int "the same in its launch" |r, _| Cell::opt(r.row.correlation);
    "external" Int "the same in the operator that caused it" |r, _| Cell::opt(r.row.external);
    "grid_x" Int "blocks" |r, _| size(r.row.grid, 0);
    "grid_y" Int "blocks" |r, _| size(r.row.grid, 1);
    "grid_z" Int "blocks" |r, _| size(r.row.grid, 2);
    "block_x" Int "threads of a block" |r, _| size(r.row.block, 0);
    "block_y" Int "threads of a block" |r, _| size(r.row.block, 1);
    "block_z" Int "threads of a block" |r, _| size(r.row.block, 2);
    "registers" Int "registers of a thread" |r, _| Cell::opt(r.row.registers);
    "shared_static_bytes" Int "static shared memory of a block" |r, _| Cell::opt(r.row.shared_static_bytes);
    "shared_dynamic_bytes" Int "dynamic shared memory of a block; of imported traces, both kinds" |r, _| Cell::opt(r.row.shared_dynamic_bytes);
    "graph" Int "graph that launched it" |r, _| Cell::opt(r.row.graph);
    "graph_node" Int "node of that graph" |r, _| Cell::opt(r.row.graph_node);
    "queued_ns" Int "when it was put into its queue" |r, c| c.time_opt(r.row.queued_ns);
    "submitted_ns" Int "when it was given to the device" |r, c| c.time_opt(r.row.submitted_ns);
    "args" Text "all further facts, as a JSON object" |r, c| c.name(r.row.args);
}

columns! { pub(crate) KERNEL_STALLS of KernelStall:
    "time_ns" Int "end of the time in which the samples were read, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "device" Int "device, as its process numbers them" |r, _| Cell::uint(r.device.into());
    "kernel" Text "name of the kernel, demangled" |r, c| c.name(r.kernel);
    "module" Int "number of the module that contains the kernel" |r, _| Cell::Int(r.module as i64);
    "offset_bytes" Int "distance of the instruction from the beginning of the kernel" |r, _| Cell::uint(r.offset);
    "file" Text "source file; null if unknown" |r, c| c.name(r.file);
    "line" Int "line in it; null if unknown" |r, _| Cell::opt((r.line > 0).then_some(r.line));
    "reason" Text "why the warp did not issue, as the end of CUPTI's name: `long_scoreboard`" |r, c| Cell::text(StallReason::of(c.trace.name(r.reason)).name);
    "reason_group" Text "issued, ready, memory, dependency, barrier, math, instruction, sleep or other" |r, c| Cell::Text(StallReason::of(c.trace.name(r.reason)).group.name());
    "not_issued" Bool "whether these samples are a part of the same reason's others: those in whose cycle nothing was issued" |r, c| Cell::Bool(StallReason::of(c.trace.name(r.reason)).is_not_issued);
    "samples" Int "number of samples" |r, _| Cell::uint(r.samples);
}

columns! { pub(crate) COPIES of PlacedWork<MemoryCopy>:
    "start_ns" Int "when it began, nanoseconds since the run began" |r, c| c.time(r.row.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::Int(r.row.duration_ns as i64);
    "kind" Text "h2d, d2h, d2d, h2h, p2p, memset or unknown" |r, _| Cell::Text(kind(r.row.kind));
    "from_memory" Text "kind of memory read" |r, _| Cell::text(memory(r.row.from));
    "to_memory" Text "kind of memory written" |r, _| Cell::text(memory(r.row.to));
    "bytes" Int "bytes" |r, _| Cell::opt(r.row.bytes);
    "name" Text "name in an imported trace" |r, c| c.name(r.row.name);
    "step" Int "number of the step in which it was launched" |r, c| Cell::opt(r.step(c));
    "launch_start_ns" Int "when the call that launched it began" |r, c| c.time_opt(r.launch(c).map(|call| call.start_ns));
    "launch_duration_ns" Int "how long that call took" |r, c| Cell::opt(r.launch(c).map(|call| call.duration_ns));
    "launch_name" Text "function of that call" |r, c| r.launch(c).map_or(Cell::Null, |call| c.name(call.name));
    "launch_thread" Id "row of `threads` of that call" |r, c| Cell::opt(r.launch(c).map(|call| call.thread));
    "process" Id "row of `processes`" |r, _| Cell::uint(r.row.process.into());
    "device" Int "device" |r, _| Cell::uint(r.row.device.into());
    "context" Int "context" |r, _| Cell::opt((r.row.context > 0).then_some(r.row.context));
    "stream" Int "stream" |r, _| Cell::uint(r.row.stream);
    "asynchronous" Bool "whether the call could return before it was done" |r, _| r.row.asynchronous.map_or(Cell::Null, Cell::Bool);
    "peer" Int "the other device of a peer copy" |r, _| Cell::opt(r.row.peer);
    "correlation" Int "the same in its call" |r, _| Cell::opt(r.row.correlation);
    "external" Int "the same in the operator that caused it" |r, _| Cell::opt(r.row.external);
    "graph" Int "graph that launched it" |r, _| Cell::opt(r.row.graph);
    "graph_node" Int "node of that graph" |r, _| Cell::opt(r.row.graph_node);
    "args" Text "all further facts, as a JSON object" |r, c| c.name(r.row.args);
}

columns! { pub(crate) SYNCHRONIZATIONS of Synchronization:
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
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "device" Int "device" |r, _| Cell::opt(r.device);
    "context" Int "context" |r, _| Cell::opt((r.context > 0).then_some(r.context));
    "stream" Int "stream that waits, or that is waited for" |r, _| Cell::opt(r.stream);
    "correlation" Int "the same in its call" |r, _| Cell::opt(r.correlation);
    "external" Int "the same in the operator around it" |r, _| Cell::opt(r.external);
    "event" Int "event that is waited for" |r, _| Cell::opt(r.event);
    "event_stream" Int "stream on which the event was recorded" |r, _| Cell::opt(r.event_stream);
    "event_correlation" Int "of the call that recorded it" |r, _| Cell::opt(r.event_correlation);
    "args" Text "all further facts, as a JSON object" |r, c| c.name(r.args);
}

columns! { pub(crate) DEVICE_SPANS of DeviceSpan:
    "start_ns" Int "when it began, nanoseconds since the run began" |r, c| c.time(r.start_ns);
    "duration_ns" Int "how long it took" |r, _| Cell::Int(r.duration_ns as i64);
    "kind" Text "annotation, counters or other" |r, _| Cell::Text(match r.kind {
        DeviceSpanKind::Annotation => "annotation",
        DeviceSpanKind::Counters => "counters",
        DeviceSpanKind::Other => "other",
    });
    "name" Text "name" |r, c| c.name(r.name);
    "category" Text "category where kind does not imply it" |r, c| c.name(r.category);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "device" Int "device" |r, _| Cell::uint(r.device.into());
    "stream" Int "stream; null if it covers the device" |r, _| Cell::opt(r.stream);
    "correlation" Int "correlation" |r, _| Cell::opt(r.correlation);
    "external" Int "the same in the host's span" |r, _| Cell::opt(r.external);
    "args" Text "all further facts, as a JSON object" |r, c| c.name(r.args);
}

columns! { pub(crate) ALLOCATIONS of DeviceAllocation:
    "time_ns" Int "when, nanoseconds since the run began" |r, c| c.time(r.time_ns);
    "process" Id "row of `processes`" |r, _| Cell::uint(r.process.into());
    "thread" Id "row of `threads`" |r, _| Cell::uint(r.thread.into());
    "allocator" Text "library (cudaMalloc), framework, pool, virtual (cuMemCreate), imported or registered" |r, _| Cell::Text(match r.allocator {
        Allocator::Library => "library",
        Allocator::Framework => "framework",
        Allocator::Pool => "pool",
        Allocator::Virtual => "virtual",
        Allocator::Imported => "imported",
        Allocator::Registered => "registered",
    });
    "free" Bool "given back rather than taken" |r, _| Cell::Bool(r.free);
    "device" Int "device; null for host memory" |r, _| Cell::opt(r.device);
    "address" Int "address" |r, _| Cell::opt(r.is_placed().then_some(r.address));
    "bytes" Int "bytes" |r, _| Cell::opt(r.bytes);
    "memory" Text "kind of memory" |r, _| Cell::text(memory(r.kind));
    "total_allocated_bytes" Int "bytes that the allocator has given out afterwards" |r, _| Cell::opt(r.total_allocated_bytes);
    "total_reserved_bytes" Int "bytes that the allocator holds afterwards" |r, _| Cell::opt(r.total_reserved_bytes);
    "stream" Int "stream of a stream-ordered allocation" |r, _| Cell::opt(r.stream);
    "correlation" Int "the same in its call" |r, _| Cell::opt(r.correlation);
    "external" Int "the same in the operator around it" |r, _| Cell::opt(r.external);
    "stack" Int "stack in `stack_frames`" |r, _| Cell::opt((r.stack > 0).then_some(r.stack));
}

/// Returns the class of the kernel that has this index in the work of its rank.
fn class<'a>(at: Option<u32>, context: &Context<'_>) -> Cell<'a> {
    at.map_or(Cell::Null, |at| Cell::Text(context.joined().class(at).name()))
}

/// Returns one of three sizes. Three zeros mean that the sizes are unknown.
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
