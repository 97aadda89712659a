//! Numbers the messages and lines of arrows, whose points a trace joins only by their ids and their
//! order.
//!
//! A trace reuses an id for a new message once the previous one has arrived. One start may also
//! have several ends. But a viewer joins all points with the same id into one arrow. So each
//! message, and each end of a start, needs a number of its own.

use std::ops::Range;

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::hash::joined;
use tprof_trace::model::{FlowEnd, FlowPoint, NameId};

use crate::Window;

/// Key by which a file names an arrow: category, name and id.
type Id = (NameId, NameId, u64);

fn id_of(row: &FlowPoint) -> Id {
    (row.category, row.name, row.id)
}

/// The latest message with an id.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// Number of messages with the same id before this one.
    number: u64,
    /// Number of this message's ends so far.
    ends: u64,
}

/// The messages of a file. Points must be passed in order of time.
#[derive(Debug, Default)]
pub(crate) struct Arrows {
    messages: FxHashMap<Id, Message>,
    /// For each message with several ends, the number of ends, by id and message number.
    several: FxHashMap<(Id, u64), u64>,
}

/// The lines that begin, continue or end at a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlowLinks {
    /// Number of messages with this id before this one.
    pub message: u64,
    /// Numbers of the message's lines.
    pub lines: Range<u64>,
}

impl FlowLinks {
    /// Returns the number of a line. The first line of the first message uses the id itself.
    pub fn number(&self, id: u64, line: u64) -> u64 {
        match (self.message, line) {
            (0, 0) => id,
            _ => joined(&[id, self.message, line]),
        }
    }
}

impl Arrows {
    /// Reads the arrows of a file that lie in a window.
    pub fn of(trace: &TraceFile, window: Window) -> Arrows {
        let rows = trace.in_order::<FlowPoint>(window.from_ns, window.to_ns);
        Arrows::of_points(rows.flatten())
    }

    fn of_points(rows: impl Iterator<Item = FlowPoint>) -> Arrows {
        let (mut arrows, mut several) = (Arrows::default(), FxHashMap::default());
        for row in rows {
            let FlowLinks { message, lines } = arrows.point(&row);
            if lines.start > 0 {
                several.insert((id_of(&row), message), lines.end);
            }
        }
        Arrows { messages: FxHashMap::default(), several }
    }

    /// Returns the lines of the next point of the file.
    pub fn point(&mut self, row: &FlowPoint) -> FlowLinks {
        let id = id_of(row);
        let known = self.messages.get(&id).copied();
        let next = known.map_or(0, |message| message.number + 1);
        let mut message = match (row.end, known) {
            // A step continues the latest message, unless that message has already ended. Then the
            // start of the step's own message is missing.
            (FlowEnd::Step, Some(message)) if message.ends == 0 => message,
            (FlowEnd::End, Some(message)) => message,
            _ => Message { number: next, ends: 0 },
        };
        let lines = match row.end {
            FlowEnd::Start => 0..self.several.get(&(id, message.number)).copied().unwrap_or(1),
            FlowEnd::Step => 0..1,
            FlowEnd::End => message.ends..message.ends + 1,
        };
        message.ends += u64::from(row.end == FlowEnd::End);
        self.messages.insert(id, message);
        FlowLinks { message: message.number, lines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message number and the line numbers of each point. A point is `s` (start), `t`
    /// (step) or `f` (end).
    fn lines(points: &str) -> Vec<(u64, Range<u64>)> {
        let rows = points.chars().map(|point| FlowPoint {
            end: match point {
                's' => FlowEnd::Start,
                't' => FlowEnd::Step,
                _ => FlowEnd::End,
            },
            ..FlowPoint::default()
        });
        let rows: Vec<FlowPoint> = rows.collect();
        let mut arrows = Arrows::of_points(rows.iter().copied());
        let found = rows.iter().map(|row| arrows.point(row));
        found.map(|found| (found.message, found.lines)).collect()
    }

    #[test]
    fn messages_with_the_same_id_are_separate_arrows() {
        let alone = |message| (message, 0..1);
        assert_eq!(lines("sfsfsf"), [0, 0, 1, 1, 2, 2].map(alone));
        assert_eq!(lines("stfstf"), [0, 0, 0, 1, 1, 1].map(alone));
        // If there are two starts before an end, the first message never arrived.
        assert_eq!(lines("ssf"), [0, 1, 1].map(alone));
    }

    #[test]
    fn each_end_of_a_start_has_its_own_line() {
        assert_eq!(lines("sff"), [(0, 0..2), (0, 0..1), (0, 1..2)]);
        assert_eq!(lines("sffsf"), [(0, 0..2), (0, 0..1), (0, 1..2), (1, 0..1), (1, 0..1)]);
        // If ends have no start, each has its own line.
        assert_eq!(lines("ff"), [(0, 0..1), (0, 1..2)]);
    }
}
