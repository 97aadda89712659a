//! Sums up copies and memsets by kind of memory: their time, bytes and rate.

use std::collections::BTreeMap;

use tprof_document::nsys::{self, Values};
use tprof_document::{
    Analysis, Body, Cell, Column, DocumentKind, Options, RankContext, Table, Unit, boxed,
};
use tprof_facts::copies::direction;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{Needs, RankTrace, WINDOW_NEEDS, judges};
use tprof_trace::model::{CopyKind, MemoryCopy, MemoryKind};

use crate::gpu::bandwidth::NO_BYTES;
use crate::gpu::outside::{LeftOutRows, add_left_out};

/// The report `memcpy`.
pub const KIND: DocumentKind = DocumentKind {
    name: "memcpy",
    about: "copies and memsets by kind of memory: time, bytes, pageable",
    analysis: || boxed(Memcpy),
};

const NO_COPIES: &str = "no copy or memset was recorded";
const NO_KINDS: &str = "the trace lacks the kinds of memory of these copies";

/// Copies and memsets: `tprof report memcpy`.
struct Memcpy;

/// The direction of a copy and the memory on both sides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CopyOperation {
    kind: CopyKind,
    from: MemoryKind,
    to: MemoryKind,
}

/// The sums for copies with one direction and the same memory on both sides.
#[derive(Clone)]
struct CopyColumns {
    operation: CopyOperation,
    /// Bytes of each copy; `None` if the size of any copy is missing.
    bytes: Option<Vec<u64>>,
    /// Time in which at least one copy ran, ns.
    busy_ns: u64,
}

impl CopyColumns {
    /// Bytes per second of the time in which at least one copy ran.
    fn rate(&self) -> Option<f64> {
        let bytes: u64 = self.bytes.as_ref()?.iter().sum();
        (self.busy_ns > 0).then(|| bytes as f64 / self.busy_ns as f64 * 1e9)
    }
}

impl CopyOperation {
    fn of(row: &MemoryCopy) -> CopyOperation {
        CopyOperation { kind: row.kind, from: row.from, to: row.to }
    }

    /// The displayed name of the rows.
    fn shown(self) -> String {
        let name = direction(self.kind);
        match self.memory() {
            Some(memory) => format!("{name}, {memory}"),
            None => name.to_owned(),
        }
    }

    /// Whether one side is pageable memory. The driver copies pageable memory through a buffer of
    /// its own and makes the caller wait. Returns `None` if the memory isn't known.
    fn pageable(self) -> Option<bool> {
        let known = self.from != MemoryKind::Unknown || self.to != MemoryKind::Unknown;
        known.then_some(self.from == MemoryKind::Pageable || self.to == MemoryKind::Pageable)
    }

    fn memory(self) -> Option<String> {
        let name = |kind| match kind {
            MemoryKind::Unknown => None,
            MemoryKind::Pageable => Some("pageable"),
            MemoryKind::Pinned => Some("pinned"),
            MemoryKind::Device => Some("device"),
            MemoryKind::Array => Some("array"),
            MemoryKind::Managed => Some("managed"),
            MemoryKind::DeviceStatic => Some("device static"),
            MemoryKind::ManagedStatic => Some("managed static"),
        };
        match (name(self.from), name(self.to)) {
            (Some(from), Some(to)) => Some(format!("{from} to {to}")),
            (None, Some(one)) | (Some(one), None) => Some(one.to_owned()),
            (None, None) => None,
        }
    }
}

impl Analysis for Memcpy {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = CopiesByMemory;

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS
    }

    /// Reads the copies from the file again, because `Work` doesn't say which memory a copy read
    /// and wrote. Damage isn't reported here, because the first reading has already reported it.
    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, _: &Options) -> CopiesByMemory {
        of_rank(rank)
    }

    fn join(&self, parts: Vec<(RankContext, CopiesByMemory)>, _: &Options) -> Body {
        let mut body = Body { tables: vec![times(&parts), sizes(&parts)], notes: Vec::new() };
        let left_out = parts.iter().map(|(at, part)| (at, &part.left_out));
        let tables = ["cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum"];
        add_left_out(&mut body, "copies and memsets", &tables, left_out);
        body
    }
}

/// The copies of a rank in its steps; without steps, all copies.
struct CopiesByMemory {
    kinds: Vec<Values<CopyColumns>>,
    left_out: LeftOutRows,
}

fn of_rank(rank: &RankTrace<'_>) -> CopiesByMemory {
    let windows = rank.device_windows();
    let mut left_out = LeftOutRows::of(rank);
    let mut rows = rank.file.rows::<MemoryCopy>().0;
    rows.retain(|row| {
        let is_judged = judges(&windows, Some(row.device), row.start_ns);
        left_out.count(is_judged, row.duration_ns, || CopyOperation::of(row).shown());
        is_judged
    });
    CopiesByMemory { kinds: of_rows(&rows), left_out }
}

