//! What a rule found: what is wrong, what it may cost, where to look.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};

use tprof_facts::labels::base_name;
use tprof_trace::model::ThreadIndex;

use super::severity::Severity;
use crate::base::intervals::{Cover, Interval};
use crate::rank::StreamKey;

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
    /// The time of which that is a share, where it is not the window.
    pub of_ns: Option<u64>,
    /// The time is spent once in the rank's life, not in each step.
    pub is_once: bool,
    /// Its size where it is memory.
    pub bytes: Option<u64>,
    /// Its share, where that is not of time.
    pub share: Option<f64>,
    /// It is no more severe than that, however large it is.
    pub most: Option<Severity>,
    /// The line that has it, if one was recorded.
    pub line: Option<SourceLine>,
    /// Worth a note although little or no time is gained.
    pub keep: bool,
    /// Where to look, longest first.
    pub evidence: Vec<Evidence<'static>>,
    /// How many such places there are.
    pub places: usize,
    /// Why nothing is known of what may be gained.
    pub gain_unknown: Option<&'static str>,
    /// It is about one place that can be changed by itself, not about how the job is built.
    pub is_local: bool,
    /// The places are not needed: none are kept or counted.
    pub is_brief: bool,
}

/// A line of source code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceLine {
    /// Its function.
    pub function: String,
    /// Its file; empty if unknown.
    pub file: String,
    /// Its number; 0 if unknown.
    pub line: u32,
}

impl SourceLine {
    /// `a.py:3`, or what of that is known.
    pub(super) fn shown(&self) -> String {
        match (self.file.is_empty(), self.line) {
            (true, _) => self.function.clone(),
            (false, 0) => base_name(&self.file).to_owned(),
            (false, line) => format!("{}:{line}", base_name(&self.file)),
        }
    }
}

/// An interval that one can open in a timeline.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Evidence<'a> {
    /// When, on the file's clock.
    pub interval: Interval,
    /// Where.
    pub place: Track,
    /// What was there.
    pub name: Cow<'a, str>,
}

impl Evidence<'_> {
    /// Longest first, then by time and name.
    fn compare(&self, other: &Evidence<'_>) -> Ordering {
        let key = |one: &Evidence<'_>| (Reverse(one.interval.length()), one.interval);
        key(self).cmp(&key(other)).then_with(|| self.name.cmp(&other.name))
    }

    fn owned(self) -> Evidence<'static> {
        Evidence { name: Cow::Owned(self.name.into_owned()), ..self }
    }
}

/// Where something was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Track {
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
            of_ns: None,
            is_once: false,
            bytes: None,
            share: None,
            most: None,
            line: None,
            keep: false,
            evidence: Vec::new(),
            places: 0,
            gain_unknown: None,
            is_local: false,
            is_brief: false,
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

    /// The time of which the gain is a share.
    pub(super) fn of(mut self, of_ns: u64) -> Finding {
        self.of_ns = Some(of_ns);
        self
    }

    /// The same of a time that is spent once, outside of the steps.
    pub(super) fn spent_once(mut self, of_ns: u64) -> Finding {
        self.is_once = true;
        self.of(of_ns)
    }

    /// Its size in bytes, and the share that ranks it among others.
    pub(super) fn bytes(mut self, bytes: u64, share: f64) -> Finding {
        (self.bytes, self.share) = (Some(bytes), Some(share));
        self
    }

    /// Nothing is known of what may be gained, for this reason: a note.
    pub(super) fn unknown_gain(mut self, why: &'static str) -> Finding {
        (self.gain_unknown, self.keep) = (Some(why), true);
        self
    }

    /// It is about one place that can be changed by itself.
    pub(super) fn local(mut self) -> Finding {
        self.is_local = true;
        self
    }

    /// The line that has it.
    pub(super) fn on_line(mut self, line: Option<SourceLine>) -> Finding {
        self.line = line;
        self
    }

    /// Where to look: the longest of these places are kept. There may be millions, so
    /// that no more than a few times those are held.
    pub(super) fn at<'a>(mut self, places: impl IntoIterator<Item = Evidence<'a>>) -> Finding {
        if self.is_brief {
            return self;
        }
        let mut longest: Vec<Evidence<'a>> = Vec::with_capacity(4 * MOST_PLACES);
        let cut = |longest: &mut Vec<Evidence<'a>>| {
            longest.sort_by(Evidence::compare);
            longest.truncate(MOST_PLACES);
        };
        let mut least_ns = 0;
        for place in places {
            self.places += 1;
            if place.interval.length() < least_ns {
                continue;
            }
            longest.push(place);
            if longest.len() == 4 * MOST_PLACES {
                cut(&mut longest);
                least_ns = longest.last().map_or(0, |last| last.interval.length());
            }
        }
        cut(&mut longest);
        self.evidence = longest.into_iter().map(Evidence::owned).collect();
        self
    }
}

/// Parts of a cover as places where nothing ran.
pub(super) fn idle_places(cover: &Cover) -> impl Iterator<Item = Evidence<'static>> {
    let place =
        |&interval: &Interval| Evidence { interval, place: Track::Idle, name: "idle".into() };
    cover.parts().iter().map(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_longest_places_are_kept_however_many_there_are(
            rows in prop::collection::vec((0_u64..50, 0_u64..30, 0_usize..3), 0..400),
        ) {
            let place = |&(start, length, name): &(u64, u64, usize)| Evidence {
                interval: Interval::new(start, start + length),
                place: Track::Idle,
                name: ["a", "b", "c"][name].into(),
            };
            let kept = Finding::new("x").at(rows.iter().map(place));
            let mut all: Vec<Evidence> = rows.iter().map(place).collect();
            all.sort_by(Evidence::compare);
            prop_assert_eq!(kept.places, rows.len());
            prop_assert_eq!(&kept.evidence[..], &all[..rows.len().min(MOST_PLACES)]);
        }
    }
}
