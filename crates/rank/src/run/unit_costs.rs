//! Computes the unit costs of recording, such as the cost of one event or one stack. The cost of a
//! step is the sum of each unit cost times the number of such actions in the step.

use tprof_trace::run::{OVERHEAD_VERSION, OverheadPart, RunInfo};

use super::job_overhead::{IMPORTED, NO_RUN, OLDER, UNMEASURED, cpus, parts};

/// The unit costs of a run, over all collectors.
#[derive(Clone, Debug, Default)]
pub struct Prices {
    parts: Vec<OverheadPart>,
    /// Time of the whole run in which threads waited for the collector, ns.
    pub wait_ns: u64,
    /// CPU time of the collectors in the whole run, ns.
    pub collector_ns: u64,
    /// Number of processors that the job kept busy, at least one.
    pub parallel: f64,
    /// The share of the machine's processors that the job kept busy; `None` if it is not known.
    /// Only this share of the collector's CPU time slowed the job.
    pub busy: Option<f64>,
    /// Wall time of the longest collector, ns.
    pub wall_ns: u64,
}

impl Prices {
    /// Returns the prices of a run, or the reason why they are not known.
    pub fn of(infos: &[RunInfo]) -> Result<Prices, &'static str> {
        if infos.is_empty() {
            return Err(NO_RUN);
        }
        if infos.iter().any(RunInfo::is_imported) {
            return Err(IMPORTED);
        }
        let is_unmeasured = |info: &RunInfo| !info.finished && info.overhead.collector_cpu_ns == 0;
        if infos.iter().any(is_unmeasured) {
            return Err(UNMEASURED);
        }
        if infos.iter().any(|info| info.overhead.version < OVERHEAD_VERSION) {
            return Err(OLDER);
        }
        let lasted = |info: &RunInfo| info.end_ns.unwrap_or(0).saturating_sub(info.start_ns);
        let wall_ns = infos.iter().map(lasted).max().unwrap_or(0);
        let job_ns: u64 = infos.iter().filter_map(|info| info.overhead.job_cpu_ns).sum();
        let cores = job_ns as f64 / wall_ns.max(1) as f64;
        let busy = cpus(infos).filter(|_| wall_ns > 0);
        Ok(Prices {
            parts: parts(infos),
            wait_ns: infos.iter().map(|info| info.overhead.wait_ns).sum(),
            collector_ns: infos.iter().map(|info| info.overhead.collector_cpu_ns).sum(),
            parallel: if wall_ns > 0 { cores.max(1.0) } else { 1.0 },
            busy: busy.map(|cpus| (cores / cpus as f64).min(1.0)),
            wall_ns,
        })
    }

    /// Returns a part of the cost over the whole run; zero if there were no such actions.
    pub fn all(&self, part: &str) -> OverheadPart {
        let nothing = || OverheadPart { ns_high: Some(0), ..OverheadPart::default() };
        self.parts.iter().find(|known| known.part == part).cloned().unwrap_or_else(nothing)
    }

    /// Returns the lower and the upper bound of the cost of `count` actions of a part, ns. The
    /// upper bound is `None` if the run was too short to measure it.
    pub fn cost_bounds(&self, part: &str, count: f64) -> (f64, Option<f64>) {
        let all = self.all(part);
        let share = if all.count == 0 { 0.0 } else { count / all.count as f64 };
        (all.ns_low as f64 * share, all.ns_high.map(|high| high as f64 * share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::run::Overhead;

    #[test]
    fn the_cost_of_a_part_is_proportional_to_its_count() {
        let part = |part: &str, count, ns_low, ns_high| OverheadPart {
            part: part.to_owned(),
            count,
            ns_low,
            ns_high,
        };
        let parts = vec![part("events", 100, 200, Some(400)), part("samples", 4, 40, None)];
        let overhead = Overhead {
            version: OVERHEAD_VERSION,
            parts,
            job_cpu_ns: Some(3_000),
            ..Overhead::default()
        };
        let machine = serde_json::json!({"cpus": 6});
        let info = RunInfo {
            overhead,
            machine,
            finished: true,
            end_ns: Some(1_000),
            ..RunInfo::default()
        };
        let prices = Prices::of(std::slice::from_ref(&info)).unwrap();
        assert_eq!(prices.cost_bounds("events", 10.0), (20.0, Some(40.0)));
        assert_eq!(prices.cost_bounds("samples", 1.0), (10.0, None));
        assert_eq!(prices.cost_bounds("operators", 7.0), (0.0, Some(0.0)));
        assert_eq!((prices.parallel, prices.busy), (3.0, Some(0.5)));
        assert_eq!(Prices::of(&[]).unwrap_err(), NO_RUN);
        let options = serde_json::json!({"imported": []});
        assert_eq!(Prices::of(&[RunInfo { options, ..info }]).unwrap_err(), IMPORTED);
    }
}
