//! Divides a step's time on its devices by class, and counts its launches.
//!
//! If work of several classes runs at the same time, the time counts for compute first, then for
//! communication, then for copies. So communication that runs beside compute costs no extra time.

use rustc_hash::FxHashMap;
use tprof_rank::base::intervals::Cover;
use tprof_rank::{Class, RankTrace, Step};

/// The duration of a step, and the activity of its process's devices in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepDeviceTime {
    /// Duration of the step, ns: on its device, or on the host if no device worked.
    pub duration_ns: u64,
    /// Compute, communication without compute, and copies without either, ns; `None` if no device
    /// work was recorded.
    pub device_ns: Option<[u64; 3]>,
    /// Number of kernels, copies and memsets that the step launched.
    pub launches: Option<u64>,
}

impl StepDeviceTime {
    /// Returns the time in which nothing ran on a device, ns.
    pub fn idle_ns(&self) -> Option<u64> {
        Some(self.duration_ns.saturating_sub(self.device_ns?.iter().sum()))
    }

    /// Returns the share of the step in which something ran on a device.
    pub fn busy_share(&self) -> Option<f64> {
        let busy: u64 = self.device_ns?.iter().sum();
        (self.duration_ns > 0).then(|| busy as f64 / self.duration_ns as f64)
    }
}

/// Divides the time of each step. If `stepped` is false, the trace has no steps, and the only
/// element of `steps` stands for the whole trace with the work of all processes.
pub fn of_steps(rank: &RankTrace<'_>, steps: &[Step], stepped: bool) -> Vec<StepDeviceTime> {
    // The covers of a process are computed only once, since all of its steps need them.
    let mut covers: FxHashMap<u32, [Cover; 3]> = FxHashMap::default();
    for step in steps {
        let process = step.process;
        let of_step = |stream| !stepped || rank.streams[stream as usize].process == process;
        covers.entry(process).or_insert_with(|| exposed(rank, of_step));
    }
    let launched = launches(rank, steps, stepped);
    let worked = !rank.work.is_empty();
    let of_step = |(step, launched): (&Step, u64)| {
        let length = |cover: &Cover| cover.length_within(step.time());
        let parts = covers.get(&step.process).map(|covers| covers.each_ref().map(length));
        StepDeviceTime {
            duration_ns: step.time().length(),
            device_ns: parts.filter(|_| worked),
            launches: worked.then_some(launched),
        }
    };
    steps.iter().zip(launched).map(of_step).collect()
}

/// Returns the time of compute, of communication without compute, and of copies without either.
fn exposed(rank: &RankTrace<'_>, of_step: impl Fn(u32) -> bool) -> [Cover; 3] {
    let cover = |class| {
        let work = rank.work.iter().filter(|work| work.class == class && of_step(work.stream));
        Cover::of(work.map(|work| work.interval()))
    };
    let (compute, communication) = (cover(Class::Compute), cover(Class::Communication));
    let copies = cover(Class::Memory).without(&compute.union(&communication));
    let communication = communication.without(&compute);
    [compute, communication, copies]
}

/// Returns for each step the number of pieces of work that it launched.
fn launches(rank: &RankTrace<'_>, steps: &[Step], stepped: bool) -> Vec<u64> {
    let mut launched = vec![0; steps.len()];
    if !stepped {
        launched.iter_mut().for_each(|count| *count = rank.work.len() as u64);
        return launched;
    }
    for step in rank.steps_of_work(steps).into_iter().flatten() {
        launched[step as usize] += 1;
    }
    launched
}
