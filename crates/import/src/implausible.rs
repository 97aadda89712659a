//! What a first pass over a file found that cannot be, for a second one to leave out.

use crate::builder::Builder;
use crate::era::{Era, Moment, Outside};
use crate::serial::Work;
use crate::tally::Lost;
use rustc_hash::FxHashSet;

/// What cannot be.
#[derive(Debug, Default)]
pub(crate) struct Implausible {
    /// The times of the run, if some are none of it.
    era: Option<Era>,
    /// Work that overlaps several others on its stream.
    wrong: FxHashSet<Work>,
}

impl Builder {
    /// Whether a time may be one of the run; if not, it is counted.
    pub fn is_of_run(&mut self, moment: Moment) -> bool {
        let Some(era) = &self.implausible.era else {
            self.times.add(moment);
            return true;
        };
        let lost = match era.outside(moment) {
            None => return true,
            Some(Outside::Unset) => Lost::UnsetTime,
            Some(Outside::Far) => Lost::FarTime,
        };
        self.output.tally.lose(lost);
        false
    }

    /// Whether work may have run when it is said to; if not, it is counted.
    pub fn may_have_run(&mut self, work: Work) -> bool {
        if self.implausible.wrong.contains(&work) {
            self.output.tally.lose(Lost::Overlapping);
            return false;
        }
        self.streams.add(work);
        true
    }

    /// What cannot be of what was read so far; none if a reader has to leave nothing out.
    pub fn implausible(&mut self) -> Option<Implausible> {
        let era = std::mem::take(&mut self.times).era();
        let overlaps = std::mem::take(&mut self.streams).overlaps();
        self.shared_streams = overlaps.shared;
        let found = Implausible { era, wrong: overlaps.wrong };
        (found.era.is_some() || !found.wrong.is_empty()).then_some(found)
    }
}
