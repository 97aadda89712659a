//! Reads a file's tables into the rows of a rank.
//!
//! The rows of devices and of hosts are read in parallel if there are two cores, since neither
//! depends on the other.

use tprof_facts::Class;
use tprof_facts::communication::Communication;
use tprof_facts::communication::on_host::{HostCollective, HostCollectives};
use tprof_facts::steps::{StepNames, StepRange};
use tprof_trace::model::{
    Collective, DeviceAllocation, DeviceSpan, KernelOutline, MemoryCopy, SpanKind, SpanOutline,
    Synchronization,
};
use tprof_trace::{TraceFile, TraceRow};

use super::collective_kernels;
use super::launches::Launches;
use super::needs::Needs;
use super::nesting::nesting_order;
use super::rows::{HostSpan, StreamKey, Work};
use super::samples::CpuTrace;
use super::streams::StreamTable;
use super::trace::{RankTrace, SPAN_KINDS};
use crate::base::parallel;

impl<'a> RankTrace<'a> {
    /// Reads the tables in `needs`, on one thread.
    pub fn load(file: &'a TraceFile, needs: Needs) -> RankTrace<'a> {
        load(file, needs, 1)
    }
}

/// Reads the tables in `needs`, on at most `cores` threads.
pub(super) fn load(file: &TraceFile, needs: Needs, cores: usize) -> RankTrace<'_> {
    let mut rank = RankTrace::empty(file, needs, cores);
    let (device, host) =
        parallel::both(cores, || DeviceRows::read(file, needs), || HostRows::read(file, needs));
    rank.collectives = device.collectives;
    (rank.streams, rank.work) = (device.streams, device.work);
    (rank.calls, rank.spans, rank.step_ranges) = (host.calls, host.spans, host.steps);
    rank.host_collectives = host.collectives;
    let (calls, work, streams) = (&rank.calls, &rank.work, &rank.streams);
    let launches = || match needs.has_any(Needs::WORK) && needs.has(Needs::CALLS) {
        true => Launches::of(calls, work, streams),
        false => Launches::default(),
    };
    let (launches, other) = parallel::both(cores, launches, || OtherRows::read(file, needs));
    rank.launches = launches;
    collective_kernels::join(&mut rank.collectives, &rank.calls, &rank.work, &rank.launches);
    (rank.synchronizations, rank.device_spans) = (other.synchronizations, other.device_spans);
    (rank.allocations, rank.cpu) = (other.allocations, other.cpu);
    rank
}

/// The rows that are not needed for joining calls and work.
struct OtherRows {
    synchronizations: Vec<Synchronization>,
    device_spans: Vec<DeviceSpan>,
    allocations: Vec<DeviceAllocation>,
    cpu: CpuTrace,
}

impl OtherRows {
    fn read(file: &TraceFile, needs: Needs) -> OtherRows {
        OtherRows {
            synchronizations: rows(file, needs, Needs::SYNCHRONIZATIONS),
            device_spans: rows(file, needs, Needs::DEVICE_SPANS),
            allocations: rows(file, needs, Needs::ALLOCATIONS),
            cpu: match needs.has_any(Needs::SAMPLES) {
                true => CpuTrace::load(file),
                false => CpuTrace::default(),
            },
        }
    }
}

/// Returns all rows of a table in order of time, if `needs` contains the table.
fn rows<R: TraceRow>(file: &TraceFile, needs: Needs, of: Needs) -> Vec<R> {
    match needs.has_any(of) {
        true => file.rows().0,
        false => Vec::new(),
    }
}

/// Tries to reserve room for rows. A failure is ignored, because a damaged file may claim an
/// impossible number of rows.
fn reserve<T>(list: &mut Vec<T>, rows: u64) {
    let _ = usize::try_from(rows).map(|rows| list.try_reserve_exact(rows));
}

/// The rows of devices.
#[derive(Default)]
struct DeviceRows {
    collectives: Vec<Collective>,
    streams: Vec<StreamKey>,
    work: Vec<Work>,
}

