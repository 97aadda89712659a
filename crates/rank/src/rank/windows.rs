//! Finds the part of each device's time that reports judge, which is the time of its steps.
//!
//! Start-up is slow for other reasons than steps are, and in a short run it takes longer than all
//! steps together. So if there are steps, reports on devices judge only the steps, and report the
//! rest separately.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::busy::Busy;
use super::device_steps::DeviceSteps;
use super::needs::Needs;
use super::rows::{HostSpan, Work};
use super::step::Step;
use super::trace::RankTrace;
use crate::base::intervals::{Cover, Interval};

/// The tables that reports on devices need besides the work, so that [`RankTrace::device_windows`]
/// finds the steps.
pub const WINDOW_NEEDS: Needs = Needs::WORK.and(Needs::CALLS).and(Needs::STEPS);

/// The judged time of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceWindow {
    /// The device, as in [`Busy::device`].
    pub device: Option<u32>,
    /// Number of steps with work on the device; 0 if the rank has no steps, or if only other
    /// devices worked in them.
    pub steps: usize,
    /// The time of the device's steps; without steps, this is [`Self::all`].
    pub judged: Cover,
    /// The time from the start of the device's first work to the end of its last work.
    pub all: Interval,
}

impl DeviceWindow {
    /// Whether all of the device's time is judged.
    pub fn is_whole(&self) -> bool {
        self.judged.parts() == [self.all]
    }

    /// Length of the judged time, ns.
    pub fn length(&self) -> u64 {
        self.judged.length()
    }

    /// The interval from the start to the end of the judged time.
    pub fn span(&self) -> Interval {
        self.judged.span().unwrap_or(self.all)
    }

    /// The time from the device's first work to its first step; empty if there are no steps, or no
    /// work before them.
    pub fn before(&self) -> Interval {
        let first = self.span().start;
        Interval::new(self.all.start.min(first), first)
    }

    /// The time from the end of the device's last step to the end of its last work.
    pub fn after(&self) -> Interval {
        let last = self.span().end;
        Interval::new(last, self.all.end.max(last))
    }

    /// The time between the device's first and last step that is in no step.
    pub fn between(&self) -> Cover {
        Cover::of([self.span()]).without(&self.judged)
    }
}

impl RankTrace<'_> {
    /// The judged time of each device, in the order of [`Self::devices`]: the union of its steps
    /// over all processes. If the rank has no steps, if steps were not read ([`WINDOW_NEEDS`]), or
    /// if the rank is read as Holistic Trace Analysis does, all of a device's time is judged. A
    /// device without work in any step is judged over the steps of the other devices.
    pub fn device_windows(&self) -> Vec<DeviceWindow> {
        let devices = || self.devices().iter().filter_map(|busy| Some((busy, busy.window()?)));
        let whole = |(busy, all): (&Busy, Interval)| {
            let device = busy.device;
            DeviceWindow { device, steps: 0, judged: Cover::of([all]), all }
        };
        if self.hta || !self.needs.has(Needs::STEPS) {
            return devices().map(whole).collect();
        }
        let all_steps = Cover::of(self.device_steps().iter().flat_map(times));
        if all_steps.is_empty() {
            return devices().map(whole).collect();
        }
        let mut steps_of: FxHashMap<Option<u32>, Vec<&DeviceSteps>> = FxHashMap::default();
        for of in self.device_steps() {
            steps_of.entry(Some(of.device)).or_default().push(of);
        }
        let of_device = |(busy, all): (&Busy, Interval)| {
            let of = || steps_of.get(&busy.device).into_iter().flatten().copied();
            let steps = of().map(|of| of.steps.len()).sum();
            let judged =
                if steps > 0 { Cover::of(of().flat_map(times)) } else { all_steps.clone() };
            DeviceWindow { device: busy.device, steps, judged, all }
        };
        devices().map(of_device).collect()
    }

    /// The busy times of each device within its window, and the window: [`Self::devices`] joined
    /// with [`Self::device_windows`].
    pub fn judged_devices(&self) -> Vec<(Busy, DeviceWindow)> {
        let devices = self.devices().iter().filter(|busy| busy.window().is_some());
        let within = |(busy, window): (&Busy, DeviceWindow)| match window.is_whole() {
            true => (busy.clone(), window),
            false => (busy.within(&window.judged), window),
        };
        devices.zip(self.device_windows()).map(within).collect()
    }

    /// Returns for each piece of work whether it began in the judged time of its device.
    pub fn is_judged(&self) -> Vec<bool> {
        let windows = self.device_windows();
        if windows.iter().all(|window| window.is_whole() && window.steps == 0) {
            return vec![true; self.work.len()];
        }
        self.work.iter().map(|row| judges(&windows, self.device_of(row), row.start_ns)).collect()
    }

    /// The rows of the rank that belong to the judged time.
    pub fn judged(&self) -> JudgedRows {
        let has_steps = self.device_windows().iter().any(|window| window.steps > 0);
        let on_host = match has_steps {
            true => Cover::of(self.steps().iter().map(|step| step.interval)),
            false => Cover::of([Interval::new(0, u64::MAX)]),
        };
        JudgedRows { has_steps, work: self.is_judged(), on_host }
    }

    /// Returns for each call whether it is judged.
    pub fn is_call_judged(&self) -> Vec<bool> {
        let judged = self.judged();
        let of_call = |(at, call): (usize, &HostSpan)| {
            judged.holds(self.launches.work_of(at).first().copied(), call.start_ns)
        };
        self.calls.iter().enumerate().map(of_call).collect()
    }

    /// The judged time of the rank over the steps of one process: the times of the steps on its
    /// devices, and on the host for steps in which no device worked.
    pub(crate) fn window_of_steps(&self, steps: &[Step]) -> Cover {
        let process = steps.first().map(|step| step.process);
        let of_process = self.device_steps().iter().filter(|of| Some(of.process) == process);
        let on_host = steps.iter().filter(|step| step.on_device.is_none());
        let on_host = Cover::of(on_host.map(|step| step.interval));
        Cover::of(of_process.flat_map(times)).union(&on_host)
    }
}

