//! Lists the columns of the tables of devices and of the work on them.

use super::field::{columns_of, numbered, part_of};
use super::{Row, narrow, rows, table};
use crate::columns::BlockWriter;
use crate::columns_read::Columns;
use crate::error::Damage;
use crate::model::*;

numbered! {
    CopyKind, else Unknown:
    Unknown, HostToDevice, DeviceToHost, DeviceToDevice, HostToHost, PeerToPeer, Memset,
}
numbered! {
    MemoryKind, else Unknown:
    Unknown, Pageable, Pinned, Device, Array, Managed, DeviceStatic, ManagedStatic,
}
numbered! { SyncKind, else Unknown: Unknown, Event, StreamWaitEvent, Stream, Context }
numbered! { DeviceSpanKind, else Other: Annotation, Counters, Other }
numbered! { ExternalKind, else Unknown: Unknown, OpenAcc, Custom0, Custom1, Custom2 }
numbered! {
    Allocator, else Library: Library, Framework, Pool, Virtual, Imported, Registered,
}

columns_of! {
    Kernel in KERNELS, from start_ns for duration_ns;
    1 steady start_ns,
    2 plain duration_ns,
    3 plain process,
    4 plain device,
    5 plain context,
    6 plain stream,
    7 plain name,
    8 steady correlation,
    9 steady external,
    10 plain grid,
    13 plain block,
    16 plain registers,
    17 plain shared_static_bytes,
    18 plain shared_dynamic_bytes,
    19 plain graph,
    20 plain graph_node,
    21 steady queued_ns,
    22 steady submitted_ns,
    23 plain args,
}

part_of! {
    KernelShape of KERNELS;
    3 process,
    4 device,
    7 name,
    13 block,
    16 registers,
    17 shared_static_bytes,
    18 shared_dynamic_bytes,
}

part_of! {
    KernelOutline of KERNELS, from start_ns;
    1 start_ns,
    2 duration_ns,
    3 process,
    4 device,
    5 context,
    6 stream,
    7 name,
    8 correlation,
    10 grid,
    19 graph,
    23 args,
}

columns_of! {
    KernelStall in KERNEL_STALLS, from time_ns;
    1 steady time_ns,
    2 plain process,
    3 plain device,
    4 plain kernel,
    5 plain module,
    6 steady offset,
    7 plain reason,
    8 plain samples,
    9 plain file,
    10 plain line,
}

columns_of! {
    MemoryCopy in COPIES, from start_ns for duration_ns;
    1 steady start_ns,
    2 plain duration_ns,
    3 plain process,
    4 plain device,
    5 plain context,
    6 plain stream,
    7 plain kind,
    8 plain from,
    9 plain to,
    10 plain bytes,
    11 plain asynchronous,
    12 plain peer,
    13 plain name,
    14 steady correlation,
    15 steady external,
    16 plain graph,
    17 plain graph_node,
    18 plain args,
}

columns_of! {
    Synchronization in SYNCHRONIZATIONS, from start_ns for duration_ns;
    1 steady start_ns,
    2 plain duration_ns,
    3 plain process,
    4 plain device,
    5 plain context,
    6 plain stream,
    7 plain kind,
    8 steady correlation,
    9 steady external,
    10 plain event,
    11 plain event_stream,
    12 steady event_correlation,
    13 plain name,
    14 plain args,
}

columns_of! {
    DeviceSpan in DEVICE_SPANS, from start_ns for duration_ns;
    1 steady start_ns,
    2 plain duration_ns,
    3 plain process,
    4 plain device,
    5 plain stream,
    6 plain kind,
    7 plain name,
    8 plain category,
    9 steady external,
    10 steady correlation,
    11 plain args,
}

columns_of! {
    DeviceAllocation in DEVICE_ALLOCATIONS, from time_ns;
    1 steady time_ns,
    2 plain process,
    3 plain thread,
    4 plain allocator,
    5 plain free,
    6 plain device,
    7 steady address,
    8 plain bytes,
    9 plain kind,
    10 steady total_allocated_bytes,
    11 steady total_reserved_bytes,
    12 plain stream,
    13 steady correlation,
    14 steady external,
    15 plain stack,
}

columns_of! {
    ExternalId in EXTERNAL_IDS;
    1 plain process,
    2 steady correlation,
    3 plain kind,
    4 steady id,
}

columns_of! {
    ClockJoin in CLOCK_JOINS, from time_ns;
    1 steady time_ns,
    2 steady foreign_ns,
    3 plain uncertainty_ns,
    4 plain process,
    5 plain source,
}

impl Row for Device {
    const TABLE: u16 = table::DEVICES;

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.process.into());
        block.uint(2, rows, |r| r.device.into());
        block.uint(3, rows, |r| r.name.0.into());
        block.uint(4, rows, |r| r.uuid.0.into());
        block.option(5, rows, |r| r.memory_bytes);
        block.option(6, rows, |r| r.processors.map(u64::from));
        block.option(7, rows, |r| r.compute_major.map(u64::from));
        block.option(8, rows, |r| r.compute_minor.map(u64::from));
        block.uint(9, rows, |r| r.properties.0.into());
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (process, device) = (columns.narrow(1)?, columns.narrow(2)?);
        let (name, uuid) = (columns.narrow(3)?, columns.narrow(4)?);
        let (memory, processors) = (columns.option(5)?, columns.option(6)?);
        let (major, minor) = (columns.option(7)?, columns.option(8)?);
        let properties = columns.narrow(9)?;
        Ok(rows(columns, |i| Device {
            process: process[i],
            device: device[i],
            name: NameId(name[i]),
            uuid: NameId(uuid[i]),
            memory_bytes: memory[i],
            processors: narrow(processors[i]),
            compute_major: narrow(major[i]),
            compute_minor: narrow(minor[i]),
            properties: NameId(properties[i]),
        }))
    }
}

impl Row for Stream {
    const TABLE: u16 = table::STREAMS;

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.process.into());
        block.uint(2, rows, |r| r.device.into());
        block.uint(3, rows, |r| r.context.into());
        block.uint(4, rows, |r| r.stream);
        block.uint(5, rows, |r| r.name.0.into());
        block.option(6, rows, |r| r.priority.map(u64::from));
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (process, device) = (columns.narrow(1)?, columns.narrow(2)?);
        let (context, stream) = (columns.narrow(3)?, columns.uint(4)?);
        let (name, priority) = (columns.narrow(5)?, columns.option(6)?);
        Ok(rows(columns, |i| Stream {
            process: process[i],
            device: device[i],
            context: context[i],
            stream: stream[i],
            name: NameId(name[i]),
            priority: narrow(priority[i]),
        }))
    }
}
