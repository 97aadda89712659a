//! Encodes the small tables of measured values: totals, counters, marks, losses, mappings.

use super::{Row, narrow, rows, table};
use crate::columns::BlockWriter;
use crate::columns_read::Columns;
use crate::error::Damage;
use crate::model::*;

impl Row for HeapTotals {
    const TABLE: u16 = table::HEAP_TOTALS;

    fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.time(1, rows, |r| r.time_ns);
        block.uint(2, rows, |r| r.process.into());
        block.time(3, rows, |r| r.allocations);
        block.time(4, rows, |r| r.frees);
        block.time(5, rows, |r| r.allocated_bytes);
        block.option(6, rows, |r| r.live_bytes);
        block.option(7, rows, |r| r.peak_bytes);
        block.option(8, rows, |r| r.peak_at_ns);
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (time_ns, process) = (columns.uint(1)?, columns.narrow(2)?);
        let (allocations, frees, allocated_bytes) =
            (columns.uint(3)?, columns.uint(4)?, columns.uint(5)?);
        let (live, peak, peak_at) = (columns.option(6)?, columns.option(7)?, columns.option(8)?);
        Ok(rows(columns, |i| HeapTotals {
            time_ns: time_ns[i],
            process: process[i],
            allocations: allocations[i],
            frees: frees[i],
            allocated_bytes: allocated_bytes[i],
            live_bytes: live[i],
            peak_bytes: peak[i],
            peak_at_ns: peak_at[i],
        }))
    }
}

impl Row for RecordingTotals {
    const TABLE: u16 = table::RECORDING_TOTALS;

    fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.time(1, rows, |r| r.time_ns);
        block.uint(2, rows, |r| r.process.into());
        block.time(3, rows, |r| r.notes);
        block.time(4, rows, |r| r.device_records);
        block.time(5, rows, |r| r.operators);
        block.time(6, rows, |r| r.stack_ns);
        block.time(7, rows, |r| r.wait_ns);
        block.time(8, rows, |r| r.collector_ns);
        block.time(9, rows, |r| r.call_records);
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (time_ns, process) = (columns.uint(1)?, columns.narrow(2)?);
        let (notes, device_records, operators) =
            (columns.uint(3)?, columns.uint(4)?, columns.uint(5)?);
        let (stack_ns, wait_ns, collector_ns) =
            (columns.uint(6)?, columns.uint(7)?, columns.uint(8)?);
        let call_records = columns.uint(9)?;
        Ok(rows(columns, |i| RecordingTotals {
            time_ns: time_ns[i],
            process: process[i],
            notes: notes[i],
            device_records: device_records[i],
            call_records: call_records[i],
            operators: operators[i],
            stack_ns: stack_ns[i],
            wait_ns: wait_ns[i],
            collector_ns: collector_ns[i],
        }))
    }
}

impl Row for Counter {
    const TABLE: u16 = table::COUNTERS;

    fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.time(1, rows, |r| r.time_ns);
        block.option(2, rows, |r| r.process.map(u64::from));
        block.uint(3, rows, |r| r.name.0.into());
        block.float(4, rows, |r| r.value);
        block.option(5, rows, |r| r.device.map(u64::from));
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (time_ns, process) = (columns.uint(1)?, columns.option(2)?);
        let (name, value) = (columns.narrow(3)?, columns.float(4)?);
        let device = columns.option_or_none(5)?;
        Ok(rows(columns, |i| Counter {
            time_ns: time_ns[i],
            process: narrow(process[i]),
            device: narrow(device[i]),
            name: NameId(name[i]),
            value: value[i],
        }))
    }
}

impl Row for Mark {
    const TABLE: u16 = table::MARKS;

    fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.time(1, rows, |r| r.time_ns);
        block.option(2, rows, |r| r.process.map(u64::from));
        block.uint(3, rows, |r| r.name.0.into());
        block.uint(4, rows, |r| match r.kind {
            MarkKind::Mark => 0,
            MarkKind::Step => 1,
            MarkKind::RecordingOn => 2,
            MarkKind::RecordingOff => 3,
            MarkKind::Histogram => 4,
            MarkKind::MachineError => 5,
        });
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (time_ns, process) = (columns.uint(1)?, columns.option(2)?);
        let (name, kind) = (columns.narrow(3)?, columns.uint(4)?);
        Ok(rows(columns, |i| Mark {
            time_ns: time_ns[i],
            process: narrow(process[i]),
            name: NameId(name[i]),
            kind: match kind[i] {
                1 => MarkKind::Step,
                2 => MarkKind::RecordingOn,
                3 => MarkKind::RecordingOff,
                4 => MarkKind::Histogram,
                5 => MarkKind::MachineError,
                _ => MarkKind::Mark,
            },
        }))
    }
}

impl Row for Property {
    const TABLE: u16 = table::PROPERTIES;

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.uint(1, rows, |r| r.key.0.into());
        block.uint(2, rows, |r| r.value.0.into());
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (key, value) = (columns.narrow(1)?, columns.narrow(2)?);
        Ok(rows(columns, |i| Property { key: NameId(key[i]), value: NameId(value[i]) }))
    }
}

impl Row for Loss {
    const TABLE: u16 = table::LOSSES;

    fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.time(1, rows, |r| r.time_ns);
        block.option(2, rows, |r| r.process.map(u64::from));
        block.uint(3, rows, |r| r.what.0.into());
        block.uint(4, rows, |r| r.count);
        block.uint(5, rows, |r| r.why.0.into());
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (time_ns, process) = (columns.uint(1)?, columns.option(2)?);
        let (what, count, why) = (columns.narrow(3)?, columns.uint(4)?, columns.narrow(5)?);
        Ok(rows(columns, |i| Loss {
            time_ns: time_ns[i],
            process: narrow(process[i]),
            what: NameId(what[i]),
            count: count[i],
            why: NameId(why[i]),
        }))
    }
}

impl Row for MapEvent {
    const TABLE: u16 = table::MAP_EVENTS;

    fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn write(rows: &[Self], block: &mut BlockWriter<'_>) {
        block.time(1, rows, |r| r.time_ns);
        block.uint(2, rows, |r| r.process.into());
        block.uint(3, rows, |r| r.thread.into());
        block.uint(4, rows, |r| match r.kind {
            MapKind::Map => 0,
            MapKind::Unmap => 1,
            MapKind::Remap => 2,
            MapKind::Attach => 3,
            MapKind::Detach => 4,
        });
        block.time(5, rows, |r| r.address);
        block.uint(6, rows, |r| r.length);
        block.uint(7, rows, |r| r.old_length);
        block.uint(8, rows, |r| r.stack.into());
    }

    fn read(columns: &mut Columns<'_>) -> Result<Vec<Self>, Damage> {
        let (time_ns, process, thread) = (columns.uint(1)?, columns.narrow(2)?, columns.narrow(3)?);
        let (kind, address) = (columns.uint(4)?, columns.uint(5)?);
        let (length, old_length, stack) = (columns.uint(6)?, columns.uint(7)?, columns.narrow(8)?);
        if kind.iter().any(|kind| *kind > 4) {
            return Err(Damage::new("a mapping changed in a way that this tprof does not know"));
        }
        Ok(rows(columns, |i| MapEvent {
            time_ns: time_ns[i],
            process: process[i],
            thread: thread[i],
            kind: match kind[i] {
                0 => MapKind::Map,
                1 => MapKind::Unmap,
                2 => MapKind::Remap,
                3 => MapKind::Attach,
                _ => MapKind::Detach,
            },
            address: address[i],
            length: length[i],
            old_length: old_length[i],
            stack: stack[i],
        }))
    }
}
