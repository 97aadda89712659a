//! Lists the metrics of steps and of whole runs that a comparison shows.

use tprof_document::Unit;
use tprof_metrics::program::steps::StepDeviceTime;
use tprof_rank::base::reading::Reading;

/// The direction in which a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BetterWhen {
    /// A lower value is better.
    Less,
    /// A higher value is better.
    More,
    /// Neither direction is better by itself.
    Neither,
}

/// A metric that is compared.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Key, for `--fail-on` and JSON.
    pub key: &'static str,
    /// The displayed name of the metric.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// The direction in which it is better.
    pub better: BetterWhen,
    /// Whether other hardware changes the metric's value for the same code.
    pub of_hardware: bool,
    /// A change by a smaller share of A's value counts as no change. This share is used only
    /// without repeats, which would show how much the value varies.
    pub noise: f64,
}

/// The noise of times and resident memory, which vary from run to run of the same code.
const VARIES: f64 = 0.01;
/// The noise of quantities that the program itself determines and that hardly vary. It equals the
/// precision with which reports print them.
const SHOWN: f64 = 0.001;

const fn metric(key: &'static str, name: &'static str, unit: Unit, better: BetterWhen) -> Metric {
    let of_hardware = matches!(unit, Unit::Duration | Unit::Share);
    Metric { key, name, unit, better, of_hardware, noise: if of_hardware { VARIES } else { SHOWN } }
}

const fn noisy(metric: Metric) -> Metric {
    Metric { noise: VARIES, ..metric }
}

/// Key of the step time without the time in which the step's driving thread had no core.
pub(super) const WITHOUT_LOST_CORES: &str = "step_time_without_lost_cores";

/// Metrics of a step, in the order of the tables. The four parts of a step's time on devices add up
/// to the step's time.
pub const STEP_METRICS: [Metric; 8] = [
    metric("step_time", "step time", Unit::Duration, BetterWhen::Less),
    metric(WITHOUT_LOST_CORES, "without load", Unit::Duration, BetterWhen::Less),
    metric("compute_time", "compute", Unit::Duration, BetterWhen::Neither),
    metric("exposed_communication", "exposed comm", Unit::Duration, BetterWhen::Less),
    metric("exposed_copies", "exposed copies", Unit::Duration, BetterWhen::Less),
    metric("idle_time", "GPU idle", Unit::Duration, BetterWhen::Less),
    metric("gpu_busy", "GPU busy", Unit::Share, BetterWhen::More),
    metric("launches", "kernels and copies", Unit::Count, BetterWhen::Neither),
];

/// Metrics of a whole run.
pub const RUN_METRICS: [Metric; 7] = [
    metric("wall_time", "wall time", Unit::Duration, BetterWhen::Less),
    metric("cpu_time", "CPU time", Unit::Duration, BetterWhen::Less),
    metric("processes", "processes", Unit::Count, BetterWhen::Neither),
    metric("threads", "threads", Unit::Count, BetterWhen::Neither),
    metric("peak_heap", "peak heap", Unit::Bytes, BetterWhen::Less),
    noisy(metric("peak_rss", "peak RSS", Unit::Bytes, BetterWhen::Less)),
    metric("peak_device_memory", "peak device memory", Unit::Bytes, BetterWhen::Less),
];

/// Returns a metric by its key.
pub fn find(key: &str) -> Option<&'static Metric> {
    STEP_METRICS.iter().chain(&RUN_METRICS).find(|metric| metric.key == key)
}

/// Returns the keys of all metrics.
pub fn keys() -> impl Iterator<Item = &'static str> {
    STEP_METRICS.iter().chain(&RUN_METRICS).map(|metric| metric.key)
}

/// The value of a metric of `RUN_METRICS`.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Key of the figure's metric.
    pub key: &'static str,
    /// The value, in the unit of its metric.
    pub value: Reading<u64>,
}

