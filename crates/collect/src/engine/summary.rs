//! The contents of `run.json` while the job runs.

use crate::os::sys;
use crate::out::output::Output;
use crate::targets::ending::Overhead;
use tprof_trace::Recorded;
use tprof_trace::run::{LossInfo, RunInfo};

/// CPU time from which on the overhead is given as a share.
const SHORTEST_CPU_NS: u64 = 50_000_000;

/// Brings `run.json`'s contents up to date.
pub fn refresh(info: &mut RunInfo, out: &Output, overhead: Overhead) {
    let Output { files, processes, .. } = out;
    let losses = &processes.losses;
    let Overhead { wait_ns, host_ns, cpu_ns } = overhead;
    let recorded = files.open.iter().map(|open| open.writer.recorded()).sum();
    Recorded { events: info.completeness.recorded, samples: info.completeness.samples } = recorded;
    info.completeness.losses = losses
        .iter()
        .map(|(what, why, count)| LossInfo { what: what.to_owned(), why: why.to_owned(), count })
        .collect();
    info.completeness.lost = losses.iter().map(|(_, _, count)| count).sum();
    info.completeness.blind = processes.blind_so_far();
    info.overhead.host_ns = Some(host_ns);
    info.overhead.wait_ns = wait_ns;
    info.overhead.collector_cpu_ns = sys::cpu_ns();
    info.overhead.estimate = true;
    let cpu_ns = cpu_ns.max(processes.tree_cpu_ns);
    info.overhead.job_cpu_ns = (cpu_ns > 0).then_some(cpu_ns);
    // CPU time of CPU time: waits take none. The kernel counts it in steps of 10 ms, so a
    // short job has no fraction.
    let share = host_ns as f64 / cpu_ns as f64;
    info.overhead.fraction = (cpu_ns >= SHORTEST_CPU_NS).then(|| share.min(1.0));
    info.files = files
        .open
        .iter()
        .filter_map(|f| Some(f.path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    info.ranks = files.ranks();
    info.processes = processes.rows(&info.files);
}