/// Tells which rows of a rank are judged. All rows are, if no device has steps.
#[derive(Clone, Debug)]
pub struct JudgedRows {
    /// Whether any device has steps.
    pub has_steps: bool,
    /// For each piece of work, whether it is judged.
    pub work: Vec<bool>,
    /// The time of the steps on the host.
    pub on_host: Cover,
}

impl JudgedRows {
    /// Whether an event that began at `start_ns` on the host is judged. An event that launched work
    /// is judged if that work is.
    pub fn holds(&self, work: Option<u32>, start_ns: u64) -> bool {
        match work {
            Some(work) => self.work[work as usize],
            None => self.on_host.touches(Interval::new(start_ns, start_ns)),
        }
    }

    /// The time of the rank's steps, on the host or on a device.
    pub fn time(&self, rank: &RankTrace<'_>) -> Cover {
        let windows = rank.device_windows();
        Cover::any(windows.iter().map(|window| &window.judged).chain([&self.on_host]))
    }
}

/// The window of a device among those of [`RankTrace::device_windows`].
pub fn window_of(windows: &[DeviceWindow], device: Option<u32>) -> Option<&DeviceWindow> {
    let at = windows.binary_search_by_key(&device, |window| window.device).ok()?;
    windows.get(at)
}

/// Whether the windows include work that a device began at this time.
pub fn judges(windows: &[DeviceWindow], device: Option<u32>, time_ns: u64) -> bool {
    window_of(windows, device).is_some_and(|window| {
        let is_all = window.is_whole() && window.steps == 0;
        is_all || window.judged.touches(Interval::new(time_ns, time_ns))
    })
}

fn times(of: &DeviceSteps) -> impl Iterator<Item = Interval> + '_ {
    of.steps.iter().map(|(_, interval)| *interval)
}

/// The time in which any of a rank's devices was busy; `of` selects the kind of work.
pub fn of_devices<'r>(rank: &'r RankTrace<'_>, of: fn(&Busy) -> &Cover) -> Cow<'r, Cover> {
    match rank.devices() {
        [one] => Cow::Borrowed(of(one)),
        many => Cow::Owned(Cover::any(many.iter().map(of))),
    }
}

/// The time of a rank that findings judge: its steps; without steps, the time from its first work
/// on a device to its last; without devices, its life.
pub fn judged_window(rank: &RankTrace<'_>, steps: &[Step]) -> Cover {
    if steps.is_empty() {
        let end = rank.work.iter().map(Work::end_ns).max();
        let work = rank.work.first().zip(end);
        let first = rank.file.processes().iter().map(|process| process.start_ns).min();
        let life = first.map(|first| Interval::new(first, rank.file.last_ns()));
        return Cover::of(work.map(|(first, end)| Interval::new(first.start_ns, end)).or(life));
    }
    rank.window_of_steps(steps)
}
