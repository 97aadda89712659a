//! Matches the sends of ranks with the receives of others, and tells which of them wait.

use rustc_hash::FxHashMap;

use super::clocks::{NotAfter, SharedClocks};
use super::graph::GraphRow;
use super::{RankSteps, StepMessage, is_kept};

/// If the numbers of sends and of receives of one way differ by more than this share of them, other
/// messages than those that were recorded take part, and nothing tells which is which.
const MOST_UNEVEN: f64 = 0.05;
/// If more than this share of the messages between two ranks were received before they were sent,
/// they are not matched as they were exchanged.
const MOST_IMPOSSIBLE: f64 = 0.01;

/// A message of two ranks: for each its number and its row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matched {
    pub send: (u32, u32),
    pub receive: (u32, u32),
    /// Whether the two ranks do the same.
    pub is_between_like: bool,
    /// Size of the message, and whether a kernel sends it.
    class: (Option<u64>, bool),
    /// Whether the send lasts until after its receiver has come.
    lasts: bool,
    /// Whether its receiver came after the sender.
    is_late: bool,
}

/// One side of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Side {
    way: u64,
    number: u32,
    is_receive: bool,
    rank: u32,
    row: u32,
    bytes: Option<u64>,
    is_on_device: bool,
    is_between_like: bool,
}

/// Matches the messages of all ranks. `rows` are those of the meetings that ranks keep if they keep
/// one block of steps in `stride`.
pub(super) fn matched(ranks: &[&RankSteps], stride: u64) -> Vec<Matched> {
    let mut sides = sides(ranks, stride);
    sides.sort_unstable();
    let mut all = Vec::new();
    for way in sides.chunk_by(|a, b| a.way == b.way) {
        let receives = way.iter().filter(|side| side.is_receive).count();
        let sends = way.len() - receives;
        if sends.abs_diff(receives) as f64 > MOST_UNEVEN * sends.max(receives) as f64 {
            continue;
        }
        for pair in way.chunk_by(|a, b| a.number == b.number) {
            // Two ranks that send alike are in two communicators that look alike.
            if let [send, receive] = pair
                && !send.is_receive
                && receive.is_receive
                && send.rank != receive.rank
            {
                all.push(Matched {
                    send: (send.rank, send.row),
                    receive: (receive.rank, receive.row),
                    is_between_like: send.is_between_like,
                    class: (send.bytes, send.is_on_device),
                    lasts: false,
                    is_late: false,
                });
            }
        }
    }
    all
}

fn sides(ranks: &[&RankSteps], stride: u64) -> Vec<Side> {
    let mut sides = Vec::new();
    for (rank, steps) in (0..).zip(ranks) {
        let mut kept = 0;
        let row = |of: &super::StepMeeting| {
            let row = is_kept(of.step, stride).then_some(kept);
            kept += u32::from(row.is_some());
            row
        };
        let rows: Vec<Option<u32>> = steps.meetings.iter().map(row).collect();
        let side = |of: &StepMessage| {
            let message = of.of.message;
            Some(Side {
                way: of.of.way,
                number: of.of.number,
                is_receive: !message.is_send,
                rank,
                row: rows[of.meeting as usize]?,
                bytes: message.bytes,
                is_on_device: of.is_on_device,
                is_between_like: of.is_between_like,
            })
        };
        sides.extend(steps.messages.iter().filter_map(side));
    }
    sides
}

/// What messages tell about the clocks of their ranks.
pub(super) fn known_times<'m>(
    messages: &'m [Matched],
    rows: &'m [Vec<GraphRow>],
) -> impl Iterator<Item = NotAfter> + 'm {
    messages.iter().map(|of| {
        let [send, receive] = [of.send, of.receive].map(|at| rows[at.0 as usize][at.1 as usize].of);
        let received_ns = receive.start_ns + receive.duration_ns;
        let (from, to) = ((of.send.0, send.start_ns), (of.receive.0, received_ns));
        NotAfter { step: send.step, from, to }
    })
}

/// Leaves out messages that can't be matched as they were exchanged, and returns for each row that
/// waits for another one the two: the row that waits first.
pub(super) fn waits(
    messages: &mut Vec<Matched>,
    rows: &[Vec<GraphRow>],
    clocks: &SharedClocks,
) -> Vec<[(u32, u32); 2]> {
    // For each two ranks, the numbers of messages and of impossible ones.
    let mut counts: FxHashMap<(u32, u32), (u64, u64)> = FxHashMap::default();
    let mut possible = Vec::with_capacity(messages.len());
    for of in &mut *messages {
        let [send, receive] = [of.send, of.receive].map(|at| rows[at.0 as usize][at.1 as usize].of);
        let at = |rank: u32, ns: u64| clocks.at(rank, send.step, ns).ns;
        let (sent, came) = (at(of.send.0, send.start_ns), at(of.receive.0, receive.start_ns));
        of.is_late = came > sent;
        of.lasts = sent + send.duration_ns as i64 > came;
        let is_possible = came + receive.duration_ns as i64 >= sent;
        let count = counts.entry((of.send.0, of.receive.0)).or_default();
        count.0 += 1;
        count.1 += u64::from(!is_possible);
        possible.push(is_possible);
    }
    let mut possible = possible.into_iter();
    messages.retain(|of| {
        let (count, impossible) = counts[&(of.send.0, of.receive.0)];
        possible.next() == Some(true) && impossible as f64 <= MOST_IMPOSSIBLE * count as f64
    });
    // For each class, the number of sends that ended before a receiver that came later, less that
    // of sends that lasted until it came.
    let mut buffered: FxHashMap<(Option<u64>, bool), i64> = FxHashMap::default();
    for of in messages.iter().filter(|of| of.is_late) {
        *buffered.entry(of.class).or_default() += if of.lasts { -1 } else { 1 };
    }
    let mut waits = Vec::with_capacity(2 * messages.len());
    for of in &*messages {
        waits.push([of.receive, of.send]);
        // Of a class whose receivers never came late, nothing is known. Kernels wait.
        let is_buffered = buffered.get(&of.class).map_or(!of.class.1, |more| *more > 0);
        if of.lasts && !is_buffered {
            waits.push([of.send, of.receive]);
        }
    }
    waits.sort_unstable();
    waits.dedup();
    waits
}
