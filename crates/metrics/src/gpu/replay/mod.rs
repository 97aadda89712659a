//! Replays the steps of all ranks, with the collectives in which they meet.
//!
//! A rank's step is a chain of its own stretches and of meetings. A meeting ends for all of its
//! ranks when the last has come, plus the time of the transfer; that is the time of the rank whose
//! operation was shortest. Everything is a duration on the rank's own clock, so clocks of hosts need
//! not agree. The replay tells which stretches decided a step, and how long a step takes if a rank's
//! stretches are replaced by what the others need.
//!
//! Work that a device computed during a meeting does not depend on it. What follows the meeting on
//! the rank is assumed to depend on both.

mod graph;
mod own_places;
mod path;
mod what_if;

use tprof_facts::labels::base_name;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::collectives::{Operation, waits_for_all};
use tprof_rank::meetings::{CollectiveId, named};
use tprof_rank::{RankTrace, Step, of_devices};

pub use graph::JobGraph;
pub use path::{Decided, DecidedSteps, decided_steps};
pub use what_if::{WhatIf, what_if};

use own_places::own_places;

/// Most meetings that are kept of a rank. Of more, blocks of steps are kept, the same on all ranks.
const MOST_KEPT: usize = 2048;
/// Number of steps of a block. The first of a block only tells where its ranks stand.
const BLOCK: u64 = 8;
/// Sends, receives and other operations in which not all ranks wait are not followed. If they take
/// more than this share of the steps, the replay would blame the wrong rank.
const MOST_UNFOLLOWED: f64 = 0.05;

/// A meeting of a rank with others, and the rank's own time around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMeeting {
    /// The meeting, as all its ranks identify it.
    pub id: CollectiveId,
    /// Number of the step.
    pub step: u64,
    /// Place of the meeting in the rank's step, from 0.
    pub place: u32,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSteps {
    /// The meetings, in order of entry.
    pub meetings: Vec<StepMeeting>,
    /// For each place in a step, the code in which the rank spent most of the time before it, and
    /// its time over all steps, ns, most first.
    pub places: Vec<Vec<(OwnPlace, u64)>>,
    /// The rank keeps one block of steps in so many; a power of two.
    pub stride: u64,
    /// Whether operations that are not followed take too much of the steps.
    pub is_unfollowed: bool,
}

impl RankSteps {
    /// Reads the steps of a rank. `steps_of_work` has the step of each piece of work.
    pub fn of(
        rank: &RankTrace,
        operations: &[Operation],
        steps: &[Step],
        steps_of_work: &[Option<u32>],
    ) -> RankSteps {
        let mut all: Vec<(&Operation, CollectiveId, u64)> =
            (named(rank, operations, steps, steps_of_work).into_iter())
                .filter_map(|(operation, name)| Some((operation, name.collective_id, name.step?)))
                .collect();
        all.sort_by_key(|(operation, ..)| (operation.start_ns, operation.duration_ns));
        let computing = of_devices(rank, |busy| &busy.compute);
        let mut meetings: Vec<StepMeeting> = Vec::with_capacity(all.len());
        let (mut last_entry_ns, mut last_end_ns) = (None, 0);
        for (operation, id, step) in &all {
            let Operation { start_ns, duration_ns, .. } = **operation;
            let end_ns = start_ns.saturating_add(duration_ns);
            let place = match meetings.last() {
                Some(last) if last.step == *step => last.place + 1,
                _ => 0,
            };
            meetings.push(StepMeeting {
                id: *id,
                step: *step,
                place,
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
        let mut stride = 1;
        while meetings.len() > MOST_KEPT && has_many_blocks(&meetings) {
            stride *= 2;
            meetings.retain(|of| is_kept(of.step, stride));
        }
        let is_unfollowed = unfollowed_share(operations, steps) > MOST_UNFOLLOWED;
        RankSteps { meetings, places, stride, is_unfollowed }
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

/// Returns the share of the steps' time that other operations between ranks took.
fn unfollowed_share(operations: &[Operation], steps: &[Step]) -> f64 {
    let times = Cover::of(steps.iter().map(Step::time));
    let others = operations.iter().filter(|operation| !waits_for_all(&operation.name));
    let taken: u64 = others
        .map(|of| times.length_within(Interval::new(of.start_ns, of.start_ns + of.added_ns)))
        .sum();
    taken as f64 / times.length().max(1) as f64
}

#[cfg(test)]
mod tests;
