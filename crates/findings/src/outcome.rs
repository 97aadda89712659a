//! Stores the verdicts of all rules on one rank.

use super::finding::Finding;
use super::rank_collectives::RankCollectives;
use super::stolen_time::StolenTime;
use super::verdict::Unchecked;

/// The verdicts of all rules on one rank.
#[derive(Clone, Debug)]
pub struct RankFindings {
    /// The rank's label: `rank 3`.
    pub(super) label: String,
    /// Number of recorded steps in the judged time.
    pub(super) steps: usize,
    /// Mean length of a step, ns; without steps, the length of the judged time.
    pub(super) step_ns: u64,
    /// Length of the judged time, ns.
    pub(super) window_ns: u64,
    /// Time in which devices worked outside of the judged time, ns.
    pub(super) outside_ns: u64,
    /// Idle time that isn't judged, ns; see `Scene::unknown_ns`.
    pub(super) unknown_ns: u64,
    /// Time that other programs took from the rank's driving thread; `None` if it was little or is
    /// unknown.
    pub(super) stolen_time: Option<StolenTime>,
    /// A note if the rank's driving thread has too few samples.
    pub(super) few_samples: Option<String>,
    /// The rank's collectives, by which it is compared with other ranks.
    pub(super) rank_collectives: RankCollectives,
    /// The verdicts of the rules, in the rules' order.
    pub(super) outcomes: Vec<Outcome>,
}

/// A rule's verdict on a rank.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Name of the rule.
    pub rule: &'static str,
    /// The findings, each with its places.
    pub found: Vec<(Finding, Vec<PlaceRow>)>,
    /// Why the rule found no problem, or no further one: what it measured, or that it had nothing
    /// to judge.
    pub no_problem: Option<String>,
    /// Whether `no_problem` says that the rank has no event of some kind. That text may be untrue
    /// of another rank.
    pub denies: bool,
    /// The reason why the rule was not checked.
    pub unchecked: Option<Unchecked>,
}

impl Outcome {
    /// Creates the outcome of a rule that has no verdict yet.
    pub(super) fn of(rule: &'static str) -> Outcome {
        Outcome { rule, found: Vec::new(), no_problem: None, denies: false, unchecked: None }
    }
}

/// A place as the report prints it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlaceRow {
    /// The process's pid.
    pub process: Option<u32>,
    /// The thread's tid.
    pub thread: Option<u32>,
    pub device: Option<u32>,
    pub stream: Option<u64>,
    /// Whether reports name the device because the rank used several.
    pub names_device: bool,
    /// Nanoseconds since the run began.
    pub start_ns: u64,
    /// The end of the interval, in the same unit.
    pub end_ns: u64,
    /// Name of the event.
    pub name: String,
}
