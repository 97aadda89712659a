//! Finds the training step that a moment on a core belongs to.

use rustc_hash::FxHashSet;
use tprof_rank::base::intervals::Interval;
use tprof_rank::{RankTrace, Step, step_at};
use tprof_trace::model::{MarkKind, NameId, ProcessIndex};

/// The identity of a step or range: the step's number (0 for ranges) and the name.
pub type Label = (u64, String);

/// Finds the step at a given time.
pub(super) struct StepLookup {
    steps: Vec<Step>,
    pub(super) labels: Vec<Label>,
    /// Processes that have steps.
    owners: FxHashSet<ProcessIndex>,
}

impl StepLookup {
    /// Reads the rank's steps. If there are none, the time from each mark to the next takes their
    /// place.
    pub(super) fn of(rank: &RankTrace<'_>) -> StepLookup {
        let mut steps = rank.steps();
        let label = |step: &Step| (step.number, format!("step {}", step.number));
        let mut labels: Vec<Label> = steps.iter().map(label).collect();
        if steps.is_empty() {
            (steps, labels) = marks(rank);
        }
        let owners = steps.iter().map(|step| step.process).collect();
        StepLookup { steps, labels, owners }
    }

    /// Whether there are no steps.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The label of the step that a process was in at a time.
    pub(super) fn label_at(&self, process: ProcessIndex, time_ns: u64) -> Option<Label> {
        self.at(process, time_ns).map(|step| self.labels[step as usize].clone())
    }

    /// Index of the step that a process was in at a time. If only one process of the rank has
    /// steps, the other processes (its workers) are in these steps too.
    pub(super) fn at(&self, process: ProcessIndex, time_ns: u64) -> Option<u32> {
        let owner = match self.owners.contains(&process) {
            true => process,
            false if self.owners.len() == 1 => *self.owners.iter().next()?,
            false => return None,
        };
        step_at(&self.steps, owner, time_ns)
    }
}

/// Makes a step from each mark to the next; the step of the last mark has no end.
fn marks(rank: &RankTrace<'_>) -> (Vec<Step>, Vec<Label>) {
    let marks = rank.file.marks().iter().filter(|mark| mark.kind == MarkKind::Mark);
    let mut marks: Vec<(u64, NameId)> = marks.map(|mark| (mark.time_ns, mark.name)).collect();
    marks.sort_unstable();
    let mut steps = Vec::new();
    let mut labels = Vec::new();
    for (at, (start_ns, name)) in marks.iter().enumerate() {
        let end_ns = marks.get(at + 1).map_or(u64::MAX, |next| next.0);
        let interval = Interval::new(*start_ns, end_ns);
        steps.push(Step::on_host(at as u64, 0, interval));
        labels.push((at as u64, format!("from mark {}", rank.name(*name))));
    }
    (steps, labels)
}