/// Sums of the metrics of one step, over ranks.
#[derive(Clone, Debug, Default)]
pub(super) struct FigureSum {
    ranks: u64,
    duration_ns: f64,
    /// Number of ranks for which the time without a core is known, and the sum of these times.
    driven: u64,
    lost_ns: f64,
    /// Number of ranks on which something ran on a device, and the sums over these ranks.
    on_device: u64,
    device_duration_ns: f64,
    device_ns: [f64; 3],
    launches: f64,
}

impl FigureSum {
    /// Adds a rank's times. `lost_ns` is the time in which the rank's driving thread had no core.
    pub fn add(&mut self, times: &StepDeviceTime, lost_ns: Option<u64>) {
        self.ranks += 1;
        self.duration_ns += times.duration_ns as f64;
        self.driven += u64::from(lost_ns.is_some());
        // While a device works, the step doesn't wait for the driving thread. So a lost core costs
        // at most the idle time.
        let most_ns = times.idle_ns().unwrap_or(times.duration_ns);
        self.lost_ns += lost_ns.unwrap_or(0).min(most_ns) as f64;
        let (Some(device_ns), Some(launches)) = (times.device_ns, times.launches) else {
            return;
        };
        self.on_device += 1;
        self.device_duration_ns += times.duration_ns as f64;
        for (sum, ns) in self.device_ns.iter_mut().zip(device_ns) {
            *sum += ns as f64;
        }
        self.launches += launches as f64;
    }

    /// Returns the means by key. Device metrics are means over the ranks that used a device, all
    /// other metrics over all ranks.
    pub fn means(&self) -> Vec<(&'static str, f64)> {
        let ranks = self.ranks.max(1) as f64;
        let mut means = vec![("step_time", self.duration_ns / ranks)];
        // Leave out a mean over only some ranks, because it can't be compared with the step time
        // over all ranks.
        if self.driven == self.ranks {
            means.push((WITHOUT_LOST_CORES, (self.duration_ns - self.lost_ns) / ranks));
        }
        if self.on_device > 0 {
            let ranks = self.on_device as f64;
            let [compute, communication, copies] = self.device_ns.map(|sum| sum / ranks);
            let step = self.device_duration_ns / ranks;
            let busy = compute + communication + copies;
            means.push(("compute_time", compute));
            means.push(("exposed_communication", communication));
            means.push(("exposed_copies", copies));
            means.push(("idle_time", step - busy));
            if step > 0.0 {
                means.push(("gpu_busy", busy / step));
            }
            means.push(("launches", self.launches / ranks));
        }
        means
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_step_add_up_to_the_step_time() {
        let mut sum = FigureSum::default();
        let times =
            |duration_ns, device_ns| StepDeviceTime { duration_ns, device_ns, launches: Some(3) };
        sum.add(&times(100, Some([50, 20, 10])), Some(30));
        sum.add(&times(200, Some([60, 0, 0])), Some(0));
        // A rank without a device counts only for the step time.
        sum.add(&StepDeviceTime { duration_ns: 300, ..StepDeviceTime::default() }, Some(60));
        let means = sum.means();
        let of = |key| means.iter().find(|(mean, _)| *mean == key).unwrap().1;
        assert_eq!(of("step_time"), 200.0);
        let parts = ["compute_time", "exposed_communication", "exposed_copies", "idle_time"];
        assert_eq!(parts.map(of), [55.0, 10.0, 5.0, 80.0]);
        assert_eq!(of("launches"), 3.0);
        assert_eq!(of(WITHOUT_LOST_CORES), (80.0 + 200.0 + 240.0) / 3.0);
        assert!((of("gpu_busy") - 70.0 / 150.0).abs() < 1e-12);
        assert!(means.iter().all(|(key, _)| find(key).is_some()));
        // If the time is unknown for one rank, the mean over all ranks is unknown.
        sum.add(&times(200, Some([60, 0, 0])), None);
        assert!(sum.means().iter().all(|(key, _)| *key != WITHOUT_LOST_CORES));
    }
}
