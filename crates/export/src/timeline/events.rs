//! Defines the events of a timeline and the lanes on which they are drawn, and packs them for the
//! page.

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::page::Payload;

/// Kind of an event. It decides the event's colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EventKind {
    Python = 0,
    Operator = 1,
    /// NVTX and framework annotations.
    Range = 2,
    /// A call of the CUDA runtime or driver.
    Call = 3,
    Overhead = 4,
    Other = 5,
    Kernel = 6,
    Collective = 7,
    Copy = 8,
    Memset = 9,
    /// The part of a stream that an annotation covers.
    DeviceRange = 10,
    /// A native function that samples found.
    Native = 11,
    /// A wait that samples found.
    Waiting = 12,
    /// A wait for a device, or of one stream for another.
    Synchronization = 13,
    /// A run of a CUDA graph, drawn around its nodes.
    Graph = 14,
    /// A function of the user's own code that samples found.
    Own = 15,
}

/// An interval on a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// Start in nanoseconds since the run began.
    pub start_ns: u64,
    pub duration_ns: u64,
    pub name: u32,
    pub kind: EventKind,
    /// Index into the table of detail texts; 0 if the event has none.
    pub detail: u32,
    /// Number that joins a launch to the work that it launched, within a process.
    pub correlation: Option<u64>,
    /// A number that events which belong together share, over all ranks. Examples are the same
    /// collective on each rank, or a forward operator and its backward operator. 0 for an event
    /// without such a group.
    pub kin: u64,
}

/// Content of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LaneKind {
    /// Spans of a host thread.
    Thread,
    /// Samples of a host thread, as nested functions.
    Samples,
    /// Annotation ranges of a device.
    Ranges,
    /// Kernels and copies of a stream.
    Stream,
    /// Waits of the host or of streams for a device.
    Waits,
    /// Compilations by `torch.compile`, from a log. They are not activity of a thread.
    Compilations,
}

/// One lane: events of one thread or stream.
pub(crate) struct Lane {
    pub kind: LaneKind,
    /// Index of the process in the page.
    pub process: usize,
    pub name: String,
    /// Thread of spans or samples, as its file numbers it.
    pub thread: Option<u32>,
    /// Device of a stream.
    pub device: Option<u32>,
    pub events: Vec<Event>,
}

/// Strings that events refer to by index. Each string is stored once.
#[derive(Default)]
pub(crate) struct Strings {
    index: FxHashMap<String, u32>,
    all: Vec<String>,
}

impl Strings {
    pub fn of(&mut self, text: &str) -> u32 {
        if let Some(id) = self.index.get(text) {
            return *id;
        }
        let id = self.all.len() as u32;
        self.index.insert(text.to_owned(), id);
        self.all.push(text.to_owned());
        id
    }
}

/// Lanes and events of the page.
pub(crate) struct Lanes {
    pub lanes: Vec<Lane>,
    pub names: Strings,
    pub details: Strings,
}

impl Lanes {
    pub fn new() -> Lanes {
        let mut details = Strings::default();
        details.of("");
        Lanes { lanes: Vec::new(), names: Strings::default(), details }
    }

    pub fn count(&self) -> usize {
        self.lanes.iter().map(|lane| lane.events.len()).sum()
    }

    /// Leaves out the shortest events, so that about `most` remain. Returns the number of events
    /// that were left out, and the duration that all of them are below.
    pub fn thin(&mut self, most: usize) -> Option<(usize, u64)> {
        let count = self.count();
        if count <= most {
            return None;
        }
        let mut durations: Vec<u64> = self
            .lanes
            .iter()
            .flat_map(|lane| &lane.events)
            .map(|event| event.duration_ns)
            .collect();
        let (_, &mut least_ns, _) = durations.select_nth_unstable(count - most.max(1));
        // If many events have the same duration, more are removed than necessary. All removed
        // events are counted.
        let keep_ns = least_ns.saturating_add(u64::from(most == 0));
        for lane in &mut self.lanes {
            lane.events.retain(|event| event.duration_ns >= keep_ns);
        }
        if self.count() > most + most / 8 {
            for lane in &mut self.lanes {
                lane.events.retain(|event| event.duration_ns > keep_ns);
            }
            return Some((count - self.count(), keep_ns.saturating_add(1)));
        }
        Some((count - self.count(), keep_ns))
    }

