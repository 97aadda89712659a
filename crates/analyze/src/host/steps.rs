//! A driving thread's wall time by step.

use tprof_trace::model::{Sample, ThreadState};

use crate::base::apportion::apportion;
use crate::base::intervals::Interval;
use crate::rank::Step;
use crate::rank::samples::{CpuTrace, Part};

/// Parts that a step's time is divided into: the time on a core is not, since a step has few
/// samples.
pub(super) const OF_STEPS: [Part; 10] = [
    Part::Data,
    Part::Gil,
    Part::Lock,
    Part::FileIo,
    Part::Socket,
    Part::Collective,
    Part::Device,
    Part::NoCore,
    Part::Other,
    Part::Unknown,
];

/// A step's wall time.
#[derive(Clone, Debug)]
pub struct StepTime {
    pub number: u64,
    pub wall_ns: u64,
    /// The rest of the wall time.
    pub running_ns: u64,
    /// Time of [`OF_STEPS`].
    pub parts_ns: [u64; OF_STEPS.len()],
}

impl StepTime {
    /// Of all steps, which are in order and do not overlap.
    pub fn all(steps: &[Step], rows: &[Sample], trace: &CpuTrace) -> Vec<StepTime> {
        let empty = |step: &Step| StepTime {
            number: step.number,
            wall_ns: step.interval.length(),
            running_ns: 0,
            parts_ns: [0; OF_STEPS.len()],
        };
        let mut all: Vec<StepTime> = steps.iter().map(empty).collect();
        for row in rows.iter().filter(|row| row.state != ThreadState::Running) {
            let part = trace.part(row.process, row.stack, row.state).unwrap_or(Part::Unknown);
            let at = OF_STEPS.iter().position(|of| *of == part);
            let at = at.unwrap_or(OF_STEPS.len() - 2);
            let lasted = Interval::new(row.time_ns, row.time_ns.saturating_add(row.weight_ns));
            let from = steps.partition_point(|step| step.interval.end <= lasted.start);
            for (step, time) in steps.iter().zip(&mut all).skip(from) {
                if step.interval.start >= lasted.end {
                    break;
                }
                time.parts_ns[at] += step.interval.overlap(lasted).length();
            }
        }
        all.iter_mut().for_each(StepTime::close);
        all
    }

    /// What is left was on a core. Short waits that were added up may reach over an edge.
    fn close(&mut self) {
        let off_ns: u64 = self.parts_ns.iter().sum();
        if off_ns > self.wall_ns {
            let cut = apportion(self.wall_ns, self.parts_ns.into_iter());
            let cut: Vec<u64> = cut.collect();
            self.parts_ns.copy_from_slice(&cut);
        }
        self.running_ns = self.wall_ns - self.parts_ns.iter().sum::<u64>();
    }
}
