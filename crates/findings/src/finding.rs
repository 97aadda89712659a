//! Defines the result of a rule: a problem, the time that it may cost, and where to look.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};

use tprof_facts::functions::in_sentence;
use tprof_facts::labels::base_name;
use tprof_metrics::host::CodeLine;
use tprof_rank::StreamKey;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_trace::model::ThreadIndex;

use super::severity::Severity;

/// A problem whose fix may gain time or memory.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// The subject of the finding, if a rule can have several findings. The same subject on several
    /// ranks is one finding.
    pub subject: String,
    /// The problem, in a sentence without a full stop.
    pub what: String,
    /// The measurement behind the finding, in sentences.
    pub seen: String,
    /// The advice: how to fix it.
    pub advice: String,
    /// Upper bound of the time in the window that a fix gains, ns.
    pub bound_ns: u64,
    /// The time of which the bound is reported as a share, ns; `None` for the window.
    pub of_ns: Option<u64>,
    /// Whether the time is spent once in the rank's life, not in each step.
    pub is_once: bool,
    /// Size of the memory that the finding is about, bytes.
    pub bytes: Option<u64>,
    /// The share by which the finding is ranked; `None` for the bound's share of the time.
    pub share: Option<f64>,
    /// The highest severity that the finding may have, however large it is.
    pub max_severity: Option<Severity>,
    /// The source line that causes the problem, if one was recorded.
    pub line: Option<SourceLine>,
    /// Whether the finding is reported even if a fix gains little or no time.
    pub keep: bool,
    /// The places to look at, longest first.
    pub evidence: Vec<Evidence<'static>>,
    /// Number of places, including those that are not in `evidence`.
    pub places: usize,
    /// The reason why the possible gain is unknown.
    pub gain_unknown: Option<&'static str>,
    /// Whether changing one place in the code fixes the problem. Otherwise the job must be built
    /// differently.
    pub is_local: bool,
    /// Whether the run is a dump that was written because of this.
    pub is_cause: bool,
    /// Whether the caller needs no places, so that the finding neither stores nor counts any.
    pub is_brief: bool,
    /// Whether the job may use PyTorch, so that advice in PyTorch's terms helps.
    pub may_be_pytorch: bool,
}

/// A line of source code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceLine {
    /// Name of the function.
    pub function: String,
    /// Path of the file; empty if unknown.
    pub file: String,
    /// Number of the line; 0 if unknown.
    pub line: u32,
}

impl From<CodeLine> for SourceLine {
    fn from(line: CodeLine) -> SourceLine {
        let CodeLine { function, file, line } = line;
        SourceLine { function, file, line }
    }
}

impl SourceLine {
    /// Formats the place as `a.py:3`, or as much of it as is known.
    pub(super) fn shown(&self) -> String {
        match (self.file.is_empty(), self.line) {
            (true, _) => self.function.clone(),
            (false, 0) => base_name(&self.file).to_owned(),
            (false, line) => format!("{}:{line}", base_name(&self.file)),
        }
    }

    /// Formats the function and the place as `parse (load.py:22)`, or as much of it as is known.
    pub(super) fn named(&self) -> String {
        let function = in_sentence(&self.function);
        match (function.is_empty(), self.file.is_empty()) {
            (true, true) => String::new(),
            (true, false) => self.shown(),
            (false, true) => function,
            (false, false) => format!("{function} ({})", self.shown()),
        }
    }
}

/// An interval that a reader can find in a timeline.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Evidence<'a> {
    /// The time of the event, on the file's clock.
    pub interval: Interval,
    /// The track that the event is on.
    pub place: Track,
    /// Name of the event.
    pub name: Cow<'a, str>,
}

impl Evidence<'_> {
    /// Orders places by length, longest first, then by time and name.
    fn compare(&self, other: &Evidence<'_>) -> Ordering {
        let key = |one: &Evidence<'_>| (Reverse(one.interval.length()), one.interval);
        key(self).cmp(&key(other)).then_with(|| self.name.cmp(&other.name))
    }

    fn owned(self) -> Evidence<'static> {
        Evidence { name: Cow::Owned(self.name.into_owned()), ..self }
    }
}

