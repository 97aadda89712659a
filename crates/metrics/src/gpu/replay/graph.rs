//! The graph of all ranks' stretches and meetings, and its replay.

use std::collections::BTreeMap;

use tprof_rank::base::stats::median;

use super::{RankSteps, StepMeeting, is_kept};

/// Stands for a rank whose meetings begin, so that nothing comes before.
const NONE: u32 = u32::MAX;
/// Time between the beginnings of two blocks of steps in the replay, ns: more than any block lasts.
const BLOCKS_APART_NS: i64 = 1 << 50;

/// The steps of all ranks, joined by their meetings.
#[derive(Debug)]
pub struct JobGraph<'s> {
    /// The steps of each rank.
    pub(super) ranks: &'s [&'s RankSteps],
    /// The meetings of each rank, only those in steps that all ranks keep.
    pub(super) rows: Vec<Vec<GraphRow>>,
    pub(super) meetings: Vec<Meeting>,
    /// The ranks and their rows of each meeting, one meeting after the other.
    pub(super) members: Vec<(u32, u32)>,
}

/// A meeting, from the side of one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct GraphRow {
    pub meeting: u32,
    pub of: StepMeeting,
    /// Whether it is the rank's first of a block of steps.
    pub is_first: bool,
}

/// A meeting of ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting {
    /// Where its members are among [`JobGraph::members`].
    pub first: u32,
    pub count: u32,
    /// Time from the last entry to the end, ns.
    pub transfer_ns: u64,
}

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

impl<'s> JobGraph<'s> {
    /// Joins the steps of all ranks.
    pub fn of(ranks: &'s [&'s RankSteps]) -> JobGraph<'s> {
        let stride = ranks.iter().map(|rank| rank.stride).max().unwrap_or(1).max(1);
        let mut rows: Vec<Vec<GraphRow>> = Vec::with_capacity(ranks.len());
        let mut all: Vec<(u64, u32, u32)> = Vec::new();
        for (rank, steps) in (0_u32..).zip(ranks) {
            let kept = steps.meetings.iter().filter(|of| is_kept(of.step, stride));
            let row = |of: &StepMeeting| GraphRow { meeting: 0, of: *of, is_first: false };
            let of_rank: Vec<GraphRow> = kept.map(row).collect();
            all.extend(of_rank.iter().zip(0..).map(|(row, at)| (row.of.id, rank, at)));
            rows.push(of_rank);
        }
        all.sort_unstable();
        let (mut meetings, mut members) = (Vec::new(), Vec::with_capacity(all.len()));
        for same in all.chunk_by(|a, b| a.0 == b.0) {
            // A rank that is there twice is in two meetings that look alike. Each of them then
            // counts as one of its own.
            let is_twice = same.windows(2).any(|pair| pair[0].1 == pair[1].1);
            let size = if is_twice { 1 } else { same.len() };
            for of_meeting in same.chunks(size) {
                let first = members.len() as u32;
                let mut transfer_ns = u64::MAX;
                // Inferred steps may begin with another meeting on each rank, so those of the first
                // rank count.
                let (_, rank, row) = of_meeting[0];
                let step = rows[rank as usize][row as usize].of.step;
                for &(_, rank, row) in of_meeting {
                    let row_of = &mut rows[rank as usize][row as usize];
                    row_of.meeting = meetings.len() as u32;
                    row_of.of.step = step;
                    transfer_ns = transfer_ns.min(row_of.of.duration_ns);
                    members.push((rank, row));
                }
                meetings.push(Meeting { first, count: of_meeting.len() as u32, transfer_ns });
            }
        }
        for of_rank in &mut rows {
            let mut before: Option<u64> = None;
            for row in of_rank {
                let step = row.of.step;
                row.is_first = before.is_none_or(|before| before != step && before + 1 != step);
                before = Some(step);
            }
        }
        JobGraph { ranks, rows, meetings, members }
    }

    /// Returns the members of a meeting: rank and row.
    pub(super) fn members_of(&self, meeting: u32) -> &[(u32, u32)] {
        let Meeting { first, count, .. } = self.meetings[meeting as usize];
        &self.members[first as usize..(first + count) as usize]
    }

    /// Returns the median of a rank's own time before a meeting over its other ranks; `None` if it
    /// has no others. Ranks that entered it during another meeting have no such time.
    pub(super) fn median_of_others(
        &self,
        (rank, row): (u32, u32),
        of: impl Fn(&StepMeeting) -> u64,
    ) -> Option<u64> {
        let GraphRow { meeting, .. } = self.rows[rank as usize][row as usize];
        let others = self.members_of(meeting).iter().filter(|(other, _)| *other != rank);
        let rows = others.map(|(rank, row)| &self.rows[*rank as usize][*row as usize]);
        let times: Vec<u64> =
            rows.filter(|row| !row.of.overlaps && !row.is_first).map(|row| of(&row.of)).collect();
        (!times.is_empty()).then(|| median(times))
    }

    /// Replays all ranks. `own` returns a rank's own time before a meeting, and the time that its
    /// device computes during it, ns. `None` if the ranks' meetings have no common order.
    pub(super) fn replay(
        &self,
        own: impl Fn(u32, u32, &StepMeeting) -> (u64, u64),
    ) -> Option<Replayed> {
        Replay::of(self).run(own)
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
        Replay {
            graph,
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
                // The first meetings of a block are assumed to end together.
                let block_ns = (row.of.step / super::BLOCK) as i64 % (1 << 12) * BLOCKS_APART_NS;
                walker.ready_ns = i64::MIN;
                let entry_ns = block_ns - row.of.duration_ns as i64;
                (entry_ns, Continued { row: NONE, by_meeting: false })
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
            let gathering = &mut self.gatherings[row.meeting as usize];
            gathering.entered += 1;
            if entry_ns > gathering.last_ns || gathering.entered == 1 {
                (gathering.last_ns, gathering.last) = (entry_ns, rank);
            }
            let meeting = self.graph.meetings[row.meeting as usize];
            if gathering.entered == meeting.count {
                let end_ns = gathering.last_ns + meeting.transfer_ns as i64;
                let last = gathering.last;
                self.end(row.meeting, end_ns, last, own);
                let members = self.graph.members_of(row.meeting);
                waiting.extend(members.iter().map(|(other, _)| *other).filter(|at| *at != rank));
            }
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
        for &(rank, at) in members {
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
