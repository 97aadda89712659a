//! The replay of a graph: the times at which ranks enter and leave their meetings.

use std::collections::BTreeMap;

use super::graph::{GraphRow, JobGraph};
use super::{BLOCK, StepMeeting};

/// Stands for a rank whose meetings begin, so that nothing comes before.
const NONE: u32 = u32::MAX;
/// Time between the beginnings of two blocks of steps in the replay, ns: more than any block lasts.
const BLOCKS_APART_NS: i64 = 1 << 50;

/// The moment after a meeting from which a rank went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Continued {
    /// The rank's row of the meeting.
    pub row: u32,
    /// Whether the rank waited for the meeting, and not for the work that its device computed
    /// during it.
    pub by_meeting: bool,
}

/// The times of a replay, ns.
#[derive(Debug)]
pub(super) struct Replayed {
    /// For each rank and row, the entry, and the moment from which the rank went on to it.
    pub entries: Vec<Vec<(i64, Continued)>>,
    /// For each meeting, its end and the place of its last rank among the members.
    pub ends: Vec<(i64, u32)>,
    /// The steps, in order.
    pub steps: Vec<ReplayedStep>,
}

/// A step in a replay.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayedStep {
    pub step: u64,
    /// The end of its last rank, ns.
    pub end_ns: i64,
    /// The rank that ended last.
    pub rank: u32,
    /// What it ended with.
    pub last: Continued,
}

impl Replayed {
    /// Returns the lengths of the steps that follow another, in order: the number of the step, the
    /// index of it, and the time from the end of the step before, ns.
    pub fn lengths(&self) -> impl Iterator<Item = (u64, usize, i64)> {
        let follows = |pair: &(usize, &[ReplayedStep])| {
            let [before, after] = pair.1 else { return false };
            before.step + 1 == after.step
        };
        let length = |(at, pair): (usize, &[ReplayedStep])| {
            (pair[1].step, at + 1, pair[1].end_ns - pair[0].end_ns)
        };
        self.steps.windows(2).enumerate().filter(follows).map(length)
    }
}

impl JobGraph<'_> {
    /// Replays all ranks. `own` returns a rank's own time before a meeting, and the time that its
    /// device computes during it, ns. `None` if the ranks' meetings have no common order.
    pub(super) fn replay(
        &self,
        own: impl Fn(u32, u32, &StepMeeting) -> (u64, u64),
    ) -> Option<Replayed> {
        Replay::of(self).run(own)
    }

    /// Replays all ranks as they were.
    pub(super) fn replay_as_measured(&self) -> Option<Replayed> {
        self.replay(|_, _, of| (of.before_ns, of.hidden_ns))
    }
}

/// A rank during a replay.
#[derive(Clone, Copy)]
struct Walker {
    next: u32,
    /// Meetings that it has entered and that have not ended.
    open: u32,
    /// The moment from which it can go on, ns.
    ready_ns: i64,
    from: Continued,
}

/// A meeting during a replay.
#[derive(Clone, Copy)]
struct Gathering {
    entered: u32,
    last_ns: i64,
    last: u32,
}

struct Replay<'g, 's> {
    graph: &'g JobGraph<'s>,
    /// For each block of steps and each clock, its first entry, ns.
    begun: BTreeMap<(u64, u32), i64>,
    walkers: Vec<Walker>,
    gatherings: Vec<Gathering>,
    entries: Vec<Vec<(i64, Continued)>>,
    ends: Vec<(i64, u32)>,
    steps: BTreeMap<u64, ReplayedStep>,
}

impl<'g, 's> Replay<'g, 's> {
    fn of(graph: &'g JobGraph<'s>) -> Replay<'g, 's> {
        let from = Continued { row: NONE, by_meeting: false };
        let walker = Walker { next: 0, open: 0, ready_ns: 0, from };
        let gathering = Gathering { entered: 0, last_ns: i64::MIN, last: 0 };
        let mut begun = BTreeMap::new();
        for (rank, rows) in (0..).zip(&graph.rows) {
            for row in rows.iter().filter(|row| row.is_first) {
                let Some(at) = graph.shared_entry(rank, row) else { continue };
                let first = begun.entry((row.of.step / BLOCK, at.clock)).or_insert(at.ns);
                *first = at.ns.min(*first);
            }
        }
        Replay {
            graph,
            begun,
            walkers: vec![walker; graph.rows.len()],
            gatherings: vec![gathering; graph.meetings.len()],
            entries: graph.rows.iter().map(|rows| Vec::with_capacity(rows.len())).collect(),
            ends: vec![(0, 0); graph.meetings.len()],
            steps: BTreeMap::new(),
        }
    }

