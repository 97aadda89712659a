//! Computes the cost of recording for the whole job.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use tprof_trace::run::{self, OVERHEAD_VERSION, OverheadPart, RunInfo};

use crate::base::reading::{Reading, entry};
use crate::run::step_cost::StepCost;

/// Cost of the recording, over all collectors of a run. In JSON, a key with `…_low` or `…_high` is
/// a bound of the figure with the same name. Both equal the figure if it was measured.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// CPU time of the job that recording took, ns; this and its parts are estimates.
    pub host_ns: Bounded<u64>,
    /// Time in which threads waited for the collector, ns; measured.
    pub wait_ns: Bounded<u64>,
    /// `host_ns` as a share of the job's CPU time; an estimate.
    pub fraction: Bounded<f64>,
    /// The share of the run's wall time by which recording slowed the job; an estimate.
    pub fraction_of_wall: Bounded<f64>,
    /// Wall time of the longest collector; measured.
    pub job_wall_ns: Reading<u64>,
    /// CPU time of the job; measured.
    pub job_cpu_ns: Reading<u64>,
    /// CPU time of the collectors; measured.
    pub collector_cpu_ns: Bounded<u64>,
    /// The parts of `host_ns`.
    pub parts: Vec<OverheadPart>,
    /// Cost of recording per step, of the rank that recording slowed most.
    pub step: Reading<StepCost>,
    /// Always true: `host_ns` and both fractions are estimates.
    pub estimate: bool,
}

/// A figure with a lower and an upper bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounded<T> {
    /// The figure itself.
    pub value: Reading<T>,
    /// The lower bound.
    pub low: Reading<T>,
    /// The upper bound.
    pub high: Reading<T>,
}

impl<T: Copy> Bounded<T> {
    fn missing(why: &str) -> Bounded<T> {
        let missing = || Reading::missing(why);
        Bounded { value: missing(), low: missing(), high: missing() }
    }

    /// Returns a measured figure, which has no error.
    fn measured(value: Reading<T>) -> Bounded<T> {
        Bounded { low: value.clone(), high: value.clone(), value }
    }

    /// Returns both bounds; `None` if one is unknown.
    pub fn bounds(&self) -> Option<(T, T)> {
        self.low.get().zip(self.high.get())
    }
}

impl serde::Serialize for Overhead {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        macro_rules! bounded {
            ($($field:ident)*) => {$(
                entry(&mut map, stringify!($field), &self.$field.value)?;
                entry(&mut map, concat!(stringify!($field), "_low"), &self.$field.low)?;
                entry(&mut map, concat!(stringify!($field), "_high"), &self.$field.high)?;
            )*};
        }
        bounded!(host_ns wait_ns fraction fraction_of_wall);
        entry(&mut map, "job_wall_ns", &self.job_wall_ns)?;
        entry(&mut map, "job_cpu_ns", &self.job_cpu_ns)?;
        bounded!(collector_cpu_ns);
        map.serialize_entry("parts", &self.parts)?;
        entry(&mut map, "step", &self.step)?;
        map.serialize_entry("estimate", &self.estimate)?;
        map.end()
    }
}

/// Says that what recording costs was not measured.
pub const NO_PRICE: &str = "the run was too short for what recording costs here to be measured";
const NOT_READ: &str = "ranks were not read";
pub(super) const NO_RUN: &str = "run.json is missing, the only source";
const NO_END: &str = "the run has not ended";
const NO_CPU: &str = "the CPU time of the job is unknown, or less than 50 ms";
const NO_CPUS: &str = "the number of processors is unknown";
pub(super) const UNMEASURED: &str = "run.json was last written before it was measured";
pub(super) const OLDER: &str = "an older tprof recorded this run; its estimate had waits in it";
pub(super) const IMPORTED: &str = "another tool recorded this trace";

