//! Measures the load of the machine in the judged time, as far as it was recorded.

use tprof_facts::units::duration;
use tprof_metrics::host::RankHost;
use tprof_rank::base::intervals::Interval;
use tprof_trace::TraceFile;
use tprof_trace::model::counter;

/// The load of the machine, and the throttling of the job's cgroup.
pub(super) struct MachineLoad {
    /// Number of the host's processors that were busy with any program, on average.
    pub busy_cores: Option<f64>,
    /// The number of processors that this rank used, on average.
    pub own_cores: f64,
    /// Time for which the cgroup's CPU limit throttled the job's tasks, summed over processors, ns.
    pub throttled_ns: u64,
}

impl MachineLoad {
    /// Measures the load in the judged time of a rank.
    pub fn of(file: &TraceFile, host: &RankHost) -> MachineLoad {
        let window = host.life.window;
        let others = host.without_core.running().map(|other| other.ns + other.outside_ns);
        let own_ns = host.ledger.running_ns + others.sum::<u64>();
        MachineLoad {
            busy_cores: busy(&readings(file, counter::HOST_BUSY_CORES), window),
            own_cores: own_ns as f64 / window.length().max(1) as f64,
            throttled_ns: throttled(&readings(file, counter::CGROUP_THROTTLED_NS), window),
        }
    }

    /// Formats the load in one or two sentences.
    pub fn words(&self) -> String {
        let limit = match self.throttled_ns {
            0 => String::new(),
            ns => format!(" The CPU limit of the cgroup kept its tasks off for {}.", duration(ns)),
        };
        match self.busy_cores {
            Some(busy) => format!(
                "On average {busy:.1} processors of the host were busy, {:.1} with this rank.{limit}",
                self.own_cores.min(busy)
            ),
            None => format!("The load of other programs is not recorded.{limit}"),
        }
    }
}

/// Returns the readings of one of the host's counters, in order of time.
fn readings(file: &TraceFile, name: &str) -> Vec<(u64, f64)> {
    let of = file.counters().iter().filter(|row| row.process.is_none());
    let of = of.filter(|row| file.name(row.name) == name);
    let mut all: Vec<(u64, f64)> = of.map(|row| (row.time_ns, row.value)).collect();
    all.sort_by_key(|(time_ns, _)| *time_ns);
    all
}

/// Returns the mean of a counter over a window. Each reading is the mean since the previous
/// reading.
fn busy(readings: &[(u64, f64)], window: Interval) -> Option<f64> {
    let (mut sum, mut known_ns) = (0.0, 0);
    let mut since_ns = 0;
    for &(time_ns, value) in readings {
        let inside_ns = Interval::new(since_ns, time_ns).overlap(window).length();
        since_ns = time_ns;
        sum += value * inside_ns as f64;
        known_ns += inside_ns;
    }
    (known_ns > 0).then(|| sum / known_ns as f64)
}

/// Returns by how much a cumulative counter rises within a window.
fn throttled(readings: &[(u64, f64)], window: Interval) -> u64 {
    let upto = |time_ns: u64| {
        let before = readings.iter().filter(|(at_ns, _)| *at_ns <= time_ns);
        before.max_by_key(|(at_ns, _)| *at_ns).map_or(0.0, |(_, value)| *value)
    };
    (upto(window.end) - upto(window.start)).max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_counts_for_the_time_since_the_previous_reading() {
        let window = Interval::new(100, 200);
        assert_eq!(busy(&[(120, 1.0), (180, 2.0), (240, 4.0)], window), Some(2.2));
        assert_eq!(busy(&[], window), None);
        let sums = [(50, 10.0), (150, 40.0), (250, 90.0)];
        assert_eq!(throttled(&sums, window), 30);
        assert_eq!(throttled(&[], window), 0);
    }
}
