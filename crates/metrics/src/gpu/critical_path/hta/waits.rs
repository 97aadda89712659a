//! Finds what a wait for an event waits for: the last work that was launched before the event was
//! recorded.

use rustc_hash::FxHashMap;
use tprof_rank::RankTrace;
use tprof_trace::calls::function;

use super::events::{DeviceEvent, Events};
use super::queue::SeenLaunch;

/// The launches and recording calls that waits for events refer to.
pub struct Waits {
    /// For each call that records an event, the device row launched before it; by the call's
    /// correlation.
    before_record: FxHashMap<u64, u32>,
    /// Launch time and device row of each launch, by process, thread and stream; in order of start.
    by_thread: FxHashMap<(u32, u32, u64), Vec<(u64, u32)>>,
}

impl Waits {
    /// Reads a rank's launches, which come in order of start.
    pub fn of(rank: &RankTrace, events: &Events, launches: &[SeenLaunch]) -> Waits {
        let mut by_stream: FxHashMap<(u32, u64), Vec<(u64, u32)>> = FxHashMap::default();
        let mut by_thread: FxHashMap<(u32, u32, u64), Vec<(u64, u32)>> = FxHashMap::default();
        for launch in launches {
            let row = (launch.start_ns, launch.row);
            by_stream.entry((launch.device, launch.stream)).or_default().push(row);
            let thread = (launch.process, launch.thread, launch.stream);
            by_thread.entry(thread).or_default().push(row);
        }
        let recorded: FxHashMap<u64, (u32, u64)> = events
            .device
            .iter()
            .filter_map(|row| row.wait)
            .filter_map(|wait| Some((wait.event_correlation?, wait.event_stream?)))
            .collect();
        let mut before_record = FxHashMap::default();
        for call in &rank.calls {
            let Some(correlation) = call.correlation.get() else { continue };
            let Some(stream) = recorded.get(&correlation) else { continue };
            if function(rank.name(call.name)) != "cudaEventRecord" {
                continue;
            }
            let launches = by_stream.get(stream).map_or(&[][..], Vec::as_slice);
            let after = launches.partition_point(|(start, _)| *start <= call.start_ns);
            if let Some((_, row)) = launches[..after].last() {
                before_record.insert(correlation, *row);
            }
        }
        Waits { before_record, by_thread }
    }

    /// Returns the device row that a wait for an event waits for.
    pub fn source(&self, wait: &DeviceEvent) -> Option<u32> {
        self.before_record.get(&wait.wait?.event_correlation?).copied()
    }

    /// Returns the device row that is delayed when a stream waits: the row of the next launch on
    /// that stream by the waiting call's thread.
    pub fn target(&self, rank: &RankTrace, wait: &DeviceEvent) -> Option<u32> {
        let call = &rank.calls[wait.call? as usize];
        let stream = rank.streams[wait.stream? as usize].stream;
        let launches = self.by_thread.get(&(call.process, call.thread, stream))?;
        let after = launches.partition_point(|(start, _)| *start <= call.start_ns);
        launches.get(after).map(|(_, row)| *row)
    }
}
