//! Computes the devices' idle time by cause over the judged time. The bounds of several rules
//! follow from it. The waterfall treats a rank's devices as one.

use std::sync::OnceLock;

use tprof_metrics::gpu::gpu_time::beginning::RecordingStart;
use tprof_metrics::gpu::gpu_time::{BusyTimes, CAUSES, IdleCause, Threads, Waterfall, main_line};
use tprof_metrics::host::Place;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::of_devices;

use super::Scene;
use crate::finding::SourceLine;

/// The devices' time by cause, with the source lines behind each cause.
#[derive(Debug)]
pub(crate) struct TimeByCause {
    threads: Threads,
    pub waterfall: Waterfall,
    /// The places of the threads behind each cause; computed when a rule first asks.
    places: [OnceLock<Vec<(Place, u64)>>; CAUSES.len()],
    /// The result of [`Scene::compiled_outside`].
    compiled_outside: OnceLock<(Cover, Option<SourceLine>)>,
}

impl Scene<'_> {
    /// Returns the devices' time by cause. It is computed only once, even if several rules ask.
    pub fn time_by_cause(&self) -> &TimeByCause {
        self.time_by_cause.get_or_init(|| {
            let threads = Threads::of(self.rank);
            let any = of_devices(self.rank, |busy| &busy.any);
            let busy =
                BusyTimes { any: &any, compute: &self.compute, communication: &self.communication };
            let beginning = RecordingStart::of(self.rank);
            let known = (&threads, &beginning);
            let work = self.rank.all_work();
            let waterfall = Waterfall::of(self.rank, known, &self.window, &busy, &work);
            let (places, compiled_outside) = Default::default();
            TimeByCause { threads, waterfall, places, compiled_outside }
        })
    }

    /// Returns the length of the devices' idle time with one cause, ns.
    pub fn idle_ns(&self, cause: IdleCause) -> u64 {
        self.time_by_cause().waterfall.ns(cause)
    }

    /// Returns the devices' idle time with one cause.
    pub fn idle_by(&self, cause: IdleCause) -> Cover {
        self.time_by_cause().waterfall.cover(cause)
    }

    /// Returns the calls that make the devices idle for one cause, in order.
    pub fn idle_calls(&self, cause: IdleCause) -> Vec<usize> {
        let calls = self.time_by_cause().waterfall.calls(cause);
        calls.into_iter().map(|(call, _)| call).collect()
    }

    fn idle_places(&self, cause: IdleCause) -> &[(Place, u64)] {
        let TimeByCause { threads, waterfall, places, .. } = self.time_by_cause();
        places[cause as usize].get_or_init(|| waterfall.places(self.rank, threads, cause))
    }

    /// Returns the line that has most of the idle time with one cause, according to samples.
    pub fn idle_line(&self, cause: IdleCause) -> Option<SourceLine> {
        main_line(self.idle_places(cause)).map(line_of)
    }

    /// Returns the time from the start of the first process to the end of the recording.
    pub fn life(&self) -> Option<Interval> {
        let processes = self.rank.file.processes().iter();
        let first_ns = processes.map(|process| process.start_ns).min()?;
        Some(Interval::new(first_ns, self.rank.file.last_ns().max(first_ns)))
    }

    /// Returns the time outside of the judged time in which devices waited for compilers, and the
    /// line that has most of it. It is computed only once, even if several rules ask.
    pub fn compiled_outside(&self) -> &(Cover, Option<SourceLine>) {
        let found = &self.time_by_cause().compiled_outside;
        found.get_or_init(|| self.find_compiled_outside())
    }

    fn find_compiled_outside(&self) -> (Cover, Option<SourceLine>) {
        let threads = &self.time_by_cause().threads;
        if !threads.compile() {
            return (Cover::default(), None);
        }
        let outside = Cover::of(self.life()).without(&self.window);
        let [any, compute, communication] = [
            of_devices(self.rank, |busy| &busy.any),
            of_devices(self.rank, |busy| &busy.compute),
            of_devices(self.rank, |busy| &busy.communication),
        ];
        let busy = BusyTimes { any: &any, compute: &compute, communication: &communication };
        let known = (threads, &RecordingStart::of(self.rank));
        let waterfall = Waterfall::of(self.rank, known, &outside, &busy, &self.rank.all_work());
        let places = waterfall.places(self.rank, threads, IdleCause::Compile);
        let line = main_line(&places).map(line_of);
        (waterfall.cover(IdleCause::Compile), line)
    }

    /// Estimates the idle time of the devices while their host thread was at places that pass. For
    /// each cause, this is its idle time, scaled by the share of its samples at such places.
    pub fn idle_at(&self, is_there: impl Fn(&Place) -> bool) -> u64 {
        let of_cause = |cause: &IdleCause| {
            let ns = self.idle_ns(*cause);
            if ns == 0 {
                return 0;
            }
            let places = self.idle_places(*cause);
            let all = places.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
            let passing_ns: u64 = places
                .iter()
                .filter(|(place, _)| is_there(place))
                .fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
            (u128::from(ns) * u128::from(passing_ns)).checked_div(u128::from(all)).unwrap_or(0)
                as u64
        };
        let is_judged = |cause: &&IdleCause| cause.is_host_code() || **cause == IdleCause::Data;
        CAUSES.iter().filter(is_judged).map(of_cause).sum()
    }

    /// Returns the length of the part of `idle` whose cause another rule judges and can judge with
    /// the recorded data, ns.
    pub fn explained_ns(&self, idle: &Cover) -> u64 {
        let waterfall = &self.time_by_cause().waterfall;
        let is_sampled = self.host().is_some();
        let is_judged =
            |cause: IdleCause| cause.explains() && (is_sampled || !cause.is_host_code());
        let explained = waterfall.idle.iter().filter(|one| is_judged(one.cause));
        Cover::of(explained.map(|one| one.interval)).shared(idle)
    }
}

fn line_of(place: &Place) -> SourceLine {
    let Place { function, file, line, .. } = place.clone();
    SourceLine { function, file, line }
}