fn of_rows(rows: &[MemoryCopy]) -> Vec<Values<CopyColumns>> {
    let mut found: BTreeMap<CopyOperation, Vec<&MemoryCopy>> = BTreeMap::new();
    for row in rows {
        found.entry(CopyOperation::of(row)).or_default().push(row);
    }
    let of_operation = |(operation, rows): (CopyOperation, Vec<&MemoryCopy>)| {
        let interval =
            |row: &&MemoryCopy| Interval::new(row.start_ns, row.start_ns + row.duration_ns);
        Values {
            row: CopyColumns {
                operation,
                bytes: rows.iter().map(|row| row.bytes).collect(),
                busy_ns: rows.iter().map(interval).collect::<Cover>().length(),
            },
            values: rows.iter().map(|row| row.duration_ns).collect(),
        }
    };
    found.into_iter().map(of_operation).collect()
}

fn own(copies: &CopyColumns) -> Vec<Cell> {
    let operation = copies.operation;
    vec![
        Cell::known(operation.pageable(), NO_KINDS),
        direction(operation.kind).into(),
        Cell::known(operation.memory(), NO_KINDS),
        operation.shown().into(),
    ]
}

const OWN: [Column; 4] = [
    Column::data("pageable", Unit::Flag),
    Column::data("operation", Unit::Text),
    Column::data("memory", Unit::Text),
    Column::new("copy", "copy", Unit::Name),
];

fn times(parts: &[(RankContext, CopiesByMemory)]) -> Table {
    let mut more = vec![
        Column::data("busy_ns", Unit::Duration),
        Column::new("rate", "rate", Unit::BytesPerSecond),
    ];
    more.extend(OWN);
    let columns = nsys::columns(&nsys::TIMES, &more);
    let mut table = Table::new("cuda_gpu_mem_time_sum", "Copies and memsets by time", columns)
        .about(
            "time: share of the sum of a rank's copies; rate: bytes over the time in which at \
             least one ran",
        )
        .empty(NO_COPIES);
    for (at, part) in parts {
        let rows = part
            .kinds
            .iter()
            .map(|row| Values { row: row.row.clone(), values: row.values.clone() })
            .collect();
        nsys::add_times(&mut table, &at.label, rows, |copies: &Values<CopyColumns>| {
            let copies = &copies.row;
            let mut cells = vec![copies.busy_ns.into(), Cell::known(copies.rate(), NO_BYTES)];
            cells.extend(own(copies));
            cells
        });
    }
    table
}

fn sizes(parts: &[(RankContext, CopiesByMemory)]) -> Table {
    let columns = nsys::columns(&nsys::SIZES, &OWN);
    let mut table = Table::new("cuda_gpu_mem_size_sum", "Copies and memsets by size", columns)
        .about("bytes of single copies")
        .empty(NO_COPIES);
    for (at, part) in parts {
        let bytes = |row: &&Values<CopyColumns>| {
            row.row.bytes.as_ref().map_or(0, |bytes| bytes.iter().sum())
        };
        let mut rows: Vec<&Values<CopyColumns>> = part.kinds.iter().collect();
        rows.sort_rows_by_key(|row| std::cmp::Reverse(bytes(row)));
        for row in rows {
            let mut cells = vec![at.label.as_str().into()];
            match &row.row.bytes {
                Some(bytes) => cells.extend(nsys::cells(bytes)),
                None => {
                    cells.extend(vec![Cell::missing(NO_BYTES); nsys::SIZES.len()]);
                    cells[2] = row.values.len().into();
                }
            }
            cells.extend(own(&row.row));
            table.row(cells);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(start_ns: u64, duration_ns: u64, bytes: Option<u64>, from: MemoryKind) -> MemoryCopy {
        MemoryCopy {
            start_ns,
            duration_ns,
            bytes,
            from,
            kind: CopyKind::HostToDevice,
            to: MemoryKind::Device,
            ..MemoryCopy::default()
        }
    }

    #[test]
    fn copies_are_distinguished_by_the_memory_that_they_read() {
        let rows = of_rows(&[
            copy(0, 100, Some(1000), MemoryKind::Pageable),
            copy(50, 100, Some(500), MemoryKind::Pageable),
            copy(900, 10, Some(10), MemoryKind::Pinned),
        ]);
        let [pageable, pinned] = rows.as_slice() else { panic!("{}", rows.len()) };
        assert_eq!(pageable.row.operation.memory().as_deref(), Some("pageable to device"));
        assert_eq!(
            (pageable.row.operation.pageable(), pinned.row.operation.pageable()),
            (Some(true), Some(false))
        );
        assert_eq!((pageable.values.as_slice(), pageable.row.busy_ns), (&[100, 100][..], 150));
        assert_eq!(pageable.row.rate(), Some(1e10));
    }

    #[test]
    fn if_one_copy_lacks_its_bytes_the_sum_is_missing() {
        let rows = of_rows(&[
            copy(0, 10, Some(1000), MemoryKind::Unknown),
            copy(20, 10, None, MemoryKind::Unknown),
        ]);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].row.rate(), rows[0].row.bytes.as_ref()), (None, None));
        let unknown = CopyOperation {
            kind: CopyKind::Unknown,
            from: MemoryKind::Unknown,
            to: MemoryKind::Unknown,
        };
        assert_eq!((unknown.pageable(), unknown.memory()), (None, None));
    }
}
