//! The graph of all ranks' stretches and meetings.

use tprof_rank::base::stats::median;

use super::clocks::{NotAfter, SharedClocks, SharedTime};
use super::messages::{Matched, known_times, matched, waits};
use super::stages::Stages;
use super::{RankSteps, StepMeeting, is_kept};

/// If operations between ranks that are not followed take more than this share of the steps of a
/// rank, the replay would blame the wrong rank.
const MOST_UNFOLLOWED: f64 = 0.05;

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
    /// The meetings of other ranks that wait for a row, one row after the other.
    pub(super) waiting: Vec<u32>,
    /// The messages that were matched.
    pub(super) messages: Vec<Matched>,
    pub(super) stages: Stages,
    clocks: SharedClocks,
}

/// A meeting, from the side of one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct GraphRow {
    pub meeting: u32,
    pub of: StepMeeting,
    /// Whether it is the rank's first of a block of steps.
    pub is_first: bool,
    /// Where the meetings that wait for it are among [`JobGraph::waiting`], and their number.
    pub waiting: (u32, u32),
}

/// A meeting of ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting {
    /// Where its members are among [`JobGraph::members`]. It ends when all have entered.
    pub first: u32,
    pub count: u32,
    /// The number of members that end with it: all of a collective, and of sends and receives only
    /// the first, which waits for the others.
    pub ending: u32,
    /// Time from the last entry to the end, ns.
    pub transfer_ns: u64,
}

