//! Merges all tables of a file into one stream, in order of time.
//!
//! Memory contains one block per table, and more only if blocks of a table overlap. Heap events are
//! excluded, because there may be hundreds of millions. Viewers show them as a curve instead
//! (`counters`).

use tprof_trace::model::*;
use tprof_trace::{RowsInOrder, TraceFile};

use crate::Window;
use crate::external::{ExternalIds, HasCallIds};

/// One row of any table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimedRow<'a> {
    Span(&'a Span),
    Kernel(&'a Kernel),
    Copy(&'a MemoryCopy),
    Synchronization(&'a Synchronization),
    DeviceSpan(&'a DeviceSpan),
    Collective(&'a Collective),
    Allocation(&'a DeviceAllocation),
    Sample(&'a Sample),
    Flow(&'a FlowPoint),
}

/// Calls `each` with every row that touches `window`, in order of time. Among rows that begin
/// together, spans come first and ends of arrows last. If `each` returns false, reading stops.
pub(crate) fn each<E>(
    trace: &TraceFile,
    window: Window,
    mut each: impl FnMut(TimedRow<'_>) -> Result<bool, E>,
) -> Result<(), E> {
    let ids = ExternalIds::of(trace);
    let mut spans = Stream::new(trace, window, &ids, |r: &Span| r.start_ns);
    let mut kernels = Stream::new(trace, window, &ids, |r: &Kernel| r.start_ns);
    let mut copies = Stream::new(trace, window, &ids, |r: &MemoryCopy| r.start_ns);
    let mut syncs = Stream::new(trace, window, &ids, |r: &Synchronization| r.start_ns);
    let mut device_spans = Stream::new(trace, window, &ids, |r: &DeviceSpan| r.start_ns);
    let mut collectives = Stream::new(trace, window, &ids, |r: &Collective| r.start_ns);
    let mut allocations = Stream::new(trace, window, &ids, |r: &DeviceAllocation| r.time_ns);
    let mut samples = Stream::new(trace, window, &ids, |r: &Sample| r.time_ns);
    let mut flows = Stream::new(trace, window, &ids, |r: &FlowPoint| r.time_ns);
    let mut next = [
        spans.next_ns(),
        kernels.next_ns(),
        copies.next_ns(),
        syncs.next_ns(),
        device_spans.next_ns(),
        collectives.next_ns(),
        allocations.next_ns(),
        samples.next_ns(),
        flows.next_ns(),
    ];
    loop {
        let (mut first, mut first_ns, mut second_ns) = (0, None, u64::MAX);
        for (at, time_ns) in next.iter().enumerate() {
            match (*time_ns, first_ns) {
                (None, _) => {}
                (Some(ns), None) => (first, first_ns) = (at, Some(ns)),
                (Some(ns), Some(best)) if ns < best => {
                    second_ns = best;
                    (first, first_ns) = (at, Some(ns));
                }
                (Some(ns), Some(_)) => second_ns = second_ns.min(ns),
            }
        }
        let Some(first_ns) = first_ns else { return Ok(()) };
        // If the next rows of two tables are at the same moment, yield from the first table only
        // the rows of that moment.
        let until_ns = second_ns.max(first_ns.saturating_add(1));
        let more = match first {
            0 => spans.until(until_ns, |row| each(TimedRow::Span(row)), &mut next[0])?,
            1 => kernels.until(until_ns, |row| each(TimedRow::Kernel(row)), &mut next[1])?,
            2 => copies.until(until_ns, |row| each(TimedRow::Copy(row)), &mut next[2])?,
            3 => syncs.until(until_ns, |row| each(TimedRow::Synchronization(row)), &mut next[3])?,
            4 => {
                device_spans.until(until_ns, |row| each(TimedRow::DeviceSpan(row)), &mut next[4])?
            }
            5 => {
                collectives.until(until_ns, |row| each(TimedRow::Collective(row)), &mut next[5])?
            }
            6 => {
                allocations.until(until_ns, |row| each(TimedRow::Allocation(row)), &mut next[6])?
            }
            7 => samples.until(until_ns, |row| each(TimedRow::Sample(row)), &mut next[7])?,
            _ => flows.until(until_ns, |row| each(TimedRow::Flow(row)), &mut next[8])?,
        };
        if !more {
            return Ok(());
        }
    }
}

/// Returns the number of rows in these tables of a file, at any time.
pub fn count(trace: &TraceFile) -> u64 {
    trace.row_count::<Span>()
        + trace.row_count::<Kernel>()
        + trace.row_count::<MemoryCopy>()
        + trace.row_count::<Synchronization>()
        + trace.row_count::<DeviceSpan>()
        + trace.row_count::<Collective>()
        + trace.row_count::<DeviceAllocation>()
        + trace.row_count::<Sample>()
        + trace.row_count::<FlowPoint>()
}

/// One table, with its next batch of rows.
struct Stream<'a, R> {
    batches: RowsInOrder<'a, R>,
    ids: &'a ExternalIds,
    batch: Vec<R>,
    at: usize,
    time: fn(&R) -> u64,
}

impl<'a, R: HasCallIds> Stream<'a, R> {
    fn new(
        trace: &'a TraceFile,
        window: Window,
        ids: &'a ExternalIds,
        time: fn(&R) -> u64,
    ) -> Stream<'a, R> {
        let batches = trace.in_order(window.from_ns, window.to_ns);
        Stream { batches, ids, batch: Vec::new(), at: 0, time }
    }

    fn next_ns(&mut self) -> Option<u64> {
        if self.at == self.batch.len() {
            self.batch = self.batches.next().unwrap_or_default();
            self.ids.fill(&mut self.batch);
            self.at = 0;
        }
        self.batch.get(self.at).map(self.time)
    }

    /// Passes on the rows before `until_ns`. Returns the time of the next row.
    fn until<E>(
        &mut self,
        until_ns: u64,
        mut each: impl FnMut(&R) -> Result<bool, E>,
        next_ns: &mut Option<u64>,
    ) -> Result<bool, E> {
        loop {
            *next_ns = self.next_ns();
            if next_ns.is_none_or(|next_ns| next_ns >= until_ns) {
                return Ok(true);
            }
            let row = &self.batch[self.at];
            self.at += 1;
            if !each(row)? {
                return Ok(false);
            }
        }
    }
}

impl TimedRow<'_> {
    /// Returns the time when the row begins.
    pub fn time_ns(&self) -> u64 {
        match self {
            TimedRow::Span(row) => row.start_ns,
            TimedRow::Kernel(row) => row.start_ns,
            TimedRow::Copy(row) => row.start_ns,
            TimedRow::Synchronization(row) => row.start_ns,
            TimedRow::DeviceSpan(row) => row.start_ns,
            TimedRow::Collective(row) => row.start_ns,
            TimedRow::Allocation(row) => row.time_ns,
            TimedRow::Sample(row) => row.time_ns,
            TimedRow::Flow(row) => row.time_ns,
        }
    }
}