impl Overhead {
    /// Sums what the collectors measured.
    pub fn of(infos: &[RunInfo]) -> Overhead {
        if infos.iter().any(RunInfo::is_imported) {
            return Overhead::missing(IMPORTED);
        }
        if infos.is_empty() {
            return Overhead::missing(NO_RUN);
        }
        if infos.iter().any(|info| !info.finished && info.overhead.collector_cpu_ns == 0) {
            return Overhead::missing(UNMEASURED);
        }
        let measured = |part: fn(&run::Overhead) -> Option<u64>| {
            sum(infos.iter().map(|info| part(&info.overhead)), NO_CPU)
        };
        let older = infos.iter().any(|info| info.overhead.version < OVERHEAD_VERSION);
        let estimated = |part: fn(&run::Overhead) -> Option<u64>| match older {
            true => Reading::missing(OLDER),
            false => sum(infos.iter().map(|info| part(&info.overhead)), NO_PRICE),
        };
        let host_ns = Bounded {
            value: estimated(|overhead| overhead.host_ns),
            low: estimated(|overhead| overhead.host_ns_low),
            high: estimated(|overhead| overhead.host_ns_high),
        };
        let wait_ns = Bounded::measured(measured(|overhead| Some(overhead.wait_ns)));
        let collector_cpu_ns =
            Bounded::measured(measured(|overhead| Some(overhead.collector_cpu_ns)));
        let job_cpu_ns = measured(|overhead| overhead.job_cpu_ns);
        let job_wall_ns = wall_ns(infos);
        let share = |part: fn(&run::Overhead) -> Option<f64>, of: &Reading<u64>| match of {
            Reading::Missing(why) => Reading::missing(why.clone()),
            _ => fraction(infos, part, of),
        };
        Overhead {
            fraction: Bounded {
                value: share(|overhead| overhead.fraction, &host_ns.value),
                low: share(|overhead| overhead.fraction_low, &host_ns.low),
                high: share(|overhead| overhead.fraction_high, &host_ns.high),
            },
            fraction_of_wall: Slowed {
                host_ns: &host_ns,
                wait_ns: &wait_ns.value,
                job_cpu_ns: &job_cpu_ns,
                job_wall_ns: &job_wall_ns,
                collector_cpu_ns: &collector_cpu_ns.value,
                cpus: cpus(infos),
            }
            .fraction(),
            host_ns,
            wait_ns,
            job_wall_ns,
            job_cpu_ns,
            collector_cpu_ns,
            parts: if older { Vec::new() } else { parts(infos) },
            step: Reading::missing(NOT_READ),
            estimate: true,
        }
    }

    fn missing(why: &str) -> Overhead {
        Overhead {
            host_ns: Bounded::missing(why),
            wait_ns: Bounded::missing(why),
            fraction: Bounded::missing(why),
            fraction_of_wall: Bounded::missing(why),
            job_wall_ns: Reading::missing(why),
            job_cpu_ns: Reading::missing(why),
            collector_cpu_ns: Bounded::missing(why),
            parts: Vec::new(),
            step: Reading::missing(why),
            estimate: true,
        }
    }
}

fn sum(parts: impl Iterator<Item = Option<u64>>, why: &str) -> Reading<u64> {
    let mut parts = parts;
    match parts.try_fold(0u64, |sum, part| Some(sum.saturating_add(part?))) {
        Some(sum) => Reading::Is(sum),
        None => Reading::missing(why),
    }
}

/// Returns the parts of the cost over all collectors, by name.
pub(super) fn parts(infos: &[RunInfo]) -> Vec<OverheadPart> {
    let mut parts: Vec<OverheadPart> = Vec::new();
    for part in infos.iter().flat_map(|info| &info.overhead.parts) {
        match parts.iter_mut().find(|known| known.part == part.part) {
            None => parts.push(part.clone()),
            Some(known) => {
                known.count += part.count;
                known.ns_low += part.ns_low;
                known.ns_high = known.ns_high.zip(part.ns_high).map(|(a, b)| a + b);
            }
        }
    }
    parts
}

