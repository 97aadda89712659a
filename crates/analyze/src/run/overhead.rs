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
    /// Both, as a share of the job's CPU time; an estimate.
    pub fraction: Reading<f64>,
    /// CPU time of the collectors; measured.
    pub collector_cpu_ns: Reading<u64>,
    /// Always true: `host_ns` and `fraction` are estimates.
    pub estimate: bool,
}
object! { Overhead {
    reading host_ns, reading wait_ns, reading fraction, reading collector_cpu_ns, plain estimate,
} }

const NO_RUN: &str = "run.json is missing, the only source";
const IMPORTED: &str = "another tool recorded this trace";

impl Overhead {
    /// Sums what the collectors measured.
    pub(crate) fn of(infos: &[RunInfo]) -> Overhead {
        let sum = |part: fn(&RunInfo) -> Option<u64>| {
            if infos.is_empty() {
                return Reading::missing(NO_RUN);
            }
            match infos.iter().map(part).try_fold(0u64, |sum, part| Some(sum.saturating_add(part?)))
            {
                Some(sum) => Reading::Is(sum),
                None => Reading::missing("the collector had no calibration"),
            }
        };
        if infos.iter().any(RunInfo::is_imported) {
            return Overhead {
                host_ns: Reading::missing(IMPORTED),
                wait_ns: Reading::missing(IMPORTED),
                fraction: Reading::missing(IMPORTED),
                collector_cpu_ns: Reading::missing(IMPORTED),
                estimate: true,
            };
        }
        Overhead {
            host_ns: sum(|info| info.overhead.host_ns),
            wait_ns: sum(|info| Some(info.overhead.wait_ns)),
            fraction: fraction(infos),
            collector_cpu_ns: sum(|info| Some(info.overhead.collector_cpu_ns)),
            estimate: true,
        }
    }
}

/// Shares of different collectors are joined by the time that they are shares of.
fn fraction(infos: &[RunInfo]) -> Reading<f64> {
    let unknown = "the CPU time of the job is unknown";
    match infos {
        [] => Reading::missing(NO_RUN),
        [info] => match info.overhead.fraction {
            Some(fraction) => Reading::Is(fraction),
            None => Reading::missing(unknown),
        },
        infos => {
            let (mut cost, mut whole) = (0.0, 0.0);
            for info in infos {
                let overhead = &info.overhead;
                match (overhead.host_ns, overhead.fraction) {
                    (Some(host_ns), Some(fraction)) if fraction > 0.0 => {
                        let part = (host_ns.saturating_add(overhead.wait_ns)) as f64;
                        cost += part;
                        whole += part / fraction;
                    }
                    _ => return Reading::missing(unknown),
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
    fn the_cost_of_another_tools_recording_is_not_known() {
        let options = serde_json::json!({"imported": []});
        let overhead = Overhead::of(&[RunInfo { options, ..RunInfo::default() }]);
        assert_eq!(overhead.wait_ns, Reading::missing(IMPORTED));
        assert_eq!(overhead.collector_cpu_ns, Reading::missing(IMPORTED));
    }
}
