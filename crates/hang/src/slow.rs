//! What a rank does in a step that takes much longer than usual, for a collector that watches. Such
//! a rank doesn't stand still: it may evaluate, compile, write a checkpoint or wait for another.

use crate::situation::{RankView, Situation};
use crate::state::{HostState, RankState};
use crate::verdict::find_late;
use crate::words;
use serde::{Deserialize, Serialize};
use tprof_facts::units;

/// A step that takes much longer than usual, as it was seen while it ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowStep {
    /// The rank that was looked at: the one that others wait for, if any does.
    pub rank: u32,
    /// Number of its last step.
    pub step: u64,
    /// Time since that step ended, or since it began if the program marks beginnings, ns.
    pub age_ns: u64,
    /// The usual time of a step, ns.
    pub usual_ns: u64,
    /// One or two sentences about what the rank did.
    pub text: String,
    /// Function in which it was.
    pub function: Option<String>,
    /// File of that function.
    pub file: Option<String>,
    /// Line of that function.
    pub line: Option<u32>,
}

/// Whether a rank's step takes more than `times` its usual time.
fn is_slow(state: &RankState, times: f64) -> bool {
    let step = state.step.as_ref();
    step.and_then(|step| Some((step.age_ns, step.usual_ns?)))
        .is_some_and(|(age_ns, usual_ns)| age_ns as f64 > times * usual_ns as f64)
}

/// Returns the rank whose step takes more than `times` its usual time. Where ranks wait for another,
/// that is the other one.
pub fn slow_step(hosts: &[HostState], times: f64) -> Option<SlowStep> {
    // A rank that others wait for needn't have been quiet for long.
    let situation = Situation::with_limit(hosts, 0);
    let slow = || situation.live().filter(|view| is_slow(view.state, times));
    slow().next()?;
    let late = find_late(&situation).filter(|late| is_slow(late.view.state, times));
    let waits_for = late.as_ref().map(|late| format!(". {} for it", late.waiting(&situation)));
    let is_free = |view: &&RankView<'_>| view.open.is_none();
    let late = late.map(|late| late.view);
    let view = late.or_else(|| slow().find(is_free)).or_else(|| slow().next())?;
    let step = view.state.step.as_ref()?;
    let usual_ns = step.usual_ns?;
    let inside = view.open.as_ref().filter(|open| open.is_certain && late.is_none());
    let inside = inside.map(|open| format!(", in {}", words::operation(open)));
    let text = format!(
        "{} is {} past step {}, {:.1} times the usual {}: {}{}{}",
        words::rank(view.state),
        units::duration(step.age_ns),
        units::count(step.number),
        step.age_ns as f64 / usual_ns.max(1) as f64,
        units::duration(usual_ns),
        words::doing(view),
        inside.unwrap_or_default(),
        waits_for.unwrap_or_default(),
    );
    let place = view.state.driving().and_then(|thread| thread.place());
    Some(SlowStep {
        rank: view.state.rank,
        step: step.number,
        age_ns: step.age_ns,
        usual_ns,
        text,
        function: place.map(|of| of.plain_function().to_owned()).filter(|name| !name.is_empty()),
        file: place.map(|of| of.file.clone()).filter(|file| !file.is_empty()),
        line: place.map(|of| of.line).filter(|line| *line > 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{
        Backend, FrameState, GroupState, Layer, Operation, StepState, ThreadState, Wait, WaitKind,
    };

    const MS: u64 = 1_000_000;

    /// A rank in this function, this long after step 12, whose steps take 100 ms.
    fn rank(rank: u32, function: &str, age_ms: u64) -> RankState {
        let frame = FrameState {
            function: function.into(),
            file: "/home/u/train.py".into(),
            line: 41,
            layer: Layer::Python,
            ..FrameState::default()
        };
        let wait = Wait { kind: WaitKind::Sleep, ..Wait::default() };
        let thread = ThreadState {
            state: 'S',
            wait: Some(wait),
            frames: vec![frame],
            ..ThreadState::default()
        };
        RankState {
            rank,
            host: "c1".into(),
            step: Some(StepState { number: 12, age_ns: age_ms * MS, usual_ns: Some(100 * MS) }),
            threads: vec![thread],
            ..RankState::default()
        }
    }

    /// Adds that a rank has made 7 all-reduces of gloo, and is perhaps in another.
    fn reduces(mut state: RankState, is_in: bool) -> RankState {
        let operation = |number| Operation {
            number,
            name: "all_reduce".into(),
            is_over: number < 7,
            age_ns: 20 * MS,
            ..Operation::default()
        };
        let recent: Vec<_> = (6..7 + u64::from(is_in)).map(operation).collect();
        state.groups = vec![GroupState {
            backend: Backend::Torch,
            entered: 7 + u64::from(is_in),
            finished: Some(7),
            recent,
            ..GroupState::default()
        }];
        state
    }

    fn of(ranks: Vec<RankState>) -> Option<SlowStep> {
        slow_step(&[HostState { ranks, ..HostState::default() }], 3.0)
    }

    #[test]
    fn a_step_is_slow_only_beyond_the_multiple_of_its_usual_time() {
        assert_eq!(of(vec![rank(0, "loads", 299)]), None);
        let slow = of(vec![rank(0, "steps", 20), rank(1, "loads", 450)]).unwrap();
        assert_eq!((slow.rank, slow.step, slow.line), (1, 12, Some(41)));
        assert_eq!(
            slow.text,
            "rank 1 (host c1) is 450.0 ms past step 12, 4.5 times the usual 100.0 ms: it is in loads \
             (/home/u/train.py:41) and waits for a time (it sleeps)"
        );
        let mut unknown = rank(0, "loads", 450);
        unknown.step.as_mut().unwrap().usual_ns = None;
        assert_eq!(of(vec![unknown]), None);
    }

    #[test]
    fn the_rank_that_others_wait_for_is_named() {
        let late = reduces(rank(1, "loads", 400), false);
        let ranks = vec![reduces(rank(0, "reduces", 400), true), late];
        let slow = of(ranks).unwrap();
        assert_eq!((slow.rank, slow.function.as_deref()), (1, Some("loads")));
        assert!(slow.text.ends_with(". 1 rank waits for it"), "{}", slow.text);
    }

    #[test]
    fn ranks_that_wait_for_one_of_another_host_say_so() {
        let slow = of(vec![reduces(rank(0, "reduces", 400), true)]).unwrap();
        assert!(slow.text.ends_with(", in all_reduce 7 of its process groups"), "{}", slow.text);
    }
}
