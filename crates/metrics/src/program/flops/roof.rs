//! Computes the least time that work takes on a device, and tells which limit of the device bounds
//! it.

use tprof_facts::flops::Work;
use tprof_facts::flops::peaks::Peaks;

/// The reason that tables give if the distance to the roof is unknown.
pub(super) const NO_PEAKS: &str =
    "the device's peaks are not known (--peaks bf16=989T,memory=3.35T)";
pub(super) const NO_BYTES: &str =
    "its bytes are not known: a type or the result's sizes were not recorded";

/// The least time that some work takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LeastTime {
    /// Least time of the operations, ns; `None` if the peak for their type is unknown.
    pub compute_ns: Option<f64>,
    /// Least time to move the bytes, ns; `None` if the bytes or the peak of the memory are unknown.
    pub memory_ns: Option<f64>,
    /// Name of the peak for the operations' type; empty if unknown.
    pub peak: &'static str,
}

impl LeastTime {
    /// Computes the least time of one run.
    pub fn of(work: &Work, peaks: &Peaks, tf32: bool) -> LeastTime {
        let compute = peaks.compute(work, tf32);
        let compute_ns = match work.needed {
            0 => Some(0.0),
            needed => compute.map(|(peak, _)| needed as f64 / peak * 1e9),
        };
        let memory_ns = work.bytes().zip(peaks.memory).map(|(all, peak)| all as f64 / peak * 1e9);
        LeastTime { compute_ns, memory_ns, peak: compute.map_or("", |(_, name)| name) }
    }

    /// Returns the longer of the two times.
    pub fn both(&self) -> Option<f64> {
        Some(self.compute_ns?.max(self.memory_ns?))
    }

    /// Returns the least time of this many runs.
    pub fn times(self, runs: u64) -> LeastTime {
        let all = |one: Option<f64>| one.map(|one| one * runs as f64);
        LeastTime { compute_ns: all(self.compute_ns), memory_ns: all(self.memory_ns), ..self }
    }

    /// Returns the sum of two least times.
    pub fn plus(self, other: LeastTime) -> LeastTime {
        let sum = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
        LeastTime {
            compute_ns: sum(self.compute_ns, other.compute_ns),
            memory_ns: sum(self.memory_ns, other.memory_ns),
            peak: if self.peak == other.peak { self.peak } else { "" },
        }
    }
}

/// The limit that bounds the runs of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoofBound {
    /// The device's operations per second.
    Compute,
    /// The device's memory bandwidth.
    Memory,
    /// The host takes longer to launch the run than the device takes to execute it.
    Launch,
    /// The run waits for other ranks, or for the links to them.
    Communication,
    /// The run's bytes cross the bus between host and device.
    Bus,
}

impl RoofBound {
    /// Returns the word for tables.
    pub fn word(self) -> &'static str {
        match self {
            RoofBound::Compute => "compute",
            RoofBound::Memory => "memory",
            RoofBound::Launch => "launch",
            RoofBound::Communication => "communication",
            RoofBound::Bus => "bus",
        }
    }

    /// Returns the limit that bounds work with these least times.
    pub(super) fn modelled(least: &LeastTime) -> Option<RoofBound> {
        let (compute, memory) = (least.compute_ns?, least.memory_ns?);
        Some(if compute >= memory { RoofBound::Compute } else { RoofBound::Memory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_facts::flops::{Count, of};

    #[test]
    fn the_limit_that_takes_longer_bounds_the_work() {
        let peaks = Peaks::parse("fp32=10T,memory=1T").unwrap();
        let least = |size: u64| {
            let args = format!(
                r#"{{"Input Dims":[[{size},{size}],[{size},{size}]],"Input type":["float","float"]}}"#
            );
            let Count::Work(work) = of("aten::mm", &args) else { panic!("{args}") };
            LeastTime::of(&work, &peaks, false)
        };
        // 2 n³ / 10¹³ s for the operations, and 12 n² / 10¹² s for the bytes.
        let large = least(1000);
        assert_eq!((large.compute_ns, large.memory_ns), (Some(200_000.0), Some(12_000.0)));
        assert_eq!(RoofBound::modelled(&large), Some(RoofBound::Compute));
        assert_eq!(RoofBound::modelled(&least(10)), Some(RoofBound::Memory));
        let unknown = LeastTime::of(
            &match of("aten::mm", r#"{"Input Dims":[[2,3],[3,4]]}"#) {
                Count::Work(work) => work,
                other => panic!("{other:?}"),
            },
            &peaks,
            false,
        );
        assert_eq!((unknown.compute_ns, unknown.both()), (None, None));
    }
}
