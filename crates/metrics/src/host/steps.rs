//! Divides a driving thread's wall time by step.

use tprof_rank::Step;
use tprof_rank::base::apportion::apportion;
use tprof_rank::samples::{CpuTrace, Part};
use tprof_trace::model::{Sample, ThreadState};

use super::awaited_threads::AwaitedThreads;
use super::cut::{extent, wait_ns_in};

/// Parts into which a step's time is divided. Work on a core is not divided further, since a step
/// has few samples.
pub(super) const OF_STEPS: [Part; 11] = [
    Part::Data,
    Part::Gil,
    Part::Lock,
    Part::FileIo,
    Part::Socket,
    Part::Collective,
    Part::Device,
    Part::NoCore,
    Part::Tprof,
    Part::Other,
    Part::Unknown,
];

/// A step's wall time.
#[derive(Clone, Debug)]
pub struct StepTime {
    /// Number of the step.
    pub number: u64,
    /// Wall time of the step, ns.
    pub wall_ns: u64,
    /// The rest of the wall time, in which the thread worked on a core, ns.
    pub running_ns: u64,
    /// Time of each part in `OF_STEPS`, ns.
    pub parts_ns: [u64; OF_STEPS.len()],
    /// Time of each part in rows that sum several waits, whose exact times are unknown, ns.
    added_ns: [u64; OF_STEPS.len()],
    /// Time that samples on a core stand for, ns. [`Self::polled_ns`] is the part of this time that
    /// belongs to one of [`OF_STEPS`], because the thread polled.
    sampled_ns: u64,
    polled_ns: [u64; OF_STEPS.len()],
}

impl StepTime {
    /// Returns the time of one of `OF_STEPS`, ns; 0 for any other part.
    pub fn ns(&self, part: Part) -> u64 {
        OF_STEPS.iter().position(|of| *of == part).map_or(0, |at| self.parts_ns[at])
    }

    /// Returns [`StepTime::running_ns`]. `None` if waits and polling take all of the time: the step
    /// did run for a short time, but no sample saw it.
    pub fn ran_ns(&self) -> Option<u64> {
        (self.running_ns > 0).then_some(self.running_ns)
    }

    /// Divides the time of all steps, which are in order and do not overlap.
    pub fn all(
        steps: &[Step],
        rows: &[Sample],
        trace: &CpuTrace,
        awaited_threads: &AwaitedThreads,
    ) -> Vec<StepTime> {
        let part_of = |row: &Sample| {
            let state = trace.state(row.process, row.stack, row.state);
            let stated = awaited_threads.stated(row.thread, row.stack, state);
            stated.or_else(|| trace.driver_part(row.process, row.stack, row.state))
        };
        let empty = |step: &Step| StepTime {
            number: step.number,
            wall_ns: step.interval.length(),
            running_ns: 0,
            parts_ns: [0; OF_STEPS.len()],
            added_ns: [0; OF_STEPS.len()],
            sampled_ns: 0,
            polled_ns: [0; OF_STEPS.len()],
        };
        let mut all: Vec<StepTime> = steps.iter().map(empty).collect();
        for row in rows.iter().filter(|row| row.state != ThreadState::Running) {
            let part = part_of(row).unwrap_or(Part::Unknown);
            let at = OF_STEPS.iter().position(|of| *of == part);
            let at = at.unwrap_or(OF_STEPS.len() - 2);
            let extent = extent(row);
            let from = steps.partition_point(|step| step.interval.end <= extent.start);
            for (step, time) in steps.iter().zip(&mut all).skip(from) {
                if step.interval.start >= extent.end {
                    break;
                }
                let of =
                    if row.spread_ns.is_some() { &mut time.added_ns } else { &mut time.parts_ns };
                of[at] += wait_ns_in(row, step.interval);
            }
        }
        for row in rows.iter().filter(|row| row.cpu.is_some()) {
            let at = steps.partition_point(|step| step.interval.end <= row.time_ns);
            let step = steps.get(at).filter(|step| step.interval.start <= row.time_ns);
            let Some(time) = step.and(all.get_mut(at)) else { continue };
            time.sampled_ns += row.weight_ns;
            if let Some(at) =
                part_of(row).and_then(|part| OF_STEPS.iter().position(|of| *of == part))
            {
                time.polled_ns[at] += row.weight_ns;
            }
        }
        all.iter_mut().for_each(StepTime::close);
        all
    }