    /// Packs the events as columns, lane after lane, in order of time. Of events that begin
    /// together, the longest comes first.
    pub fn pack(mut self, payload: &mut Payload) -> Vec<Value> {
        for lane in &mut self.lanes {
            lane.events.sort_by_key(|e| (e.start_ns, std::cmp::Reverse(e.duration_ns)));
        }
        let links = self.links();
        let names = self.names_by_use();
        let about = (self.lanes.iter())
            .map(|lane| {
                let kind = match lane.kind {
                    LaneKind::Thread => "thread",
                    LaneKind::Samples => "samples",
                    LaneKind::Ranges => "ranges",
                    LaneKind::Stream => "stream",
                    LaneKind::Waits => "waits",
                    LaneKind::Compilations => "compilations",
                };
                json!({
                    "kind": kind, "process": lane.process, "name": lane.name,
                    "thread": lane.thread, "device": lane.device, "count": lane.events.len(),
                })
            })
            .collect();
        let column = |of: &dyn Fn(&Event) -> u64| -> Vec<u64> {
            self.lanes.iter().flat_map(|lane| &lane.events).map(of).collect()
        };
        payload.differences("start", &column(&|event| event.start_ns));
        payload.column("duration", &column(&|event| event.duration_ns));
        payload.column("name", &column(&|event| names[event.name as usize].into()));
        payload.column("kind", &column(&|event| event.kind as u64));
        payload.column("detail", &column(&|event| event.detail.into()));
        payload.differences("launch", &links);
        payload.column("kin", &self.kin());
        let mut sorted = vec![""; self.names.all.len()];
        for (name, place) in self.names.all.iter().zip(&names) {
            sorted[*place as usize] = name;
        }
        payload.set("names", sorted);
        payload.set("details", self.details.all.clone());
        about
    }

    /// Renumbers names by how often events use them, so that the most frequent names fit one byte.
    fn names_by_use(&self) -> Vec<u32> {
        let mut uses: Vec<(u64, usize)> = (0..self.names.all.len()).map(|name| (0, name)).collect();
        for event in self.lanes.iter().flat_map(|lane| &lane.events) {
            uses[event.name as usize].0 += 1;
        }
        uses.sort_by_key(|(count, name)| (std::cmp::Reverse(*count), *name));
        let mut places = vec![0; uses.len()];
        for (place, (_, name)) in (0..).zip(uses) {
            places[name] = place;
        }
        places
    }

    /// Returns for each event the number of the event that launched it, plus one; 0 if unknown. If
    /// several calls have the same correlation, the first counts, which is the runtime's call and
    /// not the driver's call inside it.
    fn links(&self) -> Vec<u64> {
        let all = || self.lanes.iter().flat_map(|lane| lane.events.iter().map(move |e| (lane, e)));
        let mut calls: FxHashMap<(usize, u64), u64> = FxHashMap::default();
        for (number, (lane, event)) in (1..).zip(all()) {
            if let (LaneKind::Thread, Some(correlation)) = (lane.kind, event.correlation) {
                calls.entry((lane.process, correlation)).or_insert(number);
            }
        }
        let link = |(lane, event): (&Lane, &Event)| match (lane.kind, event.correlation) {
            (LaneKind::Stream | LaneKind::Waits, Some(correlation)) => {
                calls.get(&(lane.process, correlation)).copied().unwrap_or(0)
            }
            _ => 0,
        };
        all().map(link).collect()
    }

    /// Returns for each event the number of its group; 0 if no other event is in the group.
    fn kin(&self) -> Vec<u64> {
        let all = || self.lanes.iter().flat_map(|lane| lane.events.iter().map(|event| event.kin));
        let mut members: FxHashMap<u64, (u32, u64)> = FxHashMap::default();
        all().filter(|kin| *kin != 0).for_each(|kin| members.entry(kin).or_default().0 += 1);
        let mut last = 0;
        let mut number = |kin: u64| match members.get_mut(&kin) {
            Some((2.., group)) => {
                if *group == 0 {
                    last += 1;
                    *group = last;
                }
                *group
            }
            _ => 0,
        };
        all().map(&mut number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(durations: &[u64]) -> Lanes {
        let mut lanes = Lanes::new();
        let name = lanes.names.of("a");
        let event = |(at, &duration_ns): (usize, &u64)| Event {
            start_ns: at as u64 * 100,
            duration_ns,
            name,
            kind: EventKind::Operator,
            detail: 0,
            correlation: Some(at as u64),
            kin: [7, 8, 7][at % 3],
        };
        let events = durations.iter().enumerate().map(event).collect();
        let name = "thread".to_owned();
        lanes.lanes.push(lane(LaneKind::Thread, name, events));
        lanes
    }

    fn lane(kind: LaneKind, name: String, events: Vec<Event>) -> Lane {
        Lane { kind, process: 0, name, thread: None, device: None, events }
    }

    #[test]
    fn the_shortest_events_are_left_out_and_counted() {
        let mut some = lanes(&[5, 1, 9, 3, 7]);
        assert_eq!(some.thin(5), None);
        assert_eq!(some.thin(3), Some((2, 5)));
        assert_eq!(some.count(), 3);
        // Events of the same duration are removed together, because the number of events must not
        // exceed the limit.
        let mut equal = lanes(&[4; 100]);
        assert_eq!(equal.thin(10), Some((100, 5)));
    }

    #[test]
    fn an_event_that_shares_its_number_with_no_other_is_in_no_group() {
        assert_eq!(lanes(&[5, 5, 5]).kin(), [1, 0, 1]);
    }

    #[test]
    fn kernels_refer_to_their_launches() {
        let mut lanes = lanes(&[5, 5, 5]);
        let mut kernel = lanes.lanes[0].events[2];
        kernel.kind = EventKind::Kernel;
        let other = Event { correlation: Some(77), ..kernel };
        let name = "stream".to_owned();
        let events = vec![kernel, other];
        lanes.lanes.push(lane(LaneKind::Stream, name, events));
        assert_eq!(lanes.links(), [0, 0, 0, 3, 0]);
    }
}