impl<'s> JobGraph<'s> {
    /// Joins the steps of all ranks.
    pub fn of(ranks: &'s [&'s RankSteps]) -> JobGraph<'s> {
        let stride = ranks.iter().map(|rank| rank.stride).max().unwrap_or(1).max(1);
        let rows = ranks.iter().map(|steps| {
            let kept = steps.meetings.iter().filter(|of| is_kept(of.step, stride));
            let row = |of: &StepMeeting| GraphRow {
                meeting: 0,
                of: *of,
                is_first: false,
                waiting: (0, 0),
            };
            kept.map(row).collect()
        });
        let rows: Vec<Vec<GraphRow>> = rows.collect();
        let messages = matched(ranks, stride);
        let mut graph = JobGraph {
            ranks,
            stages: Stages::of(&rows, std::iter::empty()),
            rows,
            meetings: Vec::new(),
            members: Vec::new(),
            waiting: Vec::new(),
            messages,
            clocks: SharedClocks::of(ranks, Vec::new),
        };
        graph.join_collectives();
        for of_rank in &mut graph.rows {
            let mut before: Option<u64> = None;
            for row in of_rank {
                let step = row.of.step;
                row.is_first = before.is_none_or(|before| before != step && before + 1 != step);
                before = Some(step);
            }
        }
        graph.join_messages();
        graph
    }

    /// Makes the meetings of collectives.
    fn join_collectives(&mut self) {
        let mut all: Vec<(u64, u32, u32)> = Vec::new();
        for (rank, rows) in (0_u32..).zip(&self.rows) {
            let met = |(row, at): (&GraphRow, u32)| Some((row.of.id?, rank, at));
            all.extend(rows.iter().zip(0..).filter_map(met));
        }
        all.sort_unstable();
        let rows = &mut self.rows;
        for same in all.chunk_by(|a, b| a.0 == b.0) {
            // A rank that is there twice is in two meetings that look alike. Each of them then
            // counts as one of its own.
            let is_twice = same.windows(2).any(|pair| pair[0].1 == pair[1].1);
            let size = if is_twice { 1 } else { same.len() };
            for of_meeting in same.chunks(size) {
                let first = self.members.len() as u32;
                let mut transfer_ns = u64::MAX;
                // Inferred steps may begin with another meeting on each rank, so those of the first
                // rank count.
                let (_, rank, row) = of_meeting[0];
                let step = rows[rank as usize][row as usize].of.step;
                for &(_, rank, row) in of_meeting {
                    let row_of = &mut rows[rank as usize][row as usize];
                    row_of.meeting = self.meetings.len() as u32;
                    row_of.of.step = step;
                    transfer_ns = transfer_ns.min(row_of.of.duration_ns);
                    self.members.push((rank, row));
                }
                let count = of_meeting.len() as u32;
                self.meetings.push(Meeting { first, count, ending: count, transfer_ns });
            }
        }
    }

    /// Makes a meeting of each row that sends or receives, with the rows that it waits for.
    fn join_messages(&mut self) {
        let known = || {
            let of_messages = known_times(&self.messages, &self.rows);
            of_messages.chain(self.known_by_collectives()).collect()
        };
        // Without messages, only durations count.
        if !self.messages.is_empty() {
            self.clocks = SharedClocks::of(self.ranks, known);
        }
        let waits = waits(&mut self.messages, &self.rows, &self.clocks);
        let mut waits = waits.as_slice();
        let mut waiting: Vec<((u32, u32), u32)> = Vec::with_capacity(waits.len());
        for rank in 0..self.rows.len() as u32 {
            for row in 0..self.rows[rank as usize].len() as u32 {
                let GraphRow { of, .. } = self.rows[rank as usize][row as usize];
                if of.id.is_some() {
                    continue;
                }
                let count = waits.iter().take_while(|pair| pair[0] == (rank, row)).count();
                let (own, rest) = waits.split_at(count);
                waits = rest;
                let at = |(rank, row): (u32, u32)| {
                    let start_ns = self.rows[rank as usize][row as usize].of.start_ns;
                    self.clocks.at(rank, of.step, start_ns).ns
                };
                let last_ns = own.iter().map(|pair| at(pair[1])).max().unwrap_or(i64::MIN);
                let waited_ns = last_ns.saturating_sub(at((rank, row))).max(0) as u64;
                let meeting = self.meetings.len() as u32;
                self.meetings.push(Meeting {
                    first: self.members.len() as u32,
                    count: 1 + count as u32,
                    ending: 1,
                    transfer_ns: of.duration_ns.saturating_sub(waited_ns),
                });
                self.rows[rank as usize][row as usize].meeting = meeting;
                self.members.push((rank, row));
                self.members.extend(own.iter().map(|pair| pair[1]));
                waiting.extend(own.iter().map(|pair| (pair[1], meeting)));
            }
        }
        waiting.sort_unstable();
        for same in waiting.chunk_by(|a, b| a.0 == b.0) {
            let (rank, row) = same[0].0;
            let range = (self.waiting.len() as u32, same.len() as u32);
            self.rows[rank as usize][row as usize].waiting = range;
            self.waiting.extend(same.iter().map(|(_, meeting)| *meeting));
        }
        self.stages = Stages::of(&self.rows, self.joined().into_iter());
    }

    /// Returns the pairs of ranks that messages join. Ranks that meet in as many collectives as they
    /// have messages are taken to do the same, and only to tell each other something now and then.
    fn joined(&self) -> Vec<(u32, u32)> {
        let between = self.messages.iter().filter(|of| !of.is_between_like);
        let mut sides: Vec<(u32, u32, u32)> = between
            .flat_map(|of| [(of.send, of.receive.0), (of.receive, of.send.0)])
            .map(|((rank, row), other)| (rank, other, row))
            .collect();
        sides.sort_unstable();
        let mut mostly_sends = vec![false; self.rows.len()];
        for of_rank in sides.chunk_by(|a, b| a.0 == b.0) {
            let (rank, other, _) = of_rank[0];
            let with_other = of_rank.iter().filter(|of| of.1 == other).count();
            let has_other = |row: &&GraphRow| {
                let members = self.ending_with(row.meeting);
                row.of.id.is_some() && members.binary_search_by_key(&other, |of| of.0).is_ok()
            };
            let met = self.rows[rank as usize].iter().filter(has_other).count();
            mostly_sends[rank as usize] = with_other > met;
        }
        sides.retain(|of| mostly_sends[of.0 as usize] && mostly_sends[of.1 as usize]);
        sides.into_iter().map(|(rank, other, _)| (rank, other)).collect()
    }

    /// What collectives tell about the clocks of their ranks: none left before another one came.
    fn known_by_collectives(&self) -> impl Iterator<Item = NotAfter> + '_ {
        let of = |(rank, row): (u32, u32)| (rank, self.rows[rank as usize][row as usize].of);
        self.meetings.iter().flat_map(move |meeting| {
            let members = &self.members[meeting.first as usize..][..meeting.count as usize];
            let first = of(members[0]);
            members[1..].iter().flat_map(move |other| {
                let other = of(*other);
                [(first, other), (other, first)].map(|((rank, came), (other, left))| NotAfter {
                    step: first.1.step,
                    from: (rank, came.start_ns),
                    to: (other, left.start_ns + left.duration_ns),
                })
            })
        })
    }

    /// Whether the replay follows the operations that take most of the time between ranks.
    pub fn is_followed(&self) -> bool {
        let mut is_matched: Vec<Vec<bool>> =
            self.rows.iter().map(|rows| vec![false; rows.len()]).collect();
        for (rank, row) in self.messages.iter().flat_map(|of| [of.send, of.receive]) {
            is_matched[rank as usize][row as usize] = true;
        }
        self.ranks.iter().zip(&self.rows).zip(&is_matched).all(|((steps, rows), is_matched)| {
            let (mut all_ns, mut unmatched_ns) = (0_u64, 0_u64);
            for (row, is_matched) in rows.iter().zip(is_matched) {
                if row.of.id.is_none() {
                    all_ns += row.of.duration_ns;
                    unmatched_ns += if *is_matched { 0 } else { row.of.duration_ns };
                }
            }
            let share = unmatched_ns as f64 / all_ns.max(1) as f64;
            let unfollowed_ns = steps.unfollowed_ns as f64 + share * steps.messages_ns as f64;
            unfollowed_ns <= MOST_UNFOLLOWED * steps.steps_ns.max(1) as f64
        })
    }

    /// Returns the members of a meeting: rank and row.
    pub(super) fn members_of(&self, meeting: u32) -> &[(u32, u32)] {
        let Meeting { first, count, .. } = self.meetings[meeting as usize];
        &self.members[first as usize..(first + count) as usize]
    }

    /// Returns the members of a meeting that end with it: rank and row.
    pub(super) fn ending_with(&self, meeting: u32) -> &[(u32, u32)] {
        &self.members_of(meeting)[..self.meetings[meeting as usize].ending as usize]
    }

    /// Returns the time for which a row waits for other ranks, ns.
    pub(super) fn waited_ns(&self, row: &GraphRow) -> u64 {
        row.of.duration_ns.saturating_sub(self.meetings[row.meeting as usize].transfer_ns)
    }

    /// Returns the entry to a row on a clock that ranks share; `None` if none is needed, since no
    /// rank sends or receives.
    pub(super) fn shared_entry(&self, rank: u32, row: &GraphRow) -> Option<SharedTime> {
        let is_known = !self.messages.is_empty();
        is_known.then(|| self.clocks.at(rank, row.of.step, row.of.start_ns))
    }

    /// Returns what a rank's own time at a row would be if it were like the others; `None` if it has
    /// no others. It is the median over the other ranks of the meeting, unless messages join it with
    /// one of them: these do not do the same before each meeting. Then it is the rank's own time,
    /// scaled by what the ranks that it is joined with need in all.
    pub(super) fn typical(
        &self,
        (rank, row): (u32, u32),
        of: impl Fn(&StepMeeting) -> u64,
    ) -> Option<Typical> {
        let own = &self.rows[rank as usize][row as usize];
        let others = self.members_of(own.meeting).iter().filter(|(other, _)| *other != rank);
        let is_joined = |(other, _): &(u32, u32)| self.stages.are_joined(rank, *other);
        let has_no_others = own.of.id.is_none() && others.clone().next().is_none();
        if has_no_others || others.clone().any(is_joined) {
            let ratio = self.stages.ratio(rank)?;
            return Some(Typical {
                ns: (of(&own.of) as f64 * ratio).round() as u64,
                is_by_ratio: true,
            });
        }
        let rows = others.map(|(rank, row)| &self.rows[*rank as usize][*row as usize]);
        // Ranks that entered it during another meeting have no such time.
        let times: Vec<u64> =
            rows.filter(|row| !row.of.overlaps && !row.is_first).map(|row| of(&row.of)).collect();
        (!times.is_empty()).then(|| Typical { ns: median(times), is_by_ratio: false })
    }
}

/// What a rank's own time would be if it were like the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Typical {
    pub ns: u64,
    /// Whether it is the rank's own time, scaled by what the others need in all.
    pub is_by_ratio: bool,
}