    /// Assigns the remaining time to work or to polling, by the samples on a core. Waits without
    /// exact times get at most the time that exact ones leave.
    fn close(&mut self) {
        at_most(self.wall_ns, &mut self.parts_ns);
        at_most(self.wall_ns - self.parts_ns.iter().sum::<u64>(), &mut self.added_ns);
        self.parts_ns.iter_mut().zip(self.added_ns).for_each(|(part, added)| *part += added);
        let on_core_ns = self.wall_ns - self.parts_ns.iter().sum::<u64>();
        let work_ns = self.sampled_ns - self.polled_ns.iter().sum::<u64>();
        let weights = self.polled_ns.into_iter().chain([work_ns]);
        let divided: Vec<u64> = apportion(on_core_ns, weights).collect();
        match divided.split_last().filter(|_| self.sampled_ns > 0) {
            Some((work_ns, polled)) => {
                self.parts_ns.iter_mut().zip(polled).for_each(|(part, polled)| *part += polled);
                self.running_ns = *work_ns;
            }
            None => self.running_ns = on_core_ns,
        }
    }
}

/// Scales `times` down so that their sum is at most `most_ns`.
fn at_most(most_ns: u64, times: &mut [u64; OF_STEPS.len()]) {
    if times.iter().sum::<u64>() > most_ns {
        let cut: Vec<u64> = apportion(most_ns, times.iter().copied()).collect();
        times.copy_from_slice(&cut);
    }
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_rank::base::intervals::Interval;
    use tprof_trace::model::{SYNTHETIC_FRAME, Stack, Symbol};

    use super::*;

    #[test]
    fn polling_for_other_ranks_is_not_a_steps_own_work() {
        let mut made = Fixture::new();
        for (stack, name, file, module) in
            [(1, "train", "/me/train.py", "[python]"), (2, "PMPI_Allreduce", "", "libmpi.so.40")]
        {
            let [function, file, module] = [name, file, module].map(|text| made.name(text));
            let address = SYNTHETIC_FRAME | u64::from(stack);
            let symbol = Symbol { process: 0, address, depth: 0, function, file, line: 7, module };
            made.writer.symbol(&symbol);
            made.writer.stack(&Stack { process: 0, stack, end: 0, frames: vec![address] });
        }
        let running = |time_ns, stack| Sample {
            time_ns,
            weight_ns: 10,
            stack,
            state: ThreadState::Running,
            cpu: Some(0),
            ..Sample::default()
        };
        let wait = Sample {
            time_ns: 40,
            weight_ns: 60,
            stack: 2,
            state: ThreadState::Lock,
            ..Sample::default()
        };
        let rows = [running(10, 1), running(20, 2), running(30, 2), running(39, 2), wait];
        let file = made.finish();
        let trace = CpuTrace::of_rows(&file, rows.iter().copied());
        let step = Step::on_host(3, 0, Interval::new(0, 100));
        let [time] =
            StepTime::all(&[step], &rows, &trace, &AwaitedThreads::default()).try_into().unwrap();
        let at = OF_STEPS.iter().position(|part| *part == Part::Collective).unwrap();
        assert_eq!((time.running_ns, time.parts_ns[at]), (10, 90));
        assert_eq!(time.ran_ns(), Some(10));
    }

    #[test]
    fn a_step_without_samples_on_a_core_has_an_unknown_running_time() {
        let file = Fixture::new().finish();
        let wait =
            Sample { weight_ns: 100, state: ThreadState::Sleep, stack: 1, ..Sample::default() };
        let trace = CpuTrace::of_rows(&file, [wait].into_iter());
        let step = Step::on_host(3, 0, Interval::new(0, 100));
        let [time] =
            StepTime::all(&[step], &[wait], &trace, &AwaitedThreads::default()).try_into().unwrap();
        assert_eq!((time.ran_ns(), time.parts_ns.iter().sum::<u64>()), (None, 100));
    }
}
