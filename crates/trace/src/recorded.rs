//! Defines what counts as recorded, both for files that are being written and for files that are
//! read.

use crate::model::SampleOutline;
use crate::reader::TraceFile;
use crate::tables::table;
use std::ops::AddAssign;

/// Number of events and samples that were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Number of things that the job did, one row each: allocations and frees, mappings, spans of
    /// host threads, device work and device memory, synchronizations, collectives.
    pub events: u64,
    /// Number of CPU samples, that is, stacks of threads on a core.
    pub samples: u64,
}

impl AddAssign for Recorded {
    fn add_assign(&mut self, other: Recorded) {
        self.events += other.events;
        self.samples += other.samples;
    }
}

impl std::iter::Sum for Recorded {
    fn sum<I: Iterator<Item = Recorded>>(all: I) -> Recorded {
        all.fold(Recorded::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

/// Whether a table's rows are events. Rows that were read from outside of the job (samples, waits,
/// counters) aren't events, nor are rows that join events (arrows, external ids) or describe them.
pub(crate) fn is_event(id: u16) -> bool {
    matches!(
        id,
        table::HEAP_EVENTS
            | table::MAP_EVENTS
            | table::DEVICE_ALLOCATIONS
            | table::SPANS
            | table::KERNELS
            | table::COPIES
            | table::SYNCHRONIZATIONS
            | table::COLLECTIVES
            | table::DEVICE_SPANS
    )
}

impl TraceFile {
    /// Returns what was recorded. An undecodable block counts if its header says how many rows it
    /// has.
    pub fn recorded(&self) -> Recorded {
        let blocks = self.row_blocks().iter().chain(self.heap_blocks()).chain(self.map_blocks());
        let events = blocks.filter(|block| is_event(block.header.table));
        let samples = self.blocks::<SampleOutline>().flatten();
        let samples = samples.filter(|row| row.state.is_cpu_sample(row.stack));
        Recorded {
            events: events.map(|block| u64::from(block.header.rows)).sum(),
            samples: samples.count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::*;
    use crate::{HeapBlock, TraceHeader, TraceWriter};

    #[test]
    fn a_writer_and_a_reader_of_a_file_count_the_same_events() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let mut block = HeapBlock::new(0);
        (0..7).for_each(|n| {
            block.alloc(n, 0, 8, 1, false);
        });
        writer.heap(&mut block).unwrap();
        for kind in [MapKind::Map, MapKind::Unmap] {
            let (time_ns, address, length) = (9, 4096, 4096);
            let (process, thread, old_length, stack) = (0, 0, 0, 0);
            writer.map(MapEvent {
                time_ns,
                process,
                thread,
                kind,
                address,
                length,
                old_length,
                stack,
            });
        }
        let sample = |stack, state| Sample { stack, state, ..Sample::default() };
        let mut samples = vec![
            sample(5, ThreadState::Running),
            sample(0, ThreadState::Running),
            sample(5, ThreadState::Sleep),
        ];
        writer.write(&mut samples).unwrap();
        writer.write(&mut vec![Span::default(); 3]).unwrap();
        writer.write(&mut vec![FlowPoint::default(); 4]).unwrap();
        let written = writer.recorded();
        assert_eq!(written, Recorded { events: 7 + 2 + 3, samples: 1 });
        writer.finish().unwrap();
        assert_eq!(TraceFile::open(&path).unwrap().recorded(), written);
    }
}
