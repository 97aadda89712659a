//! Decides where a running job stands still, and which rank holds up the others.
//!
//! A collector gathers what it knows of its ranks at one moment ([`HostState`]); from the states of
//! all hosts that answered, [`judge`] makes the verdict. It is a pure function, so every kind of
//! verdict is tested without a job. What can't be told from the state is [`Kind::Unknown`]. States
//! may also come from dumps of a job that has ended, which have only operations ([`DumpFile`]).
//!
//! The modules in reading order; each uses only those above it:
//!
//! - `state`: what is gathered of hosts, ranks and threads;
//! - `place`: which frame of a stack to name, and what the frames say about the wait;
//! - `situation`: what each rank does, from its state;
//! - `words`: phrases about ranks and waits;
//! - `verdict`: the verdict, with one file for each kind that needs several ranks or threads;
//! - `hung`: whether ranks hang, for a collector that watches;
//! - `slow`: what a rank does in a step that takes long, for a collector that watches;
//! - `fold`: groups ranks that do the same;
//! - `answer`: the answer as text and as JSON.

mod state;

mod place;

mod situation;

mod words;

mod verdict;

mod fold;

mod hung;

mod slow;

mod answer;

pub use answer::{Answer, NotAnswered};
pub use slow::{SlowStep, slow_step};
pub use state::{
    Backend, CallState, DumpFile, FrameState, GroupState, HostState, LaunchState, Layer, Operation,
    Progress, RankEnd, RankState, StepState, StreamState, ThreadState, Wait, WaitKind,
};
pub use verdict::{Kind, Verdict, judge};
pub use words::numbers as rank_numbers;
