//! Replays the steps of all ranks, with the operations in which they wait for each other.
//!
//! A rank's step is a chain of its own stretches and of meetings: collectives, sends and receives.
//! A collective ends for all of its ranks when the last has come, plus the time of the transfer;
//! that is the time of the rank whose operation was shortest. Everything is a duration on the rank's
//! own clock, so clocks of hosts need not agree. The replay tells which stretches decided a step,
//! and how long a step takes if a rank's stretches are replaced by what the others need.
//!
//! A receive ends when its sender has come, plus the time of the transfer; that is the rest of its
//! duration. Whether a send waits for its receiver depends on its library and size: NCCL and large
//! messages of MPI wait, small messages are buffered. So the sends of each size tell: if more of
//! them ended before their receivers came than lasted until then, none of that size is assumed to
//! wait. A kernel that sends and receives several messages ends when it need not wait for any of
//! their other ranks. How long a message waited takes times of two ranks on one clock: that of their
//! host, or else one that is estimated for each block of steps from what the ranks exchange
//! (`clocks`).
//!
//! The replay assumes that ranks have their cores for as long as before. Where more threads are ready
//! than there are cores, a rank that waits less, or polls less while it waits, leaves more to others.
//! A prediction is therefore as uncertain as the rank's time without a core is long.
//!
//! Work that a device computed during a meeting does not depend on it. What follows the meeting on
//! the rank is assumed to depend on both.

mod clocks;
mod graph;
mod measured;
mod messages;
mod own_places;
mod path;
mod pipeline;
mod replayed;
mod stages;
mod what_if;

use tprof_facts::labels::base_name;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::collectives::{Operation, waits_for_all};
use tprof_rank::meetings::{CollectiveId, named};
use tprof_rank::messages::{NumberedMessage, numbered};
use tprof_rank::roles::Role;
use tprof_rank::{RankTrace, Step, of_devices};

pub use graph::JobGraph;
pub use path::{Decided, DecidedSteps, decided_steps};
pub use pipeline::{Pipeline, Stage, pipelines};
pub use what_if::{WhatIf, what_if};

use own_places::own_places;

use crate::host::no_core_share;

/// Most meetings that are kept of a rank. Of more, blocks of steps are kept, the same on all ranks.
const MOST_KEPT: usize = 2048;
/// Number of steps of a block. The first of a block only tells where its ranks stand.
const BLOCK: u64 = 8;

/// A meeting of a rank with others, and the rank's own time around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepMeeting {
    /// The collective, as all its ranks identify it; `None` if the rank sends and receives, which is
    /// a meeting of its own ([`RankSteps::messages`]).
    pub id: Option<CollectiveId>,
    /// Number of the step.
    pub step: u64,
    /// Place of the meeting in the rank's step, from 0.
    pub place: u32,
    /// The entry on the clock of the rank's file, ns.
    pub start_ns: u64,
    /// Time from the end of all earlier meetings to the entry, ns.
    pub before_ns: u64,
    /// Time from the entry to the meeting before to the entry to this one, ns.
    pub since_entry_ns: u64,
    /// Time from the entry to the end, ns.
    pub duration_ns: u64,
    /// Time that a device of the rank computed during the meeting, ns.
    pub hidden_ns: u64,
    /// Whether the rank entered it before the end of an earlier one, so that it didn't wait for
    /// that.
    pub overlaps: bool,
}

/// A send or a receive of a meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMessage {
    /// Index of the meeting among the rank's.
    pub meeting: u32,
    /// Whether a kernel sends or receives it.
    pub is_on_device: bool,
    /// Whether its ranks do the same, as those of experts and of sequences do, and stages of
    /// pipelines do not.
    pub is_between_like: bool,
    /// The message, as both its ranks identify it.
    pub of: NumberedMessage,
}

/// Code in which a rank spent a stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnPlace {
    /// The operator that launched the work, or else its kernel; empty for code of the host.
    pub operator: String,
    /// The function of the host; empty for work of a device.
    pub function: String,
    /// File of the function; empty if unknown.
    pub file: String,
    /// Line in the file; 0 if unknown.
    pub line: u32,
}

impl OwnPlace {
    /// Formats the place as `function (file.py:12)`, or as the operator's name.
    pub fn shown(&self) -> String {
        let file = base_name(&self.file);
        match (self.operator.is_empty(), file.is_empty(), self.line) {
            (false, ..) => self.operator.clone(),
            (true, true, _) => self.function.clone(),
            (true, false, 0) => format!("{} ({file})", self.function),
            (true, false, line) => format!("{} ({file}:{line})", self.function),
        }
    }
}

