//! `get_potential_stragglers` as Holistic Trace Analysis 0.5.0 computes it.
//!
//! HTA looks only at NCCL kernels that take at least 1 % of a mean step, and keeps the last such
//! kernel of each rank, stream, step and name. It then chooses the stream and name whose durations
//! differ most between ranks. In each step, the two ranks whose kernel began last are potential
//! stragglers.

use std::collections::{BTreeMap, BTreeSet};

use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{RankTrace, step_at};
use tprof_trace::model::SpanKind;

/// Only kernels that take at least this share of a mean step count.
const LEAST_SHARE: f64 = 0.01;
/// Number of ranks that are named as potential stragglers.
const CANDIDATES: usize = 2;

/// The data that is kept of a rank.
#[derive(Clone, Debug, Default)]
pub(super) struct RankKernelTimes {
    /// NCCL kernels in steps, in order of start.
    kernels: Vec<Kernel>,
    /// Steps in which something ran.
    steps: BTreeSet<u64>,
    /// The first start and the last end of anything in these steps.
    extent: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct Kernel {
    stream: u64,
    step: u64,
    name: String,
    start_ns: u64,
    duration_ns: u64,
}

impl RankKernelTimes {
    /// Reads a rank with HTA's reading.
    pub fn of(rank: &RankTrace) -> RankKernelTimes {
        let steps = rank.steps();
        let mut found = RankKernelTimes::default();
        let mut extend = |step: Option<u32>, start_ns: u64, duration_ns: u64| {
            let number = steps[step? as usize].number;
            found.steps.insert(number);
            let (first, last) = found.extent.unwrap_or((u64::MAX, 0));
            found.extent = Some((first.min(start_ns), last.max(start_ns + duration_ns)));
            Some(number)
        };
        let spans = HOST_KINDS.into_iter().flat_map(|kind| rank.spans(kind)).chain(&rank.calls);
        for span in spans {
            let step = step_at(&steps, span.process, span.start_ns);
            extend(step, span.start_ns, span.duration_ns);
        }
        let mut kernels = Vec::new();
        for (at, work) in rank.work.iter().enumerate().filter(|(_, w)| rank.stream(w).stream > 0) {
            let Some(call) = rank.launches.call_of(at).map(|call| &rank.calls[call]) else {
                continue;
            };
            let step = step_at(&steps, call.process, call.start_ns);
            let Some(step) = extend(step, work.start_ns, work.duration_ns) else { continue };
            let name = rank.name(work.name);
            if name.starts_with("ncclKernel") && step > 0 {
                kernels.push(Kernel {
                    stream: rank.stream(work).stream,
                    step,
                    name: name.to_owned(),
                    start_ns: work.start_ns,
                    duration_ns: work.duration_ns,
                });
            }
        }
        found.kernels = kernels;
        found
    }
}

const HOST_KINDS: [SpanKind; 6] = [
    SpanKind::Operator,
    SpanKind::Annotation,
    SpanKind::Nvtx,
    SpanKind::Python,
    SpanKind::Overhead,
    SpanKind::Other,
];

/// The last long kernel of each rank, first by step and then by rank.
type LastKernels<'k> = BTreeMap<u64, BTreeMap<usize, &'k Kernel>>;

/// Returns the two ranks that are potential stragglers in most steps, each with the number of these
/// steps; `None` if no NCCL kernel is long enough.
pub(super) fn potential(ranks: &[&RankKernelTimes]) -> Option<Vec<(usize, u64)>> {
    let steps: BTreeSet<u64> = ranks.iter().flat_map(|rank| rank.steps.iter().copied()).collect();
    let first = ranks.iter().filter_map(|rank| rank.extent).map(|extent| extent.0).min()?;
    let last = ranks.iter().filter_map(|rank| rank.extent).map(|extent| extent.1).max()?;
    let step_ns = (last - first) as f64 / steps.len() as f64;
    // The last long kernels by stream and name.
    let mut lasts: BTreeMap<(u64, &str), LastKernels> = BTreeMap::new();
    for (rank, kernels) in ranks.iter().enumerate() {
        let long = |kernel: &&Kernel| kernel.duration_ns as f64 >= step_ns * LEAST_SHARE;
        for kernel in kernels.kernels.iter().filter(long) {
            let steps = lasts.entry((kernel.stream, &kernel.name)).or_default();
            steps.entry(kernel.step).or_default().insert(rank, kernel);
        }
    }
    let chosen = lasts.into_values().filter_map(|steps| Some((difference(&steps)?, steps)));
    let (_, steps) = chosen.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    for of_ranks in steps.values() {
        let mut starts: Vec<u64> = of_ranks.values().map(|kernel| kernel.start_ns).collect();
        starts.sort_by_key(|start| std::cmp::Reverse(*start));
        let threshold = *starts.get(CANDIDATES - 1)?;
        for (rank, kernel) in of_ranks {
            *counts.entry(*rank).or_default() += u64::from(kernel.start_ns >= threshold);
        }
    }
    let mut counts: Vec<(usize, u64)> = counts.into_iter().collect();
    counts.sort_rows_by_key(|(_, steps)| std::cmp::Reverse(*steps));
    counts.truncate(CANDIDATES);
    Some(counts)
}

/// Returns the mean over steps of the standard deviation of the ranks' durations.
fn difference(steps: &LastKernels) -> Option<f64> {
    let of_step = |ranks: &BTreeMap<usize, &Kernel>| {
        let times: Vec<f64> = ranks.values().map(|kernel| kernel.duration_ns as f64).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
        (times.len() > 1).then(|| (squares / (times.len() - 1) as f64).sqrt())
    };
    let all: Vec<f64> = steps.values().filter_map(of_step).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}
