//! `tprof doctor --peaks`: measures the peak rates of the processors, with which reports can judge
//! operators on a CPU.
//!
//! Nothing else should run meanwhile, because other programs would take a part of what is measured.
//! Each figure is the best of several rounds.

mod fma;
mod rounds;
mod triad;

use serde::Serialize;
use std::io;
use std::num::NonZero;
use std::thread;
use tprof_facts::units::bytes;
use tprof_ui::errors::{Failure, reason};

/// Measured peak rates.
#[derive(Serialize)]
pub(super) struct CpuPeaks {
    /// Vector unit that was used, such as `AVX-512`.
    vector: &'static str,
    /// Total size of the triad's arrays in bytes.
    triad_bytes: u64,
    one_core: CoresPeaks,
    /// Rates with as many threads as the process may run at once.
    all_cores: CoresPeaks,
}

/// Rates with a given number of threads.
#[derive(Serialize)]
struct CoresPeaks {
    cores: usize,
    /// Operations per second; a fused multiply-add counts as two.
    fp32_flops_per_s: f64,
    fp64_flops_per_s: f64,
    /// Bytes read and written per second; `None` if there was not enough memory.
    memory_bytes_per_s: Option<f64>,
    /// The argument of `tprof report --peaks` for these rates.
    option: String,
}

impl CoresPeaks {
    fn measure(
        cores: usize,
        unit: &fma::VectorUnit,
        triad_bytes: Option<u64>,
    ) -> io::Result<CoresPeaks> {
        let fp32_flops_per_s = rounds::best(cores, || unit.fp32)?;
        let fp64_flops_per_s = rounds::best(cores, || unit.fp64)?;
        let memory = triad_bytes.map(|all| {
            let each = all / cores as u64;
            rounds::best(cores, || triad::arrays(each))
        });
        let memory_bytes_per_s = memory.transpose()?;
        let mut option = format!("fp32={},fp64={}", giga(fp32_flops_per_s), giga(fp64_flops_per_s));
        if let Some(memory) = memory_bytes_per_s {
            option += &format!(",memory={}", giga(memory));
        }
        Ok(CoresPeaks { cores, fp32_flops_per_s, fp64_flops_per_s, memory_bytes_per_s, option })
    }
}

/// Measures the rates, which takes about three seconds.
pub(super) fn measure() -> Result<CpuPeaks, Failure> {
    let unit = fma::widest();
    let all = triad::bytes();
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let of = |cores: usize| {
        CoresPeaks::measure(cores, &unit, all).map_err(|error| {
            Failure::new(format!("cannot measure what {cores} processors reach (--peaks)"))
                .cause(format!("a thread cannot be started: {}", reason(&error)))
                .hint("ulimit -u, or the limit of processes of the container")
        })
    };
    Ok(CpuPeaks {
        vector: unit.name,
        triad_bytes: all.unwrap_or(0),
        one_core: of(1)?,
        all_cores: of(cores)?,
    })
}

/// Formats a rate as `--peaks` accepts it: `105.3G`.
fn giga(value: f64) -> String {
    format!("{:.1}G", value / 1e9)
}

/// Formats the rates as text.
pub(super) fn text(peaks: &CpuPeaks) -> String {
    let of = |name: &str, one: &CoresPeaks| {
        let memory = match one.memory_bytes_per_s {
            Some(memory) => format!("{:>7.1} GB/s", memory / 1e9),
            None => "unknown: too little memory".to_owned(),
        };
        let [fp32, fp64] = [one.fp32_flops_per_s, one.fp64_flops_per_s].map(|one| one / 1e9);
        format!(
            "  {name:<9}  fp32 {fp32:>8.1} GFLOP/s  fp64 {fp64:>8.1} GFLOP/s  memory {memory}\n"
        )
    };
    let all = &peaks.all_cores;
    let mut text = format!("\npeaks of the CPU, measured with {}", peaks.vector);
    if peaks.triad_bytes > 0 {
        text += &format!(" and arrays of {}", bytes(peaks.triad_bytes));
    }
    text += "\n";
    text += &of("one core", &peaks.one_core);
    text += &of(&format!("{} cores", all.cores), all);
    text + &format!("  tprof report roofline --peaks {} RUN\n", all.option)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_facts::flops::peaks::Peaks;

    #[test]
    fn reports_accept_the_printed_rates() {
        let unit = fma::widest();
        let peaks = CoresPeaks::measure(1, &unit, Some(1 << 20)).unwrap();
        let read = Peaks::parse(&peaks.option).unwrap();
        let near = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() <= 5.1e7;
        assert!(near(read.vector32, peaks.fp32_flops_per_s), "{}", peaks.option);
        assert!(near(read.vector64, peaks.fp64_flops_per_s), "{}", peaks.option);
        assert!(near(read.memory, peaks.memory_bytes_per_s.unwrap()), "{}", peaks.option);
        let without = CoresPeaks::measure(1, &unit, None).unwrap();
        assert_eq!(Peaks::parse(&without.option).unwrap().memory, None);
    }
}
