//! The times of training steps on devices.
//!
//! The host may be far ahead of the device: it may queue the work of a step in two milliseconds
//! while the device needs thirty for it, and it waits only when a thousand launches are queued. So
//! a step's time is its time on the device, which lasts from its first work to the first work of
//! the next step. The device may run out of work before the host begins the next step. Then the
//! next step begins on the device when it begins on the host, so the idle time from there on
//! belongs to it:
//!
//! - a step begins on the device when it has begun on the host and the stream has finished all
//!   earlier work, but no later than its first work;
//! - a step ends on the device when its work is done and the host has ended it, but no later than
//!   the next step begins.
//!
//! Steps that follow each other on the host also follow each other on the device. Time between two
//! steps (validation, a checkpoint) belongs to neither. The first works of all steps are taken from
//! one stream, which runs its work in order: a copy for the next batch on a separate stream may run
//! long before the work that needs it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tprof_facts::Class;
use tprof_trace::model::ProcessIndex;

use super::rows::{StreamKey, Work};
use super::step::Step;
use crate::base::intervals::Interval;

/// The stream that defines the beginnings of steps must have work in many steps: in at least this
/// share of the steps that the stream with the most steps has.
const MOST_STEPS: f64 = 0.9;

/// The times of the steps of one process on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSteps {
    /// The process that marked the steps.
    pub process: ProcessIndex,
    /// Device, as the process numbers it.
    pub device: u32,
    /// The index of each step with work on the device, and the step's time there; in order, without
    /// overlap.
    pub steps: Vec<(u32, Interval)>,
    /// Sum of the durations of the steps' work on the device, ns.
    pub work_ns: u64,
}

/// The first work of a step on a stream.
#[derive(Clone, Copy)]
struct FirstWork {
    step: u32,
    start_ns: u64,
    /// The end of all work that began before this work on the stream, ns; 0 if there was none.
    free_ns: u64,
}

/// The first works and the total work of one stream.
#[derive(Clone, Default)]
struct StreamSteps {
    firsts: Vec<FirstWork>,
    compute_ns: u64,
    work_ns: u64,
    /// The latest end of the work so far.
    end_ns: u64,
}

impl StreamSteps {
    fn add(&mut self, row: &Work, step: Option<u32>) {
        if let Some(step) = step {
            // The work of a stream is in the order of the steps. Work of an earlier step, from a
            // thread that lags behind, is not a first work.
            if self.firsts.last().is_none_or(|last| last.step < step) {
                self.firsts.push(FirstWork { step, start_ns: row.start_ns, free_ns: self.end_ns });
            }
            self.work_ns += row.duration_ns;
            self.compute_ns += if row.class == Class::Compute { row.duration_ns } else { 0 };
        }
        self.end_ns = self.end_ns.max(row.end_ns());
    }
}

/// The end of the last work of each step on a device, in order. Steps without work on the device
/// are absent.
#[derive(Clone, Debug, Default)]
struct StepEnds(Vec<(u32, u64)>);

impl StepEnds {
    fn add(&mut self, step: u32, end_ns: u64) {
        // Work mostly arrives in the order of its steps. Only a thread that lags behind adds work
        // of an earlier step.
        let at = match self.0.last() {
            Some(last) if last.0 >= step => self.0.binary_search_by_key(&step, |one| one.0),
            _ => Err(self.0.len()),
        };
        match at {
            Ok(at) => self.0[at].1 = self.0[at].1.max(end_ns),
            Err(at) => self.0.insert(at, (step, end_ns)),
        }
    }

    fn of(&self, step: u32) -> u64 {
        let at = self.0.binary_search_by_key(&step, |one| one.0);
        at.map_or(0, |at| self.0[at].1)
    }
}

