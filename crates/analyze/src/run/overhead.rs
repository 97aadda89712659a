//! What the recording cost the job.

use tprof_trace::run::RunInfo;

use crate::base::reading::{Reading, object};

/// Cost of the recording, over all collectors of a run.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// Time spent in hooks; an estimate.
    pub host_ns: Reading<u64>,
    /// Time that threads waited for the collector; measured.
    pub wait_ns: Reading<u64>,
    /// The first as a share of the job's CPU time; an estimate.
    pub fraction: Reading<f64>,
    /// Both as a share of the run's wall time, as if one thread had them all: the job
    /// was slowed by no more of both; an estimate.
    pub fraction_of_wall: Reading<f64>,
    /// Wall time of the longest collector; measured.
    pub job_wall_ns: Reading<u64>,
    /// CPU time of the job; measured.
    pub job_cpu_ns: Reading<u64>,
    /// CPU time of the collectors; measured.
    pub collector_cpu_ns: Reading<u64>,
    /// Always true: `host_ns` and `fraction` are estimates.
    pub estimate: bool,
}
object! { Overhead {
    reading host_ns, reading wait_ns, reading fraction, reading fraction_of_wall,
    reading job_wall_ns, reading job_cpu_ns, reading collector_cpu_ns, plain estimate,
} }

const NO_RUN: &str = "run.json is missing, the only source";
const NO_END: &str = "the run has not ended";
const NO_CPU: &str = "the CPU time of the job is unknown";
const IMPORTED: &str = "another tool recorded this trace";

impl Overhead {
    /// Sums what the collectors measured.
    pub(crate) fn of(infos: &[RunInfo]) -> Overhead {
        let sum = |part: fn(&RunInfo) -> Option<u64>, why: &'static str| {
            if infos.is_empty() {
                return Reading::missing(NO_RUN);
            }
            match infos.iter().map(part).try_fold(0u64, |sum, part| Some(sum.saturating_add(part?)))
            {
                Some(sum) => Reading::Is(sum),
                None => Reading::missing(why),
            }
        };
        let host_ns = sum(|info| info.overhead.host_ns, "the collector had no calibration");
        let wait_ns = sum(|info| Some(info.overhead.wait_ns), NO_RUN);
        let job_wall_ns = wall_ns(infos);
        if infos.iter().any(RunInfo::is_imported) {
            return Overhead {
                host_ns: Reading::missing(IMPORTED),
                wait_ns: Reading::missing(IMPORTED),
                fraction: Reading::missing(IMPORTED),
                fraction_of_wall: Reading::missing(IMPORTED),
                job_wall_ns: Reading::missing(IMPORTED),
                job_cpu_ns: Reading::missing(IMPORTED),
                collector_cpu_ns: Reading::missing(IMPORTED),
                estimate: true,
            };
        }
        Overhead {
            fraction: fraction(infos),
            fraction_of_wall: match (host_ns.get(), wait_ns.get(), job_wall_ns.get()) {
                (Some(host), Some(wait), Some(wall)) if wall > 0 => {
                    Reading::Is((host.saturating_add(wait) as f64 / wall as f64).min(1.0))
                }
                _ => Reading::missing(NO_END),
            },
            host_ns,
            wait_ns,
            job_wall_ns,
            job_cpu_ns: sum(|info| info.overhead.job_cpu_ns, NO_CPU),
            collector_cpu_ns: sum(|info| Some(info.overhead.collector_cpu_ns), NO_RUN),
            estimate: true,
        }
    }
}

/// Of the collector that ran longest.
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

/// Shares of different collectors are joined by the time that they are shares of.
fn fraction(infos: &[RunInfo]) -> Reading<f64> {
    match infos {
        [] => Reading::missing(NO_RUN),
        [info] => match info.overhead.fraction {
            Some(fraction) => Reading::Is(fraction),
            None => Reading::missing(NO_CPU),
        },
        infos => {
            let (mut cost, mut whole) = (0.0, 0.0);
            for info in infos {
                let overhead = &info.overhead;
                match (overhead.host_ns, overhead.fraction) {
                    (Some(host_ns), Some(fraction)) if fraction > 0.0 => {
                        cost += host_ns as f64;
                        whole += host_ns as f64 / fraction;
                    }
                    _ => return Reading::missing(NO_CPU),
                }
            }
            Reading::Is(cost / whole)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::run;

    fn info(host_ns: u64, fraction: f64) -> RunInfo {
        let overhead = run::Overhead {
            host_ns: Some(host_ns),
            fraction: Some(fraction),
            ..run::Overhead::default()
        };
        RunInfo { overhead, ..RunInfo::default() }
    }

    #[test]
    fn shares_are_joined_by_what_they_are_shares_of() {
        // 10 of 100 and 90 of 9,000.
        let overhead = Overhead::of(&[info(10, 0.1), info(90, 0.01)]);
        assert_eq!(overhead.host_ns, Reading::Is(100));
        assert!((overhead.fraction.get().unwrap() - 100.0 / 9100.0).abs() < 1e-12);
        assert!(Overhead::of(&[]).fraction.get().is_none());
    }

    #[test]
    fn hooks_are_a_share_of_cpu_time_and_with_waits_of_wall_time() {
        let mut info = info(10, 0.1);
        (info.start_ns, info.end_ns) = (1000, Some(1400));
        (info.overhead.wait_ns, info.overhead.job_cpu_ns) = (30, Some(100));
        let overhead = Overhead::of(&[info.clone()]);
        assert_eq!(overhead.fraction, Reading::Is(0.1));
        assert_eq!(overhead.fraction_of_wall, Reading::Is(0.1));
        assert_eq!(overhead.job_wall_ns, Reading::Is(400));
        assert_eq!(overhead.job_cpu_ns, Reading::Is(100));
        info.end_ns = None;
        assert!(Overhead::of(&[info]).fraction_of_wall.get().is_none());
    }

    #[test]
    fn the_cost_of_another_tools_recording_is_not_known() {
        let options = serde_json::json!({"imported": []});
        let overhead = Overhead::of(&[RunInfo { options, ..RunInfo::default() }]);
        assert_eq!(overhead.wait_ns, Reading::missing(IMPORTED));
        assert_eq!(overhead.collector_cpu_ns, Reading::missing(IMPORTED));
    }
}