impl DeviceRows {
    fn read(file: &TraceFile, needs: Needs) -> DeviceRows {
        let mut found = DeviceRows::default();
        // Collectives are needed to classify kernels as communication, too.
        let of = Needs::WORK | Needs::COLLECTIVES;
        found.collectives = rows(file, needs, of);
        if needs.has_any(Needs::WORK) {
            found.read_work(file);
        }
        found
    }

    fn read_work(&mut self, file: &TraceFile) {
        let mut communication = Communication::of(file, &self.collectives);
        let mut streams = StreamTable::default();
        let mut work = Vec::new();
        reserve(&mut work, file.row_count::<KernelOutline>() + file.row_count::<MemoryCopy>());
        for row in file.blocks::<KernelOutline>().flatten() {
            let class = match communication.holds(row.process, row.correlation, row.name) {
                true => Class::Communication,
                false => Class::Compute,
            };
            let (process, device, context, stream) =
                (row.process, row.device, row.context, row.stream);
            let stream = streams.index(StreamKey { process, device, context, stream });
            work.push(Work::of_kernel(&row, stream, class));
        }
        for row in file.blocks::<MemoryCopy>().flatten() {
            let (process, device, context, stream) =
                (row.process, row.device, row.context, row.stream);
            let stream = streams.index(StreamKey { process, device, context, stream });
            work.push(Work::of_copy(&row, stream));
        }
        let (streams, order) = streams.sorted();
        for row in &mut work {
            row.stream = order[row.stream as usize];
        }
        // Rows that start at the same time are ordered by their contents, so that the result does
        // not depend on the order in the file.
        work.sort_by_key(|row| (row.start_ns, row.duration_ns, row.stream, row.correlation));
        self.streams = streams;
        self.work = work;
    }
}

/// The rows of hosts.
#[derive(Default)]
struct HostRows {
    calls: Vec<HostSpan>,
    spans: [Vec<HostSpan>; SPAN_KINDS],
    steps: Vec<StepRange>,
    collectives: Vec<HostCollective>,
}

impl HostRows {
    fn read(file: &TraceFile, needs: Needs) -> HostRows {
        let mut found = HostRows::default();
        let of_collectives = || HostCollectives::of(file);
        let mut finder = needs.has_any(Needs::COLLECTIVES).then(of_collectives).flatten();
        if !needs.has_any(Needs::ALL_SPANS) && finder.is_none() {
            return found;
        }
        let HostRows { calls, spans, steps, collectives } = &mut found;
        let mut names = needs.has(Needs::ANNOTATIONS).then(|| StepNames::of(file));
        for block in file.blocks::<SpanOutline>() {
            let mut rows = [0_u64; SPAN_KINDS];
            block.iter().for_each(|row| rows[row.kind as usize] += 1);
            if let Some(names) = &mut names {
                steps.extend(block.iter().filter(|row| names.has(row)).map(StepRange::of));
            }
            if let Some(finder) = &mut finder {
                collectives.extend(block.iter().filter_map(|row| finder.find(row)));
            }
            for row in block.iter().filter(|row| needs.has(Needs::spans(row.kind))) {
                let list = match row.kind {
                    SpanKind::Runtime | SpanKind::Driver => &mut *calls,
                    kind => &mut spans[kind as usize],
                };
                if list.capacity() == 0 {
                    // The share of this kind in the block is used as the estimate for all rows.
                    // Without this reservation, the list would be copied each time it grows.
                    let of_block = rows[row.kind as usize] * file.row_count::<SpanOutline>();
                    reserve(list, of_block / block.len() as u64 + block.len() as u64);
                }
                list.push(HostSpan::from(row));
            }
        }
        collectives.sort_by_key(|row| (row.start_ns, row.process));
        calls.sort_by_key(|row| (row.start_ns, row.thread, std::cmp::Reverse(row.duration_ns)));
        for spans in spans {
            spans.sort_by_key(nesting_order);
        }
        found
    }
}
