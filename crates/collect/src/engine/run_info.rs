//! Fills in the content of `run.json` while the job runs.

use super::measure_costs::CostEstimator;
use super::overhead_estimate::{overhead, parts};
use crate::output::destination::Output;
use crate::targets::ending::RecordedWork;
use tprof_sampler::cpu::Interruptions;
use tprof_trace::Recorded;
use tprof_trace::run::{LossInfo, RunInfo};

/// Updates the content of `run.json`.
pub fn refresh(
    info: &mut RunInfo,
    out: &Output,
    work: RecordedWork,
    interruptions: Option<&Interruptions>,
    prices: &CostEstimator,
) {
    let Output { files, processes, .. } = out;
    let losses = &processes.losses;
    let recorded = files.open.iter().map(|open| open.writer.recorded()).sum();
    Recorded { events: info.completeness.recorded, samples: info.completeness.samples } = recorded;
    info.completeness.losses = losses
        .iter()
        .map(|(what, why, count)| LossInfo { what: what.to_owned(), why: why.to_owned(), count })
        .collect();
    info.completeness.lost = losses.iter().map(|(_, _, count)| count).sum();
    info.completeness.blind = processes.blind_so_far();
    let cpu_ns = work.cpu_ns.max(processes.tree_cpu_ns);
    info.overhead = overhead(&work, cpu_ns, parts(&work, interruptions, prices));
    info.files = files
        .open
        .iter()
        .filter_map(|f| Some(f.path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    info.ranks = files.ranks();
    info.processes = processes.rows(&info.files);
}
