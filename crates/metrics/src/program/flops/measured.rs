//! Makes the table of `roofline` with the bytes that devices counted (`--gpu-metrics`).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tprof_document::{Cell, Column, RankContext, Table, Unit};
use tprof_rank::base::names::short;
use tprof_rank::base::sort_rows::SortRows;
use tprof_trace::model::counter::{GPU_SM_ACTIVE, GPU_TENSOR_ACTIVE};

use super::figures::{NO_BYTES, NO_PEAKS, per_second, tera, why_nothing_counts};
use super::sums::{KernelSums, RankFlops};
use crate::gpu::measured::AllMeasured;

const NO_SAMPLE: &str =
    "its runs are shorter than a sample, or other work ran on the GPU at the same time";
const NO_DRAM: &str = "the GPU's samples have no bytes of its memory";
const NO_TIME: &str = "no time was recorded for it";

/// One row for each kernel that is the longest of an operator's run: the operator's operations over
/// the bytes that the device moved while the kernel ran.
pub(super) fn table(parts: &[(RankContext, RankFlops)], measured: &AllMeasured) -> Table {
    let columns = vec![
        Column::new("time_ns", "time", Unit::Duration),
        Column::new("runs", "runs", Unit::Count),
        Column::data("flops_per_s", Unit::Number),
        Column::new("rate", "TFLOP/s", Unit::Text),
        Column::new("bytes_per_s", "bytes/s", Unit::BytesPerSecond),
        Column::new("dram_bytes_per_s", "DRAM bytes/s", Unit::BytesPerSecond),
        Column::new("intensity", "FLOP/B", Unit::Number),
        Column::new("dram_intensity", "FLOP/DRAM B", Unit::Number),
        Column::new("of_memory_peak", "of memory peak", Unit::Share),
        Column::new("sm_active", "SMs", Unit::Share),
        Column::new("tensor_active", "tensor", Unit::Share),
        Column::new("sampled_share", "sampled", Unit::Share),
        Column::data("kernel", Unit::Name),
        Column::new("short_kernel", "kernel", Unit::Name),
    ];
    let mut table = Table::new("measured", "Kernels by the bytes that the GPUs counted", columns)
        .about(
            "operations of the operators whose longest kernel it is; bytes/s: computed from their \
             sizes; DRAM: by samples that lie within the kernel while nothing else ran, so caches \
             and reads that repeat show here; sampled: share of the kernel's time",
        )
        .empty(match measured.shared.as_deref() {
            Some(why) if measured.kernels.is_empty() => why,
            _ if !measured.is_sampled => "the GPUs' counters were not sampled (--gpu-metrics)",
            _ => why_nothing_counts(parts),
        });
    let mut sums: BTreeMap<&str, KernelSums> = BTreeMap::new();
    for (name, more) in parts.iter().flat_map(|(_, part)| &part.kernels) {
        let none = KernelSums { bytes: Some(0), ..KernelSums::default() };
        let sum = sums.entry(name).or_insert(none);
        sum.runs += more.runs;
        sum.needed = sum.needed.saturating_add(more.needed);
        sum.bytes = sum.bytes.zip(more.bytes).and_then(|(a, b)| a.checked_add(b));
        sum.device_ns += more.device_ns;
    }
    let memory = parts.iter().find_map(|(_, part)| part.peaks?.memory);
    let mut rows: Vec<_> = sums.into_iter().filter(|_| measured.is_sampled).collect();
    rows.sort_rows_by_key(|(_, sum)| Reverse(sum.device_ns));
    for (name, sum) in rows {
        let kernel = measured.kernels.get(name).filter(|kernel| kernel.sampled_ns() > 0);
        let dram = kernel.and_then(|kernel| kernel.dram_bytes_per_second());
        let why = if kernel.is_some() { NO_DRAM } else { NO_SAMPLE };
        let rate = per_second(sum.needed, sum.device_ns);
        let bytes = sum.bytes.and_then(|bytes| per_second(bytes, sum.device_ns));
        let over = |bytes: Option<f64>| {
            rate.zip(bytes.filter(|bytes| *bytes > 0.0)).map(|(rate, bytes)| rate / bytes)
        };
        table.row(vec![
            sum.device_ns.into(),
            sum.runs.into(),
            Cell::known(rate, NO_TIME),
            tera(rate, NO_TIME),
            Cell::known(bytes, NO_BYTES),
            Cell::known(dram, why),
            Cell::known(over(bytes), NO_BYTES),
            Cell::known(over(dram), why),
            match dram {
                Some(dram) => Cell::known(memory.map(|memory| dram / memory), NO_PEAKS),
                None => Cell::missing(why),
            },
            Cell::known(kernel.and_then(|kernel| kernel.mean(GPU_SM_ACTIVE)), why),
            Cell::known(kernel.and_then(|kernel| kernel.mean(GPU_TENSOR_ACTIVE)), why),
            Cell::known(kernel.map(|kernel| kernel.sampled_share()), NO_SAMPLE),
            name.into(),
            short(name).into(),
        ]);
    }
    table
}
