//! What a first pass over a file found that cannot be, for a second one to leave out.

use crate::era::{Era, Moment, Outside, Times};
use crate::serial::{Overlaps, Streams, Work};
use crate::tally::{Lost, Tally};
use rustc_hash::FxHashSet;

/// What cannot be.
#[derive(Debug, Default)]
pub(crate) struct Implausible {
    /// The times of the run, if some are none of it.
    era: Option<Era>,
    /// Work that overlaps several others on its stream.
    wrong: FxHashSet<Work>,
}

/// The passes over a file: what this one leaves out, and what it finds for another one.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    known: Implausible,
    times: Times,
    streams: Streams,
    /// What overlaps and is not left out.
    pub overlaps: Overlaps,
}

impl Passes {
    /// One that leaves out what an earlier one found.
    pub fn after(known: Implausible) -> Passes {
        Passes { known, ..Passes::default() }
    }

    /// Whether a time may be one of the run; if not, it is counted.
    #[inline]
    pub fn is_of_run(&mut self, moment: Moment, tally: &mut Tally) -> bool {
        let Some(era) = &self.known.era else {
            self.times.add(moment);
            return true;
        };
        let lost = match era.outside(moment) {
            None => return true,
            Some(Outside::Unset) => Lost::UnsetTime,
            Some(Outside::Far) => Lost::FarTime,
        };
        tally.lose(lost);
        false
    }

    /// Whether work may have run when it is said to; if not, it is counted.
    #[inline]
    pub fn may_have_run(&mut self, work: Work, tally: &mut Tally) -> bool {
        if self.known.wrong.contains(&work) {
            tally.lose(Lost::Overlapping);
            return false;
        }
        self.streams.add(work);
        true
    }

    /// What cannot be of all that was read; none if nothing has to be left out.
    pub fn found(&mut self) -> Option<Implausible> {
        let era = std::mem::take(&mut self.times).era();
        let (wrong, overlaps) = std::mem::take(&mut self.streams).overlaps();
        self.overlaps = overlaps;
        let found = Implausible { era, wrong };
        (found.era.is_some() || !found.wrong.is_empty()).then_some(found)
    }
}