/// Returns the times of the steps on each device of each process, in order of devices. `of_work` is
/// the step of each piece of work.
pub(super) fn of_devices(
    steps: &[Step],
    work: &[Work],
    of_work: &[Option<u32>],
    streams: &[StreamKey],
) -> Vec<DeviceSteps> {
    let key = |stream: &StreamKey| (stream.device, stream.process);
    let mut devices: Vec<(u32, ProcessIndex)> = streams.iter().map(key).collect();
    devices.sort_unstable();
    devices.dedup();
    let device_of = |stream| devices.binary_search(&key(stream)).unwrap_or(0);
    let device_of: Vec<usize> = streams.iter().map(device_of).collect();
    let mut on: Vec<StreamSteps> = vec![StreamSteps::default(); streams.len()];
    let mut ends: Vec<StepEnds> = vec![StepEnds::default(); devices.len()];
    for (row, step) in work.iter().zip(of_work) {
        let stream = row.stream as usize;
        on[stream].add(row, *step);
        if let Some(step) = step {
            ends[device_of[stream]].add(*step, row.end_ns());
        }
    }
    let mut streams_of: Vec<Vec<&StreamSteps>> = vec![Vec::new(); devices.len()];
    on.iter().zip(&device_of).for_each(|(stream, device)| streams_of[*device].push(stream));
    let of_device = |(at, &(device, process)): (usize, &(u32, ProcessIndex))| {
        let streams = &streams_of[at];
        let work_ns = streams.iter().map(|stream| stream.work_ns).sum();
        let firsts = leading(streams).map_or(&[][..], |stream| &stream.firsts);
        DeviceSteps { process, device, steps: intervals(steps, firsts, &ends[at]), work_ns }
    };
    let all = devices.iter().enumerate().map(of_device);
    all.filter(|of| !of.steps.is_empty()).collect()
}

/// Returns the stream whose first works begin steps: of the streams with work in nearly all steps,
/// the one with the most compute time.
fn leading<'s>(streams: &[&'s StreamSteps]) -> Option<&'s StreamSteps> {
    let most = streams.iter().map(|stream| stream.firsts.len()).max()?;
    let is_in_most =
        |stream: &&&StreamSteps| stream.firsts.len() as f64 >= MOST_STEPS * most as f64;
    let of_most = streams.iter().filter(is_in_most);
    of_most.copied().rev().max_by_key(|stream| (stream.compute_ns, stream.work_ns))
}

/// Returns the time of each step on the device.
fn intervals(steps: &[Step], firsts: &[FirstWork], ends: &StepEnds) -> Vec<(u32, Interval)> {
    let start = |first: &FirstWork| {
        let host = steps[first.step as usize].interval;
        first.start_ns.min(host.start.max(first.free_ns))
    };
    let mut found: Vec<(u32, Interval)> = Vec::with_capacity(firsts.len());
    let mut next_ns = u64::MAX;
    for first in firsts.iter().rev() {
        let (start, host) = (start(first), steps[first.step as usize].interval);
        let end = host.end.max(ends.of(first.step)).min(next_ns);
        found.push((first.step, Interval::new(start, end)));
        next_ns = start;
    }
    found.reverse();
    found
}