/// Returns the number of processors of the hosts of all collectors; each host counts once. `None`
/// if it is unknown.
pub(super) fn cpus(infos: &[RunInfo]) -> Option<u64> {
    let of = |info: &RunInfo| Some((info.host.clone(), info.machine["cpus"].as_u64()?));
    let hosts = infos.iter().map(of).collect::<Option<BTreeMap<String, u64>>>()?;
    Some(hosts.into_values().sum()).filter(|cpus| *cpus > 0)
}

/// The figures from which the slowdown of a job is computed.
struct Slowed<'a> {
    host_ns: &'a Bounded<u64>,
    wait_ns: &'a Reading<u64>,
    job_cpu_ns: &'a Reading<u64>,
    job_wall_ns: &'a Reading<u64>,
    collector_cpu_ns: &'a Reading<u64>,
    cpus: Option<u64>,
}

impl Slowed<'_> {
    /// Returns the slowdown as a share of the wall time. The figure itself assumes that one thread
    /// had all of the CPU time and the waits. The lower bound assumes that the CPU time was spread
    /// evenly over the processors that the job kept busy, and that a wait of one thread delayed no
    /// other thread. The upper bound adds the collector's CPU time times the share of the
    /// processors that the job kept busy.
    fn fraction(&self) -> Bounded<f64> {
        let wall = match (self.job_wall_ns.get(), self.host_ns.value.get(), self.wait_ns.get()) {
            (None, ..) | (Some(0), ..) => return Bounded::missing(NO_END),
            (_, None, _) | (_, _, None) => return self.unknown(),
            (Some(wall), Some(host), Some(wait)) => (wall as f64, host as f64, wait as f64),
        };
        let (wall, host, wait) = wall;
        let (Some((least, most)), Some(job)) = (self.host_ns.bounds(), self.job_cpu_ns.get())
        else {
            return self.unknown();
        };
        let share = |ns: f64| Reading::Is((ns / wall).min(1.0));
        let high = match (self.cpus, self.collector_cpu_ns.get()) {
            (Some(cpus), Some(collector)) => {
                let busy = (job as f64 / (wall * cpus as f64)).min(1.0);
                share(most as f64 + wait + collector as f64 * busy)
            }
            _ => Reading::missing(NO_CPUS),
        };
        let parallel = (job as f64 / wall).max(1.0);
        Bounded { value: share(host + wait), low: share(least as f64 / parallel), high }
    }

    fn unknown(&self) -> Bounded<f64> {
        match (&self.host_ns.value, self.job_cpu_ns) {
            (Reading::Missing(why), _) | (_, Reading::Missing(why)) => Bounded::missing(why),
            _ => Bounded::missing(NO_PRICE),
        }
    }
}

/// Returns the wall time of the collector that ran longest.
fn wall_ns(infos: &[RunInfo]) -> Reading<u64> {
    if infos.is_empty() {
        return Reading::missing(NO_RUN);
    }
    let walls = infos.iter().map(|info| info.end_ns?.checked_sub(info.start_ns));
    match walls.collect::<Option<Vec<u64>>>().and_then(|walls| walls.into_iter().max()) {
        Some(wall) => Reading::Is(wall),
        None => Reading::missing(NO_END),
    }
}

