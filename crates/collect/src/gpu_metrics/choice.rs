//! Which of CUPTI's metrics tell a counter. Their names differ between chips, so each counter has
//! several, of which the first counts that the chip has and that fits into the one pass.
//!
//! The names were tried with NVIDIA's host library (`scripts/cuda/pm_metrics.py`), which knows all
//! chips and needs no device.

use tprof_trace::model::counter::*;

/// A counter, and the metrics that tell it, best first.
#[derive(Debug)]
pub struct CounterChoice {
    /// The counter's name.
    pub counter: &'static str,
    /// Names of metrics.
    pub metrics: &'static [&'static str],
    /// By how much a metric's value is multiplied.
    pub factor: f64,
}

/// What turns CUPTI's percentages into shares.
const PERCENT: f64 = 0.01;

macro_rules! share {
    ($counter:expr, $($metric:literal),*) => {
        CounterChoice {
            counter: $counter,
            metrics: &[$(concat!($metric, ".avg.pct_of_peak_sustained_elapsed")),*],
            factor: PERCENT,
        }
    };
}

macro_rules! rate {
    ($counter:expr, $($metric:literal),*) => {
        CounterChoice {
            counter: $counter,
            metrics: &[$(concat!($metric, ".sum.per_second")),*],
            factor: 1.0,
        }
    };
}

/// The counters in the order in which they get their place in the pass.
pub const CHOICES: [CounterChoice; 17] = [
    share!(GPU_SM_ACTIVE, "TPC.TriageCompute.sm__cycles_active", "sm__cycles_active"),
    rate!(GPU_DRAM_READ, "dram__bytes_read", "dram__read_bytes", "fbpa__dram_read_bytes"),
    rate!(GPU_DRAM_WRITTEN, "dram__bytes_write", "dram__write_bytes", "fbpa__dram_write_bytes"),
    share!(GPU_DRAM_BANDWIDTH, "dram__throughput", "gpu__dram_throughput"),
    share!(
        GPU_TENSOR_ACTIVE,
        "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime",
        "sm__pipe_tensor_cycles_active_realtime",
        "sm__pipe_tensor_cycles_active"
    ),
    share!(
        GPU_SM_OCCUPANCY,
        "TPC.TriageCompute.tpc__warps_active_realtime",
        "tpc__warps_active_realtime",
        "TPC.TriageCompute.tpc__warps_active_shader_cs_realtime",
        "tpc__warps_active_shader_cs_realtime",
        "sm__warps_active"
    ),
    rate!(GPU_NVLINK_RECEIVED, "nvlrx__bytes"),
    rate!(GPU_NVLINK_SENT, "nvltx__bytes"),
    rate!(GPU_PCIE_RECEIVED, "PCI.TriageCompute.pcie__read_bytes", "pcie__read_bytes"),
    rate!(GPU_PCIE_SENT, "PCI.TriageCompute.pcie__write_bytes", "pcie__write_bytes"),
    share!(
        GPU_FP32_ACTIVE,
        "TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime",
        "sm__inst_executed_pipe_fma_realtime",
        "sm__pipe_fma_cycles_active"
    ),
    share!(
        GPU_FP64_ACTIVE,
        "TPC.TriageCompute.sm__pipe_fp64_cycles_active_realtime",
        "sm__pipe_fp64_cycles_active_realtime",
        "sm__pipe_fp64_cycles_active"
    ),
    share!(
        GPU_INTEGER_ACTIVE,
        "TPC.TriageCompute.sm__inst_executed_pipe_alu_realtime",
        "sm__inst_executed_pipe_alu_realtime"
    ),
    share!(
        GPU_TENSOR_HMMA_ACTIVE,
        "TPC.TriageCompute.sm__pipe_tensor_op_hmma_cycles_active_realtime",
        "sm__pipe_tensor_op_hmma_cycles_active_realtime"
    ),
    share!(
        GPU_TENSOR_IMMA_ACTIVE,
        "TPC.TriageCompute.sm__pipe_tensor_op_imma_cycles_active_realtime",
        "sm__pipe_tensor_op_imma_cycles_active_realtime"
    ),
    share!(
        GPU_TENSOR_DFMA_ACTIVE,
        "TPC.TriageCompute.sm__pipe_tensor_op_dmma_cycles_active_realtime",
        "SM_C.TriageCompute.smsp__pipe_tensor_op_dmma_cycles_active"
    ),
    share!(
        GPU_FP16_ACTIVE,
        "sm__inst_executed_pipe_fp16_realtime",
        "sm__inst_executed_pipe_fma_type_fp16"
    ),
];
const _: () = assert!(CHOICES.len() == GPU_MEANS.len() + GPU_DRAM_BYTES.len());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_one_choice_and_its_unit() {
        for name in GPU_MEANS.into_iter().chain(GPU_DRAM_BYTES) {
            let mut of = CHOICES.iter().filter(|choice| choice.counter == name);
            let (Some(choice), None) = (of.next(), of.next()) else { panic!("{name}") };
            let is_rate = name.ends_with("_bytes_per_second");
            assert_eq!(choice.factor == 1.0, is_rate, "{name}");
            let end = if is_rate { ".sum.per_second" } else { "_sustained_elapsed" };
            assert!(choice.metrics.iter().all(|metric| metric.ends_with(end)), "{name}");
        }
    }
}
