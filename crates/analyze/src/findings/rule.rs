//! What a rule is, and what it may answer.

use tprof_trace::model::ThreadIndex;

use super::scene::Scene;
use crate::intervals::{Cover, Interval};
use crate::rank::StreamKey;

/// Shares of a step from which a finding has a severity. Below the last one an
/// A/B test of a job whose steps vary by a few percent cannot show the gain.
const SEVERITIES: [(f64, Severity); 4] = [
    (0.25, Severity::Critical),
    (0.10, Severity::High),
    (0.03, Severity::Medium),
    (0.01, Severity::Low),
];

/// A question that is put to each rank.
pub(super) trait Rule: Sync {
    /// Name, as reports write it.
    fn name(&self) -> &'static str;

    /// Judges a rank.
    fn judge(&self, scene: &Scene<'_>) -> Verdict;
}

/// What a rule says of a rank.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// Something may be gained; bounds below 1 % are sorted out by the caller.
    Found(Vec<Finding>),
    /// Nothing, and what was measured instead.
    Clear(String),
    /// The data cannot tell.
    Undecided(Undecided),
}

impl Verdict {
    pub(super) fn clear(why: impl Into<String>) -> Verdict {
        Verdict::Clear(why.into())
    }

    pub(super) fn undecided(why: impl Into<String>, needs: impl Into<String>) -> Verdict {
        Verdict::Undecided(Undecided { why: why.into(), needs: needs.into() })
    }
}

/// Why a rule cannot answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Undecided {
    /// What is missing, and what is known all the same.
    pub why: String,
    /// Which data would tell, and how to get it.
    pub needs: String,
}

/// Something that may be gained.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// What it is about, where a rule finds several things; the same on all ranks.
    pub subject: String,
    /// What is wrong, in a sentence without a full stop.
    pub what: String,
    /// What was measured.
    pub seen: String,
    /// What to do.
    pub advice: String,
    /// No more than this is gained in the window by fixing it.
    pub bound_ns: u64,
    /// Worth saying although little or no time is gained.
    pub keep: bool,
    /// Where to look, longest first.
    pub evidence: Vec<Evidence>,
    /// How many such places there are.
    pub places: usize,
}

/// An interval that one can open in a timeline.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Evidence {
    /// When, on the file's clock.
    pub interval: Interval,
    /// Where.
    pub place: Place,
    /// What was there.
    pub name: String,
}

/// Where something was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On a thread.
    Thread(ThreadIndex),
    /// On a stream.
    Stream(StreamKey),
    /// On no stream: nothing ran.
    Idle,
}

/// Places that are kept of a finding on one rank.
const MOST_PLACES: usize = 20;

impl Finding {
    /// A finding of which this is wrong.
    pub(super) fn new(what: impl Into<String>) -> Finding {
        Finding {
            subject: String::new(),
            what: what.into(),
            seen: String::new(),
            advice: String::new(),
            bound_ns: 0,
            keep: false,
            evidence: Vec::new(),
            places: 0,
        }
    }

    /// What it is about, where a rule finds several things.
    pub(super) fn about(mut self, subject: impl Into<String>) -> Finding {
        self.subject = subject.into();
        self
    }

    /// What was measured.
    pub(super) fn seen(mut self, seen: impl Into<String>) -> Finding {
        self.seen = seen.into();
        self
    }

    /// What to do.
    pub(super) fn advice(mut self, advice: impl Into<String>) -> Finding {
        self.advice = advice.into();
        self
    }

    /// What may be gained in the window.
    pub(super) fn bound(mut self, bound_ns: u64) -> Finding {
        self.bound_ns = bound_ns;
        self
    }

    /// Where to look: the longest of these places are kept.
    pub(super) fn at(mut self, mut places: Vec<Evidence>) -> Finding {
        self.places = places.len();
        places.sort_by(|a, b| {
            let key = |one: &Evidence| (std::cmp::Reverse(one.interval.length()), one.interval);
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        places.truncate(MOST_PLACES);
        self.evidence = places;
        self
    }
}

/// Parts of a cover as places where nothing ran.
pub(super) fn idle_places(cover: &Cover) -> Vec<Evidence> {
    let place =
        |&interval: &Interval| Evidence { interval, place: Place::Idle, name: "idle".to_owned() };
    cover.parts().iter().map(place).collect()
}

/// How much a fix may be worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Severity {
    /// Less than 1 % of a step.
    Note,
    /// From 1 % of a step on.
    Low,
    /// From 3 % on.
    Medium,
    /// From 10 % on.
    High,
    /// From a quarter on.
    Critical,
}

impl Severity {
    /// Of a bound that is this share of a step.
    pub(super) fn of(share: f64) -> Severity {
        let at_least = |(from, _): &&(f64, Severity)| share >= *from;
        SEVERITIES.iter().find(at_least).map_or(Severity::Note, |(_, severity)| *severity)
    }

    /// As reports write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
            Severity::Critical => "critical",
        }
    }
}