/// The track of an event in a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Track {
    /// A host thread.
    Thread(ThreadIndex),
    /// A stream of a device.
    Stream(StreamKey),
    /// No thread or stream: the device was idle.
    Idle,
}

/// Maximum number of places that a finding stores for one rank.
const MOST_PLACES: usize = 20;

impl Finding {
    /// Creates a finding with this problem.
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
            max_severity: None,
            line: None,
            keep: false,
            evidence: Vec::new(),
            places: 0,
            gain_unknown: None,
            is_local: false,
            is_cause: false,
            is_brief: false,
            may_be_pytorch: true,
        }
    }

    /// Sets the subject, for rules that can have several findings.
    pub(super) fn about(mut self, subject: impl Into<String>) -> Finding {
        self.subject = subject.into();
        self
    }

    /// Sets the measurement behind the finding.
    pub(super) fn seen(mut self, seen: impl Into<String>) -> Finding {
        self.seen = seen.into();
        self
    }

    /// Sets the advice: how to fix it.
    pub(super) fn advice(mut self, advice: impl Into<String>) -> Finding {
        self.advice = advice.into();
        self
    }

    /// Adds to the advice what it means in PyTorch, unless the job doesn't use that.
    pub(super) fn in_pytorch(mut self, advice: &str) -> Finding {
        if self.may_be_pytorch && !advice.is_empty() {
            self.advice += " In PyTorch: ";
            self.advice += advice;
        }
        self
    }

    /// Sets the upper bound of the time that a fix gains in the window.
    pub(super) fn bound(mut self, bound_ns: u64) -> Finding {
        self.bound_ns = bound_ns;
        self
    }

    /// Sets the time of which the gain is reported as a share.
    pub(super) fn of(mut self, of_ns: u64) -> Finding {
        self.of_ns = Some(of_ns);
        self
    }

    /// Marks the time as spent once and outside of the steps, and sets the time of which the gain
    /// is reported as a share.
    pub(super) fn spent_once(mut self, of_ns: u64) -> Finding {
        self.is_once = true;
        self.of(of_ns)
    }

    /// Sets the size in bytes, and the share that ranks the finding among other findings.
    pub(super) fn bytes(mut self, bytes: u64, share: f64) -> Finding {
        (self.bytes, self.share) = (Some(bytes), Some(share));
        self
    }

    /// Turns the finding into a note. `why` is the reason why the gain is unknown.
    pub(super) fn unknown_gain(mut self, why: &'static str) -> Finding {
        (self.gain_unknown, self.keep) = (Some(why), true);
        self
    }

    /// Marks the finding as one that changing one place in the code fixes.
    pub(super) fn local(mut self) -> Finding {
        self.is_local = true;
        self
    }

    /// Marks the finding as one whose fix is elsewhere than the place that it names, or in several
    /// places.
    pub(super) fn not_local(mut self) -> Finding {
        self.is_local = false;
        self
    }

    /// Sets the source line that causes the problem.
    pub(super) fn on_line(mut self, line: Option<SourceLine>) -> Finding {
        self.line = line;
        self
    }

    /// Stores the longest of these places and counts all of them. There may be millions of places,
    /// so at most a few times [`MOST_PLACES`] of them are in memory at once.
    pub(super) fn at<'a>(mut self, places: impl IntoIterator<Item = Evidence<'a>>) -> Finding {
        if self.is_brief {
            return self;
        }
        let mut longest: Vec<Evidence<'a>> = Vec::with_capacity(4 * MOST_PLACES);
        let cut = |longest: &mut Vec<Evidence<'a>>| {
            longest.sort_rows_by(Evidence::compare);
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

/// Returns the parts of a cover as places where no device was busy.
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
        fn only_the_longest_places_of_any_number_are_stored(
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