    fn run(mut self, own: impl Fn(u32, u32, &StepMeeting) -> (u64, u64)) -> Option<Replayed> {
        let mut waiting: Vec<u32> = (0..self.walkers.len() as u32).collect();
        while let Some(rank) = waiting.pop() {
            self.advance(rank, &own, &mut waiting);
        }
        let is_over = |(walker, rows): (&Walker, &Vec<GraphRow>)| {
            walker.next as usize == rows.len() && walker.open == 0
        };
        let all_over = self.walkers.iter().zip(&self.graph.rows).all(is_over);
        all_over.then(|| Replayed {
            entries: self.entries,
            ends: self.ends,
            steps: self.steps.into_values().collect(),
        })
    }

    /// Lets a rank enter meetings for as long as it need not wait for one.
    fn advance(
        &mut self,
        rank: u32,
        own: &impl Fn(u32, u32, &StepMeeting) -> (u64, u64),
        waiting: &mut Vec<u32>,
    ) {
        let rows = &self.graph.rows[rank as usize];
        loop {
            let walker = &mut self.walkers[rank as usize];
            let Some(row) = rows.get(walker.next as usize) else { return };
            if walker.open > 0 && (!row.of.overlaps || row.is_first) {
                return;
            }
            let at = walker.next;
            let (entry_ns, from) = if row.is_first {
                walker.ready_ns = i64::MIN;
                let block = row.of.step / BLOCK;
                let block_ns = block as i64 % (1 << 12) * BLOCKS_APART_NS;
                // Without a common clock, the first meetings of a block are assumed to end together.
                let since_ns = match self.graph.shared_entry(rank, row) {
                    Some(at) => at.ns - self.begun[&(block, at.clock)],
                    None => -(row.of.duration_ns as i64),
                };
                (block_ns + since_ns, Continued { row: NONE, by_meeting: false })
            } else if row.of.overlaps {
                let last = self.entries[rank as usize].last();
                let last_ns = last.map_or(0, |(entry_ns, _)| *entry_ns);
                (last_ns + row.of.since_entry_ns as i64, walker.from)
            } else {
                (walker.ready_ns + own(rank, at, &row.of).0 as i64, walker.from)
            };
            walker.next += 1;
            walker.open += 1;
            self.entries[rank as usize].push((entry_ns, from));
            let (first, count) = row.waiting;
            let others = &self.graph.waiting[first as usize..(first + count) as usize];
            for &meeting in std::iter::once(&row.meeting).chain(others) {
                self.gather(meeting, rank, entry_ns, own, waiting);
            }
        }
    }

    /// Notes that a rank entered what a meeting waits for, and ends the meeting if it was the last.
    fn gather(
        &mut self,
        at: u32,
        rank: u32,
        entry_ns: i64,
        own: &impl Fn(u32, u32, &StepMeeting) -> (u64, u64),
        waiting: &mut Vec<u32>,
    ) {
        let gathering = &mut self.gatherings[at as usize];
        gathering.entered += 1;
        if entry_ns > gathering.last_ns || gathering.entered == 1 {
            (gathering.last_ns, gathering.last) = (entry_ns, rank);
        }
        let meeting = self.graph.meetings[at as usize];
        if gathering.entered == meeting.count {
            let end_ns = gathering.last_ns + meeting.transfer_ns as i64;
            let last = gathering.last;
            self.end(at, end_ns, last, own);
            let ending = self.graph.ending_with(at);
            waiting.extend(ending.iter().map(|(other, _)| *other).filter(|at| *at != rank));
        }
    }

    /// Ends a meeting for all of its ranks.
    fn end(
        &mut self,
        meeting: u32,
        end_ns: i64,
        last: u32,
        own: &impl Fn(u32, u32, &StepMeeting) -> (u64, u64),
    ) {
        let members = self.graph.members_of(meeting);
        let place = members.iter().position(|(rank, _)| *rank == last).unwrap_or(0);
        self.ends[meeting as usize] = (end_ns, place as u32);
        for &(rank, at) in self.graph.ending_with(meeting) {
            let row = &self.graph.rows[rank as usize][at as usize];
            let (entry_ns, _) = self.entries[rank as usize][at as usize];
            let computed_ns = entry_ns + own(rank, at, &row.of).1 as i64;
            let by_meeting = end_ns >= computed_ns;
            let ready_ns = end_ns.max(computed_ns);
            let from = Continued { row: at, by_meeting };
            let walker = &mut self.walkers[rank as usize];
            walker.open -= 1;
            if ready_ns >= walker.ready_ns {
                (walker.ready_ns, walker.from) = (ready_ns, from);
            }
            let step = row.of.step;
            let new = ReplayedStep { step, end_ns: ready_ns, rank, last: from };
            let known = self.steps.entry(step).or_insert(new);
            if ready_ns > known.end_ns {
                *known = new;
            }
        }
    }
}