/// Joins the shares of different collectors, each weighted with the CPU time that it is a share of.
fn fraction(
    infos: &[RunInfo],
    part: fn(&run::Overhead) -> Option<f64>,
    of: &Reading<u64>,
) -> Reading<f64> {
    if let [info] = infos {
        return part(&info.overhead).map_or(Reading::missing(NO_CPU), Reading::Is);
    }
    let whole = infos.iter().map(|info| info.overhead.job_cpu_ns.filter(|cpu| *cpu > 0));
    match (of.get(), sum(whole, NO_CPU).get()) {
        (Some(ns), Some(whole)) => Reading::Is((ns as f64 / whole as f64).min(1.0)),
        _ => Reading::missing(NO_CPU),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(host: [u64; 3], job_cpu_ns: u64) -> RunInfo {
        let share = |ns: u64| Some(ns as f64 / job_cpu_ns as f64);
        let overhead = run::Overhead {
            version: OVERHEAD_VERSION,
            host_ns_low: Some(host[0]),
            host_ns: Some(host[1]),
            host_ns_high: Some(host[2]),
            fraction_low: share(host[0]),
            fraction: share(host[1]),
            fraction_high: share(host[2]),
            job_cpu_ns: Some(job_cpu_ns),
            ..run::Overhead::default()
        };
        let machine = serde_json::json!({"cpus": 4});
        RunInfo { overhead, machine, finished: true, ..RunInfo::default() }
    }

    #[test]
    fn shares_of_collectors_are_weighted_by_their_cpu_time() {
        let overhead = Overhead::of(&[info([5, 10, 15], 100), info([80, 90, 100], 9_000)]);
        assert_eq!(overhead.host_ns.value, Reading::Is(100));
        assert_eq!(overhead.host_ns.bounds(), Some((85, 115)));
        assert!((overhead.fraction.value.get().unwrap() - 100.0 / 9100.0).abs() < 1e-12);
        assert!((overhead.fraction.high.get().unwrap() - 115.0 / 9100.0).abs() < 1e-12);
        assert!(Overhead::of(&[]).fraction.value.get().is_none());
    }

    #[test]
    fn waits_add_to_wall_time_but_not_to_cpu_time() {
        let mut info = info([5, 10, 20], 100);
        (info.start_ns, info.end_ns) = (1000, Some(1400));
        (info.overhead.wait_ns, info.overhead.collector_cpu_ns) = (30, 160);
        let overhead = Overhead::of(std::slice::from_ref(&info));
        assert_eq!(overhead.fraction.value, Reading::Is(0.1));
        // The figure is 10 + 30 of 400. The lower bound is 5 of 400. The upper bound has 20 + 30
        // and a sixteenth of the collector's 160.
        let wall = &overhead.fraction_of_wall;
        assert_eq!((&wall.value, wall.bounds()), (&Reading::Is(0.1), Some((0.0125, 0.15))));
        assert_eq!(overhead.wait_ns.bounds(), Some((30, 30)));
        assert_eq!(overhead.job_wall_ns, Reading::Is(400));
        // If two processors are busy all the time, the hooks' time is divided by two.
        (info.overhead.job_cpu_ns, info.overhead.wait_ns) = (Some(800), 0);
        let overhead = Overhead::of(std::slice::from_ref(&info));
        let wall = overhead.fraction_of_wall.bounds().unwrap();
        assert_eq!(wall, (5.0 / 800.0, 0.25));
        info.end_ns = None;
        assert!(Overhead::of(&[info]).fraction_of_wall.value.get().is_none());
    }

    #[test]
    fn bounds_are_beside_their_figure_in_json() {
        let json = serde_json::to_value(Overhead::of(&[info([5, 10, 20], 100)])).unwrap();
        assert_eq!((&json["host_ns_low"], &json["host_ns_high"]), (&5.into(), &20.into()));
        assert_eq!(json["fraction_high"], 0.2);
        assert!(json["fraction_of_wall_low"].is_null() && json["job_wall_ns_missing"].is_string());
    }

    #[test]
    fn the_differently_defined_estimate_of_an_older_tprof_is_not_used() {
        let mut info = info([5, 10, 20], 100);
        info.overhead.version = 0;
        info.overhead.wait_ns = 7;
        let overhead = Overhead::of(&[info]);
        assert_eq!(overhead.fraction.value, Reading::missing(OLDER));
        assert_eq!(overhead.host_ns.high, Reading::missing(OLDER));
        assert_eq!(overhead.wait_ns.value, Reading::Is(7));
    }

    #[test]
    fn the_cost_of_another_tools_recording_is_not_known() {
        let options = serde_json::json!({"imported": []});
        let overhead = Overhead::of(&[RunInfo { options, ..RunInfo::default() }]);
        assert_eq!(overhead.wait_ns.value, Reading::missing(IMPORTED));
        assert_eq!(overhead.collector_cpu_ns.value, Reading::missing(IMPORTED));
    }
}
