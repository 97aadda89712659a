//! Remembers implausible data that a first pass over a file found, so that a second pass can leave
//! it out.

use crate::losses::{LossReason, Tally};
use crate::run_period::{EventMoment, OutsideReason, RunPeriod, Times};
use crate::stream_overlaps::{Overlaps, StreamWork, Streams};
use rustc_hash::FxHashSet;

/// Data of a file that cannot be right.
#[derive(Debug, Default)]
pub(crate) struct Implausible {
    /// The period that the run's times lie in, if some times lie outside it.
    run_period: Option<RunPeriod>,
    /// Kernels and copies that overlap several others on their stream.
    wrong: FxHashSet<StreamWork>,
}

/// State of a pass over a file. It contains the data that this pass leaves out, and collects the
/// data that the next pass must leave out.
#[derive(Debug, Default)]
pub(crate) struct FilePass {
    known: Implausible,
    times: Times,
    streams: Streams,
    /// Number of pieces of overlapping work that are kept.
    pub overlaps: Overlaps,
}

impl FilePass {
    /// Creates a pass that leaves out the data that an earlier pass found implausible.
    pub fn after(known: Implausible) -> FilePass {
        FilePass { known, ..FilePass::default() }
    }

    /// Whether a time may belong to the run. If not, it is counted as a loss.
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
        tally.count_loss(lost);
        false
    }

    /// Whether work may have run at its time. If not, it is counted as a loss.
    #[inline]
    pub fn is_plausible_work(&mut self, work: StreamWork, tally: &mut Tally) -> bool {
        if self.known.wrong.contains(&work) {
            tally.count_loss(LossReason::Overlapping);
            return false;
        }
        self.streams.add(work);
        true
    }

    /// Returns the implausible part of everything that was read so far; `None` if all of it is
    /// plausible.
    pub fn found(&mut self) -> Option<Implausible> {
        let run_period = std::mem::take(&mut self.times).run_period();
        let (wrong, overlaps) = std::mem::take(&mut self.streams).overlaps();
        self.overlaps = overlaps;
        let found = Implausible { run_period, wrong };
        (found.run_period.is_some() || !found.wrong.is_empty()).then_some(found)
    }
}
