//! Lists the columns of the tables of spans, flows, samples and collectives.

use super::field::{columns_of, numbered, part_of};
use super::{Row, narrow, rows, table};
use crate::columns::BlockWriter;
use crate::columns_read::Columns;
use crate::error::Damage;
use crate::model::*;

numbered! {
    SpanKind, else Other:
    Runtime, Driver, Operator, Annotation, Nvtx, Python, Overhead, Other,
}
numbered! { FlowEnd, else Step: Start, Step, End }
numbered! {
    ThreadState, else Blocked:
    Running, Runnable, Blocked, Lock, Io, Sleep, Poll, Gil, Device,
}

columns_of! {
    Span in SPANS, from start_ns for duration_ns;
    1 steady start_ns,
    2 plain duration_ns,
    3 plain process,
    4 plain thread,
    5 plain kind,
    6 plain name,
    7 plain category,
    8 steady correlation,
    9 steady external,
    10 steady id,
    11 steady parent,
    12 steady sequence,
    13 plain forward_thread,
    14 plain status,
    15 plain stack,
    16 plain args,
    17 plain allocations,
    18 plain allocated_bytes,
}

part_of! {
    NamedSpan of SPANS, from start_ns;
    1 start_ns,
    2 duration_ns,
    3 process,
    4 thread,
    5 kind,
    6 name,
    7 category,
    16 args,
    17 allocations,
    18 allocated_bytes,
}

part_of! {
    CallStack of SPANS, from start_ns;
    1 start_ns,
    2 duration_ns,
    3 process,
    4 thread,
    5 kind,
    15 stack,
}

part_of! {
    CallStatus of SPANS, from start_ns;
    1 start_ns,
    2 duration_ns,
    3 process,
    4 thread,
    5 kind,
    6 name,
    7 category,
    14 status,
    15 stack,
    16 args,
}

part_of! {
    SequencedSpan of SPANS;
    1 start_ns,
    4 thread,
    5 kind,
    6 name,
    12 sequence,
}

/// The columns of a [`Span`] that a reader decodes first, to decide whether it needs the other
/// columns.
pub(crate) struct SpanTitle {
    pub kind: SpanKind,
    pub name: NameId,
}

part_of! {
    SpanTitle of SPANS;
    5 kind,
    6 name,
}

part_of! {
    SpanOutline of SPANS, from start_ns;
    1 start_ns,
    2 duration_ns,
    3 process,
    4 thread,
    5 kind,
    6 name,
    7 category,
    8 correlation,
    16 args,
}

columns_of! {
    FlowPoint in FLOW_POINTS, from time_ns;
    1 steady time_ns,
    2 plain process,
    3 plain thread,
    4 plain device,
    5 plain stream,
    6 plain end,
    7 steady id,
    8 plain category,
    9 plain name,
}

columns_of! {
    Sample in SAMPLES, from time_ns;
    1 steady time_ns,
    2 plain process,
    3 plain thread,
    4 plain stack,
    5 plain weight_ns,
    6 plain state,
    7 plain cpu,
    8 plain gil,
    9 plain spread_ns,
}

part_of! {
    SampleMoment of SAMPLES, from time_ns;
    1 time_ns,
    2 process,
    3 thread,
    4 stack,
    5 weight_ns,
    6 state,
}

part_of! {
    SampleOutline of SAMPLES;
    4 stack,
    6 state,
}

columns_of! {
    EventSample in EVENT_SAMPLES, from time_ns;
    1 steady time_ns,
    2 plain process,
    3 plain thread,
    4 plain stack,
    5 plain event,
    6 plain count,
}

columns_of! {
    ThreadCounts in THREAD_COUNTS, from time_ns;
    1 steady time_ns,
    2 plain process,
    3 plain thread,
    4 plain voluntary,
    5 plain involuntary,
    6 plain migrations,
    7 plain minor_faults,
    8 plain major_faults,
}

columns_of! {
    Collective in COLLECTIVES, from start_ns;
    1 steady start_ns,
    2 plain duration_ns,
    3 plain process,
    4 plain thread,
    5 plain name,
    6 plain communicator,
    7 steady sequence,
    8 plain elements_in,
    9 plain elements_out,
    10 plain element_type,
    11 plain bytes,
    12 plain group_size,
    13 plain peer,
    14 plain stream,
    15 steady correlation,
    16 plain algorithm,
    17 plain protocol,
    18 plain channels,
}

numbered! { ChannelWorkKind, else Kernel: Kernel, Send, Receive }

columns_of! {
    ChannelWork in CHANNEL_WORK, from start_ns for duration_ns;
    1 steady start_ns,
    2 plain duration_ns,
    3 plain process,
    4 plain thread,
    5 plain kind,
    6 plain name,
    7 plain communicator,
    8 steady sequence,
    9 plain channel,
    10 plain peer,
    11 plain steps,
    12 plain bytes,
    13 plain device_wait_ns,
    14 plain peer_wait_ns,
    15 plain network_ns,
}

columns_of! {
    Connection in CONNECTIONS;
    1 plain process,
    2 plain communicator,
    3 plain from,
    4 plain to,
    5 plain sends,
    6 plain transport,
    7 plain channels,
}

impl Row for Communicator {
    const TABLE: u16 = table::COMMUNICATORS;

    fn weight(&self) -> usize {
        1 + self.ranks.len()
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.process.into());
        block.uint(2, rows, |r| r.communicator);
        block.uint(3, rows, |r| r.name.0.into());
        block.uint(4, rows, |r| r.description.0.into());
        block.uint(5, rows, |r| r.backend.0.into());
        block.option(6, rows, |r| r.size.map(u64::from));
        block.option(7, rows, |r| r.rank.map(u64::from));
        block.list(8, rows, |r| &r.ranks);
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (process, communicator) = (columns.narrow(1)?, columns.uint(2)?);
        let (name, description) = (columns.narrow(3)?, columns.narrow(4)?);
        let backend = columns.narrow(5)?;
        let (size, rank) = (columns.option(6)?, columns.option(7)?);
        let mut ranks = columns.list(8)?;
        if ranks.len() < columns.rows {
            return Err(Damage::new("communicators lack their ranks"));
        }
        Ok(rows(columns, |i| Communicator {
            process: process[i],
            communicator: communicator[i],
            name: NameId(name[i]),
            description: NameId(description[i]),
            backend: NameId(backend[i]),
            size: narrow(size[i]),
            rank: narrow(rank[i]),
            ranks: std::mem::take(&mut ranks[i]),
        }))
    }
}
