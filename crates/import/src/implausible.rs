//! What a first pass over a file found that cannot be, for a second one to leave out.

use crate::losses::{LossReason, Tally};
use crate::run_period::{EventMoment, OutsideReason, RunPeriod, Times};
use crate::stream_overlaps::{Overlaps, StreamWork, Streams};
use rustc_hash::FxHashSet;

/// What cannot be.
#[derive(Debug, Default)]
pub(crate) struct Implausible {
    /// The times of the run, if some are none of it.
    run_period: Option<RunPeriod>,
    /// Work that overlaps several others on its stream.
    wrong: FxHashSet<StreamWork>,
}

/// The passes over a file: what this one leaves out, and what it finds for another one.
#[derive(Debug, Default)]
pub(crate) struct FilePass {
    known: Implausible,
    times: Times,
    streams: Streams,
    /// What overlaps and is not left out.
    pub overlaps: Overlaps,
}

impl FilePass {
    /// One that leaves out what an earlier one found.
    pub fn after(known: Implausible) -> FilePass {
        FilePass { known, ..FilePass::default() }
    }

    /// Whether a time may be one of the run; if not, it is counted.
    #[inline]
    pub fn is_plausible_time(&mut self, moment: EventMoment, tally: &mut Tally) -> bool {
        let Some(run_period) = &self.known.run_period else {
            self.times.add(moment);
            return true;
        };
        let lost = match run_period.outside(moment) {
            None => return true,
            Some(OutsideReason::Unset) => LossReason::UnsetTime,
            Some(OutsideReason::Far) => LossReason::FarTime,
        };
        tally.lose(lost);
        false
    }

    /// Whether work may have run when it is said to; if not, it is counted.
    #[inline]
    pub fn is_plausible_work(&mut self, work: StreamWork, tally: &mut Tally) -> bool {
        if self.known.wrong.contains(&work) {
            tally.lose(LossReason::Overlapping);
            return false;
        }
        self.streams.add(work);
        true
    }

    /// What cannot be of all that was read; none if nothing has to be left out.
    pub fn found(&mut self) -> Option<Implausible> {
        let run_period = std::mem::take(&mut self.times).run_period();
        let (wrong, overlaps) = std::mem::take(&mut self.streams).overlaps();
        self.overlaps = overlaps;
        let found = Implausible { run_period, wrong };
        (found.run_period.is_some() || !found.wrong.is_empty()).then_some(found)
    }
}
