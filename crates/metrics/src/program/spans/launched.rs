//! Sums the device work that was launched within spans.

use tprof_rank::base::reading::Reading;
use tprof_rank::{HostSpan, RankTrace};
use tprof_trace::model::SpanKind;

use super::find::OwnSpan;
use super::time::ANY_THREAD;
use crate::gpu::breakdown::NO_WORK;
use crate::program::annotations::caused_by;

const NO_LAUNCHES: &str = "no call of the trace is joined to the devices' work";

/// The kernels, copies and memsets that spans launched.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LaunchedWork {
    pub kernels: Reading<u64>,
    /// Time in which at least one of these kernels, copies and memsets ran, ns.
    pub device_ns: Reading<u64>,
}

impl LaunchedWork {
    /// Returns the sum over zero spans.
    pub fn none() -> LaunchedWork {
        LaunchedWork { kernels: Reading::Is(0), device_ns: Reading::Is(0) }
    }

    fn missing(why: &str) -> LaunchedWork {
        LaunchedWork { kernels: Reading::missing(why), device_ns: Reading::missing(why) }
    }

    /// Returns the sum of the two.
    pub fn plus(self, other: LaunchedWork) -> LaunchedWork {
        LaunchedWork {
            kernels: self.kernels.plus(other.kernels),
            device_ns: self.device_ns.plus(other.device_ns),
        }
    }
}

/// Returns the work launched within the spans of each group. A span without a group has `None` in
/// `group_of`.
pub(super) fn of_groups(
    rank: &RankTrace<'_>,
    spans: &[OwnSpan],
    group_of: &[Option<u32>],
    count: usize,
) -> Vec<LaunchedWork> {
    let why = match (rank.work.is_empty(), rank.calls.is_empty()) {
        (true, _) => Some(NO_WORK),
        (_, true) => Some(NO_LAUNCHES),
        _ => None,
    };
    if let Some(why) = why {
        return vec![LaunchedWork::missing(why); count];
    }
    let on_thread = spans.iter().zip(group_of).filter(|(span, _)| !span.any_thread);
    // Each row has the number of its group as its name, so that its effects are added up by group.
    let rows: Vec<HostSpan> =
        on_thread.filter_map(|(span, group)| Some(row(span, (*group)?))).collect();
    let caused = caused_by(rank, rows.iter().collect(), |row| row.name.0);
    let of = |group: u32| match caused.get(&group) {
        Some(caused) => LaunchedWork {
            kernels: Reading::Is(caused.kernels),
            device_ns: Reading::Is(caused.busy_ns),
        },
        None => LaunchedWork::missing(ANY_THREAD),
    };
    (0..count as u32).map(of).collect()
}

fn row(span: &OwnSpan, group: u32) -> HostSpan {
    HostSpan {
        start_ns: span.row.start_ns,
        duration_ns: span.row.duration_ns,
        process: span.row.process,
        thread: span.row.thread,
        name: tprof_trace::model::NameId(group),
        kind: SpanKind::Annotation,
        ..HostSpan::default()
    }
}
