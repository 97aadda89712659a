//! Joins the collectives that hooks recorded to the kernels that they launched.
//!
//! A hook records the collective's call, but not the kernel. CUPTI records the kernel and the call
//! that launched it. Both calls were on one thread, so the launch of an NCCL kernel belongs to the
//! collective's call around it. The clocks of the two are synchronized only to microseconds, so the
//! launch may also lie just outside of the call. Calls of one group end together and share the
//! group's kernels.

use std::collections::BTreeMap;

use tprof_facts::Class;
use tprof_trace::model::Collective;

use super::launches::Launches;
use super::rows::{HostSpan, Work};

/// The largest distance between a launch and the collective's call that it belongs to, ns.
const APART_NS: u64 = 1_000_000;

/// Calls of one thread that end together: their start and end, and the indices of their rows.
struct CallGroup {
    start_ns: u64,
    end_ns: u64,
    rows: Vec<usize>,
    /// The nearest launch so far: its distance in ns, and its correlation.
    nearest: Option<(u64, u64)>,
}

/// Gives each collective without a correlation the correlation of its kernel.
pub(super) fn join(
    collectives: &mut [Collective],
    calls: &[HostSpan],
    work: &[Work],
    launches: &Launches,
) {
    let mut threads: BTreeMap<(u32, u32), Vec<CallGroup>> = BTreeMap::new();
    for (at, row) in collectives.iter().enumerate() {
        let (None, Some(thread), Some(length)) = (row.correlation, row.thread, row.duration_ns)
        else {
            continue;
        };
        let end_ns = row.start_ns.saturating_add(length);
        let units = threads.entry((row.process, thread)).or_default();
        match units.last_mut().filter(|unit| unit.end_ns == end_ns) {
            Some(group) => group.rows.push(at),
            None => units.push(CallGroup {
                start_ns: row.start_ns,
                end_ns,
                rows: vec![at],
                nearest: None,
            }),
        }
    }
    if threads.is_empty() {
        return;
    }
    for (at, row) in work.iter().enumerate().filter(|(_, row)| row.class == Class::Communication) {
        let (Some(correlation), Some(call)) = (row.correlation.get(), launches.call_of(at)) else {
            continue;
        };
        let call = &calls[call];
        let Some(units) = threads.get_mut(&(call.process, call.thread)) else { continue };
        let middle_ns = call.start_ns + call.duration_ns / 2;
        let after = units.partition_point(|unit| unit.start_ns <= middle_ns);
        let distance = |unit: &CallGroup| {
            unit.start_ns.saturating_sub(middle_ns) + middle_ns.saturating_sub(unit.end_ns)
        };
        let near = after.saturating_sub(1)..units.len().min(after + 1);
        let Some(unit) = units[near].iter_mut().min_by_key(|unit| distance(unit)) else { continue };
        let far = distance(unit);
        // If a group launches several kernels, its operation is identified by the first one.
        if far <= APART_NS && unit.nearest.is_none_or(|(nearest, _)| far < nearest) {
            unit.nearest = Some((far, correlation));
        }
    }
    for unit in threads.into_values().flatten() {
        for at in unit.rows {
            collectives[at].correlation = unit.nearest.map(|(_, correlation)| correlation);
        }
    }
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{Collective, Kernel};

    use crate::rank::{Needs, RankTrace};

    #[test]
    fn calls_of_a_group_share_its_kernel_and_others_have_their_own() {
        let mut trace = Fixture::new();
        let mut call = |start_ns: u64, end_ns: u64| {
            trace.collectives.push(Collective {
                start_ns,
                duration_ns: Some(end_ns - start_ns),
                thread: Some(0),
                ..Collective::default()
            });
        };
        call(100_000, 110_000);
        // A group of two.
        call(200_000, 230_000);
        call(205_000, 230_000);
        // A call whose kernel was not recorded.
        call(9_000_000, 9_010_000);
        for (at, correlation, name) in [
            // The clock of this launch is off, so it appears 2 us before its call begins.
            (96_000, 1, "ncclDevKernel_Broadcast"),
            (150_000, 2, "gemm"),
            (226_000, 3, "ncclDevKernel_AllReduce"),
            (300_000, 4, "gemm"),
        ] {
            trace.call(0, at, 2_000, "cudaLaunchKernel", correlation);
            let correlation = Some(correlation);
            let start_ns = at + 50_000;
            trace.kernel(
                Kernel { start_ns, duration_ns: 10, correlation, ..Kernel::default() },
                name,
            );
        }
        let file = trace.finish();
        let rank = RankTrace::load(&file, Needs::WORK | Needs::CALLS | Needs::COLLECTIVES);
        let found: Vec<Option<u64>> = rank.collectives.iter().map(|row| row.correlation).collect();
        assert_eq!(found, [Some(1), Some(3), Some(3), None]);
    }
}