/// Sets the device time of each step to that on the device which most steps of its process used.
pub(super) fn on_leading_devices(steps: &mut [Step], devices: &[DeviceSteps]) {
    let mut leading: BTreeMap<ProcessIndex, &DeviceSteps> = BTreeMap::new();
    let rank = |of: &DeviceSteps| (of.steps.len(), of.work_ns, Reverse(of.device));
    for of in devices {
        let known = leading.entry(of.process).or_insert(of);
        if rank(of) > rank(known) {
            *known = of;
        }
    }
    for (step, interval) in leading.values().flat_map(|of| &of.steps) {
        steps[*step as usize].on_device = Some(*interval);
    }
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{Kernel, Span, SpanKind};

    use crate::base::intervals::{Cover, Interval};
    use crate::rank::{Needs, RankTrace, WINDOW_NEEDS};

    /// The start and the end, ns.
    type Times = (u64, u64);

    /// Builds a trace: steps on the host, and kernels with their launches.
    struct TraceBuilder {
        fixture: Fixture,
        launches: u64,
    }

    impl TraceBuilder {
        fn of(steps: &[(u64, u64)]) -> TraceBuilder {
            let mut fixture = Fixture::new();
            for ((start_ns, end_ns), number) in steps.iter().zip(0..) {
                let (start_ns, duration_ns) = (*start_ns, end_ns - start_ns);
                let kind = SpanKind::Annotation;
                let row = Span { start_ns, duration_ns, kind, ..Span::default() };
                fixture.span(row, &format!("ProfilerStep#{number}"));
            }
            TraceBuilder { fixture, launches: 0 }
        }

        /// Adds a kernel that runs in an interval on a stream of a device, and its launch at a
        /// time.
        fn ran(
            mut self,
            (device, stream): (u32, u64),
            at: u64,
            (start_ns, end_ns): (u64, u64),
        ) -> TraceBuilder {
            self.launches += 1;
            self.fixture.call(0, at, 1, "cudaLaunchKernel", self.launches);
            let (duration_ns, correlation) = (end_ns - start_ns, Some(self.launches));
            let row =
                Kernel { start_ns, duration_ns, device, stream, correlation, ..Kernel::default() };
            self.fixture.kernel(row, "k");
            self
        }

        /// Returns the device time of each step, and the judged time of each device.
        fn read(self) -> (Vec<Option<Times>>, Vec<Vec<Times>>) {
            let file = self.fixture.finish();
            let rank = RankTrace::load(&file, WINDOW_NEEDS);
            let pair = |interval: Interval| (interval.start, interval.end);
            let steps = rank.steps().into_iter().map(|step| step.on_device.map(pair)).collect();
            let parts = |cover: &Cover| cover.parts().iter().copied().map(pair).collect();
            let windows =
                rank.device_windows().iter().map(|window| parts(&window.judged)).collect();
            (steps, windows)
        }
    }

    const ONE: (u32, u64) = (0, 7);

    #[test]
    fn if_the_host_is_ahead_a_step_lasts_from_first_work_to_first_work() {
        let made = TraceBuilder::of(&[(0, 10), (10, 20), (20, 30)])
            .ran(ONE, 1, (5, 60))
            .ran(ONE, 2, (60, 100))
            .ran(ONE, 11, (100, 190))
            .ran(ONE, 12, (195, 200))
            .ran(ONE, 21, (204, 300));
        let (steps, windows) = made.read();
        // In the gap before the first work of the third step, the device waits for that step.
        assert_eq!(steps, [Some((0, 100)), Some((100, 200)), Some((200, 300))]);
        assert_eq!(windows, [[(0, 300)]]);
    }

    #[test]
    fn if_the_device_waits_for_the_host_its_steps_are_the_hosts() {
        let made = TraceBuilder::of(&[(0, 100), (100, 200)]).ran(ONE, 50, (51, 60)).ran(
            ONE,
            180,
            (181, 190),
        );
        let (steps, windows) = made.read();
        assert_eq!(steps, [Some((0, 100)), Some((100, 200))]);
        assert_eq!(windows, [[(0, 200)]]);
    }

    #[test]
    fn a_step_begins_on_the_device_once_earlier_work_is_done() {
        // The device does a part of the warm-up and of the validation during the next step on the
        // host.
        let made = TraceBuilder::of(&[(100, 200), (400, 500)])
            .ran(ONE, 10, (20, 150))
            .ran(ONE, 110, (150, 210))
            .ran(ONE, 300, (301, 450))
            .ran(ONE, 410, (450, 470));
        let (steps, windows) = made.read();
        assert_eq!(steps, [Some((150, 210)), Some((450, 500))]);
        assert_eq!(windows, [[(150, 210), (450, 500)]]);
    }

    #[test]
    fn a_copy_on_a_separate_stream_begins_no_step() {
        let copies = (0, 8);
        let made = TraceBuilder::of(&[(0, 10), (10, 20)])
            .ran(copies, 1, (2, 3))
            .ran(ONE, 3, (5, 100))
            .ran(copies, 11, (12, 13))
            .ran(ONE, 13, (100, 180))
            // The step ends with the last of its work, on any stream.
            .ran(copies, 14, (170, 190));
        assert_eq!(made.read().0, [Some((0, 100)), Some((100, 190))]);
    }

    #[test]
    fn the_device_that_most_steps_use_sets_the_times_of_steps() {
        let second = (1, 7);
        let made = TraceBuilder::of(&[(0, 10), (10, 20), (20, 30)])
            .ran(ONE, 1, (2, 50))
            .ran(second, 2, (50, 120))
            .ran(ONE, 11, (60, 90))
            .ran(ONE, 25, (90, 130));
        let (steps, windows) = made.read();
        assert_eq!(steps, [Some((0, 50)), Some((50, 90)), Some((90, 130))]);
        assert_eq!(windows, [[(0, 130)], [(0, 120)]]);
        // A device without work in the steps is judged over the steps of the other device.
        let made = TraceBuilder::of(&[(0, 10)]).ran(ONE, 1, (2, 50)).ran(second, 15, (60, 70));
        assert_eq!(made.read().1, [[(0, 50)], [(0, 50)]]);
    }

    #[test]
    fn a_step_without_work_has_only_its_time_on_the_host() {
        let made = TraceBuilder::of(&[(0, 10), (10, 20), (20, 30)]).ran(ONE, 1, (2, 15)).ran(
            ONE,
            21,
            (22, 28),
        );
        let file = made.fixture.finish();
        let rank = RankTrace::load(&file, WINDOW_NEEDS);
        let steps = rank.steps();
        assert_eq!(steps[1].on_device, None);
        assert_eq!(steps[1].time(), Interval::new(10, 20));
        assert_eq!(steps[0].time(), Interval::new(0, 15));
        let window = rank.window_of_steps(&steps);
        assert_eq!(window.parts(), [Interval::new(0, 30)]);
    }

    #[test]
    fn without_steps_or_with_hta_all_time_of_a_device_is_judged() {
        let ran = |steps: &[(u64, u64)]| {
            TraceBuilder::of(steps).ran(ONE, 1, (1000, 5000)).ran(ONE, 11, (7000, 9000))
        };
        assert_eq!(ran(&[]).read().1, [[(1000, 9000)]]);
        let file = ran(&[(5, 10)]).fixture.finish();
        let hta = RankTrace::load_as(&file, WINDOW_NEEDS, true, 1);
        assert_eq!(hta.device_windows()[0].steps, 0);
        // The calls are not loaded here, so it is unknown which step launched the work.
        let rank = RankTrace::load(&file, Needs::WORK | Needs::STEPS);
        assert_eq!(rank.device_windows()[0].steps, 0);
        assert_eq!(rank.steps()[0].on_device, None);
        assert!(rank.is_judged().iter().all(|is_judged| *is_judged));
    }

    #[test]
    fn time_and_work_outside_of_the_steps_are_not_judged() {
        let made = TraceBuilder::of(&[(100, 200), (300, 400)])
            .ran(ONE, 10, (20, 30))
            .ran(ONE, 110, (120, 180))
            .ran(ONE, 210, (220, 230))
            .ran(ONE, 310, (320, 390))
            .ran(ONE, 410, (420, 450));
        let file = made.fixture.finish();
        let rank = RankTrace::load(&file, WINDOW_NEEDS);
        let [window] = &rank.device_windows()[..] else { panic!("not one device") };
        assert_eq!((window.steps, window.length(), window.all), (2, 200, Interval::new(20, 450)));
        assert_eq!(
            (window.before(), window.after()),
            (Interval::new(20, 100), Interval::new(400, 450))
        );
        assert_eq!(window.between().parts(), [Interval::new(200, 300)]);
        assert_eq!(rank.is_judged(), [false, true, false, true, false]);
        let [(busy, _)] = &rank.judged_devices()[..] else { panic!("not one device") };
        assert_eq!((busy.any.length(), rank.devices()[0].any.length()), (130, 180));
    }
}