/// The steps of a rank, as the replay needs them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankSteps {
    /// Name of the rank's host, whose ranks have one clock; empty if it is not known.
    pub host: String,
    /// The meetings, in order of entry.
    pub meetings: Vec<StepMeeting>,
    /// The messages of the meetings, in order of the meetings.
    pub messages: Vec<StepMessage>,
    /// For each place in a step, the code in which the rank spent most of the time before it, and
    /// its time over all steps, ns, most first.
    pub places: Vec<Vec<(OwnPlace, u64)>>,
    /// The rank keeps one block of steps in so many; a power of two.
    pub stride: u64,
    /// Time of the steps, ns.
    pub steps_ns: u64,
    /// The part of it in sends and receives of known ranks, ns.
    pub messages_ns: u64,
    /// The part of it in operations that are not followed, ns: broadcasts and others in which not
    /// all ranks wait, and sends and receives of unknown ranks.
    pub unfollowed_ns: u64,
    /// The share of the time of the steps in which the rank was ready to run, but had no core;
    /// `None` if that is unknown.
    pub no_core_share: Option<f64>,
}

impl RankSteps {
    /// Reads the steps of a rank. `steps_of_work` has the step of each piece of work.
    pub fn of(
        rank: &RankTrace,
        operations: &[Operation],
        steps: &[Step],
        steps_of_work: &[Option<u32>],
    ) -> RankSteps {
        type Entry<'o> = (&'o Operation, Option<CollectiveId>, u64, Vec<NumberedMessage>);
        let collectives = named(rank, operations, steps, steps_of_work).into_iter().filter_map(
            |(operation, name)| Some((operation, Some(name.collective_id), name.step?, Vec::new())),
        );
        let messages = numbered(rank, operations, steps, steps_of_work);
        let messages = messages
            .into_iter()
            .filter_map(|(operation, step, messages)| Some((operation, None, step?, messages)));
        let mut all: Vec<Entry<'_>> = collectives.chain(messages).collect();
        all.sort_by_key(|(operation, ..)| (operation.start_ns, operation.duration_ns));
        let computing = of_devices(rank, |busy| &busy.compute);
        let mut meetings: Vec<StepMeeting> = Vec::with_capacity(all.len());
        let (mut last_entry_ns, mut last_end_ns) = (None, 0);
        let mut messages = Vec::new();
        for (operation, id, step, of_operation) in &all {
            let Operation { start_ns, duration_ns, .. } = **operation;
            let end_ns = start_ns.saturating_add(duration_ns);
            let place = match meetings.last() {
                Some(last) if last.step == *step => last.place + 1,
                _ => 0,
            };
            messages.extend(of_operation.iter().map(|of| StepMessage {
                meeting: meetings.len() as u32,
                is_on_device: operation.work.is_some(),
                is_between_like: matches!(operation.role, Role::Expert | Role::Sequence),
                of: *of,
            }));
            meetings.push(StepMeeting {
                id: *id,
                step: *step,
                place,
                start_ns,
                before_ns: start_ns.saturating_sub(last_end_ns),
                since_entry_ns: start_ns - last_entry_ns.unwrap_or(start_ns),
                duration_ns,
                hidden_ns: computing.length_within(Interval::new(start_ns, end_ns)),
                overlaps: last_entry_ns.is_some() && start_ns < last_end_ns,
            });
            last_entry_ns = Some(start_ns);
            last_end_ns = last_end_ns.max(end_ns);
        }
        let entries =
            all.iter().zip(&meetings).map(|((operation, ..), of)| (operation.start_ns, of.place));
        let places = own_places(rank, &entries.collect::<Vec<_>>());
        let times = Cover::of(steps.iter().map(Step::time));
        let within = |of: &Operation| {
            times.length_within(Interval::new(of.start_ns, of.start_ns + of.added_ns))
        };
        let others = || operations.iter().filter(|operation| !waits_for_all(&operation.name));
        let (followed, unfollowed): (Vec<_>, Vec<_>) =
            others().partition(|operation| !operation.messages.is_empty());
        let mut all = RankSteps {
            host: rank.file.header().host.clone(),
            meetings,
            messages,
            places,
            stride: 1,
            steps_ns: times.length(),
            messages_ns: followed.into_iter().map(within).sum(),
            unfollowed_ns: unfollowed.into_iter().map(within).sum(),
            no_core_share: no_core_share(rank, steps, &times),
        };
        while all.meetings.len() > MOST_KEPT && has_many_blocks(&all.meetings) {
            all.keep(all.stride * 2);
        }
        all
    }

    /// Keeps one block of steps in `stride`.
    fn keep(&mut self, stride: u64) {
        let meetings = &self.meetings;
        let is_kept = |of: &StepMeeting| is_kept(of.step, stride);
        let mut next = 0;
        let places: Vec<Option<u32>> = meetings
            .iter()
            .map(|of| {
                let place = is_kept(of).then_some(next);
                next += u32::from(place.is_some());
                place
            })
            .collect();
        self.messages.retain_mut(|of| match places[of.meeting as usize] {
            Some(place) => {
                of.meeting = place;
                true
            }
            None => false,
        });
        self.meetings.retain(is_kept);
        self.stride = stride;
    }
}

/// Whether a rank that keeps one block in `stride` keeps this step.
fn is_kept(step: u64, stride: u64) -> bool {
    (step / BLOCK).is_multiple_of(stride)
}

fn has_many_blocks(meetings: &[StepMeeting]) -> bool {
    let block = |of: Option<&StepMeeting>| of.map(|of| of.step / BLOCK);
    block(meetings.first()) != block(meetings.last())
}

#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
