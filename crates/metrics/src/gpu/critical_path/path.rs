//! Defines the critical path and sums its time by bound, the resource that limits each part.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rustc_hash::FxHashMap;
use tprof_rank::RankTrace;
use tprof_rank::base::intervals::Interval;
use tprof_trace::model::NameId;

/// Maximum number of parts of a rank's path that are kept, longest first.
const MOST_PARTS: usize = 1000;

/// The resource that bounds a part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bound {
    /// A host thread in a range, an operator or a call.
    Host,
    /// A host thread between its operators and calls, where no span names its work.
    Untraced,
    /// A kernel that computes.
    Compute,
    /// A kernel that communicates.
    Communication,
    /// A copy or a memset.
    Copy,
    /// The time from a launch to its kernel.
    Launch,
    /// Time between two pieces of work, the second of which waited for the first.
    KernelGap,
    /// The time from the end of device work to the return of the call that waited for it.
    Return,
    /// A dependency that takes no time of its own.
    Dependency,
    /// Time whose cause was not recorded.
    Unknown,
}

impl Bound {
    /// The name that reports print.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Host => "host",
            Bound::Untraced => "host, no range",
            Bound::Compute => "compute",
            Bound::Communication => "communication",
            Bound::Copy => "copy",
            Bound::Launch => "launch",
            Bound::KernelGap => "kernel gap",
            Bound::Return => "return",
            Bound::Dependency => "dependency",
            Bound::Unknown => "unknown",
        }
    }
}

/// A part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The time of the part, on the file's clock.
    pub interval: Interval,
    /// The resource that bounds the part.
    pub bound: Bound,
    /// Name of the work, span or call; 0 if the part has none.
    pub name: NameId,
}

/// A critical path through a window.
#[derive(Clone, Debug)]
pub struct Path {
    /// The parts of the path, in order.
    pub segments: Vec<Segment>,
}

/// Time on the path, and the number of parts that it consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Sum of durations, ns.
    pub time_ns: u64,
    /// Number of parts.
    pub parts: u64,
}

impl Share {
    pub(super) fn add(&mut self, time_ns: u64, parts: u64) {
        self.time_ns += time_ns;
        self.parts += parts;
    }
}

/// The sums of a rank's path.
#[derive(Clone, Debug, Default)]
pub struct PathTimes {
    /// Time and number of parts by bound.
    pub bounds: BTreeMap<Bound, Share>,
    /// Time and number of parts by bound and name.
    pub names: BTreeMap<(Bound, String), Share>,
    /// The longest parts, in order of time.
    pub parts: Vec<(Interval, Bound, String)>,
    /// With HTA's reading: the number of nodes and of edges of its graph, and of nodes on the path.
    pub counts: Option<[u64; 3]>,
}

impl PathTimes {
    /// Sums up a path.
    pub fn of(rank: &RankTrace, path: &Path) -> PathTimes {
        let mut sums = PathTimes::default();
        let mut names: FxHashMap<(Bound, NameId), Share> = FxHashMap::default();
        for part in &path.segments {
            names.entry((part.bound, part.name)).or_default().add(part.interval.length(), 1);
        }
        for ((bound, name), share) in names {
            sums.bounds.entry(bound).or_default().add(share.time_ns, share.parts);
            let name = rank.name(name).to_owned();
            sums.names.entry((bound, name)).or_default().add(share.time_ns, share.parts);
        }
        let named = |part: &Segment| (part.interval, part.bound, rank.name(part.name).to_owned());
        sums.parts = longest(&path.segments).into_iter().map(named).collect();
        sums
    }

    /// Returns the length of the path, ns.
    pub fn length_ns(&self) -> u64 {
        self.bounds.values().map(|share| share.time_ns).sum()
    }
}

/// Returns the longest parts of a path in order of time. A path may have millions of parts.
fn longest(parts: &[Segment]) -> Vec<&Segment> {
    // The top of the heap is the shortest part that the heap keeps, so it is the one to drop.
    let mut kept = BinaryHeap::with_capacity(MOST_PARTS + 1);
    let mut least_ns = 1;
    for (part, at) in parts.iter().zip(0_u32..) {
        if part.interval.length() < least_ns {
            continue;
        }
        kept.push((Reverse(part.interval.length()), part.interval, at));
        if kept.len() > MOST_PARTS {
            kept.pop();
            least_ns = kept.peek().map_or(1, |(Reverse(length), ..)| *length);
        }
    }
    let mut kept: Vec<&Segment> = kept.into_iter().map(|(.., at)| &parts[at as usize]).collect();
    kept.sort_by_key(|part| part.interval);
    kept
}
