//! Summarises the activity of a rank's devices.

use std::borrow::Cow;

use tprof_facts::copies::direction;
use tprof_metrics::gpu::breakdown::{self, DeviceTime, NO_WORK};
use tprof_metrics::gpu::overlap::ONLY_OUTSIDE;
use tprof_metrics::gpu::{bandwidth, kernels};
use tprof_rank::base::object::object;
use tprof_rank::base::reading::Reading;
use tprof_rank::{Class, RankTrace};

/// Number of kernels of a rank that the summary names.
const TOP: usize = 5;

/// The activity of a rank's devices; times are summed over devices.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Time of the steps on the devices; without steps, the time from the first work's start to the
    /// last one's end, ns.
    pub window_ns: u64,
    /// Number of steps in the window, on the device with the most; 0 if there are none.
    pub steps: u64,
    /// Share of the window in which something ran.
    pub busy_share: f64,
    /// Share of the window in which something computed.
    pub compute_share: f64,
    /// Share of the window in which something communicated and nothing computed.
    pub exposed_share: f64,
    /// Share of the window in which only copies or memsets ran.
    pub copies_share: f64,
    /// Share of the window in which nothing ran.
    pub idle_share: f64,
    /// Number of kernels that ran, including those outside of the steps.
    pub kernels: u64,
    /// Number of kernels that communicate.
    pub communication_kernels: u64,
    /// Time of the window in which something communicated, ns.
    pub communication_ns: u64,
    /// The part of `communication_ns` in which something computed too, as a share.
    pub hidden_share: Reading<f64>,
    /// Kernels with the longest sum of durations.
    pub top_kernels: Vec<TopKernel>,
    /// Copies and memsets by kind.
    pub copies: Vec<Copies>,
}
object! { Gpu {
    plain window_ns, plain steps, plain busy_share, plain compute_share, plain exposed_share,
    plain copies_share, plain idle_share, plain kernels, plain communication_kernels,
    plain communication_ns, reading hidden_share, plain top_kernels, plain copies,
} }

/// A kernel with one of the largest sums of time.
#[derive(Clone, Debug)]
pub struct TopKernel {
    /// Name of the kernel.
    pub name: String,
    /// Number of runs.
    pub count: u64,
    /// Sum of the durations, ns.
    pub total_ns: u64,
    /// The sum as a share of the sum over all kernels.
    pub share: f64,
}
object! { TopKernel { plain name, plain count, plain total_ns, plain share } }

/// The copies of one kind.
#[derive(Clone, Debug)]
pub struct Copies {
    /// The displayed kind of the copies.
    pub kind: &'static str,
    /// Number of copies.
    pub count: u64,
    /// Sum of their bytes.
    pub bytes: Reading<u64>,
    /// Time in which at least one of them ran, ns.
    pub busy_ns: u64,
}
object! { Copies { plain kind, plain count, reading bytes, plain busy_ns } }

/// Sums up the devices of a rank; missing if nothing ran.
pub fn of_rank(rank: &RankTrace<'_>) -> Reading<Gpu> {
    match rank.work.is_empty() {
        true => Reading::missing(NO_WORK),
        false => Reading::Is(of_work(rank)),
    }
}

fn of_work(rank: &RankTrace<'_>) -> Gpu {
    let times = breakdown::of_rank(rank);
    let sum = |of: fn(&DeviceTime) -> u64| times.iter().map(of).sum::<u64>();
    let window_ns = sum(|time| time.window_ns);
    let share = |part_ns: u64| part_ns as f64 / window_ns.max(1) as f64;
    let idle_ns = sum(|time| time.idle_ns);
    let (exposed_ns, hidden_ns) = (sum(|time| time.exposed_ns), sum(|time| time.overlapped_ns));
    let communication_ns = exposed_ns + hidden_ns;
    let is_judged = rank.is_judged();
    let kernels = || rank.work.iter().filter(|row| row.is_kernel());
    let communicates = kernels().filter(|row| row.class == Class::Communication).count();
    Gpu {
        window_ns,
        steps: times.iter().map(|time| time.steps as u64).max().unwrap_or(0),
        busy_share: share(window_ns - idle_ns),
        compute_share: share(sum(DeviceTime::computing_ns)),
        exposed_share: share(exposed_ns),
        copies_share: share(sum(|time| time.copies_ns)),
        idle_share: share(idle_ns),
        kernels: kernels().count() as u64,
        communication_kernels: communicates as u64,
        communication_ns,
        hidden_share: match communication_ns {
            0 if communicates > 0 => Reading::missing(ONLY_OUTSIDE),
            0 => Reading::missing("no communication kernel ran"),
            _ => Reading::Is(hidden_ns as f64 / communication_ns as f64),
        },
        top_kernels: top_kernels(rank, &is_judged),
        copies: bandwidth::of_rank(rank, false).kinds.iter().map(copies).collect(),
    }
}

fn top_kernels(rank: &RankTrace<'_>, is_judged: &[bool]) -> Vec<TopKernel> {
    let found = kernels::sums_of_rank(rank, |at| is_judged[at]);
    let all: u64 = found.iter().map(|(_, _, total_ns)| total_ns).sum();
    let top = |(name, count, total_ns): &(Cow<'_, str>, u64, u64)| TopKernel {
        name: name.to_string(),
        count: *count,
        total_ns: *total_ns,
        share: *total_ns as f64 / all.max(1) as f64,
    };
    found.iter().take(TOP).map(top).collect()
}

fn copies(row: &bandwidth::KindCopies) -> Copies {
    Copies {
        kind: direction(row.kind),
        count: row.count,
        bytes: row.bytes.map_or_else(|| Reading::missing(bandwidth::NO_BYTES), Reading::Is),
        busy_ns: row.busy_ns,
    }
}
