//! Tests properties that every rule has on any trace.

use proptest::prelude::*;
use tprof_trace::TraceFile;
use tprof_trace::model::{CopyKind, MemoryKind};

use super::super::join::joined;
use super::super::outcome::RankFindings;
use super::job::{Job, MS, US, judged};
use crate::rules::stragglers;

/// A piece of work or a call of the job: kind, start and length.
type Row = (u8, u64, u64);

const KERNELS: [&str; 5] = [
    "busy",
    "volta_sgemm_128x32_nt",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "void at::native::elementwise_kernel<128>",
    "void cudnn::ops::nchwToNhwcKernel<float>",
];

fn file(rows: &[Row], steps: u64) -> TraceFile {
    let mut job = Job::new(steps, 20 * MS);
    for &(what, at, long) in rows {
        let (start, end) = (at * 100 * US, (at + long) * 100 * US);
        match what {
            0..5 => job.kernel(start / 2, start, end, KERNELS[what as usize]),
            5 => job.copy(
                start,
                end - start,
                CopyKind::DeviceToHost,
                MemoryKind::Pageable,
                "cudaMemcpyAsync",
            ),
            6 => job.copy(
                start,
                end - start,
                CopyKind::HostToDevice,
                MemoryKind::Pinned,
                "cudaMemcpy",
            ),
            7 => job.call(start, end - start, "cudaStreamSynchronize"),
            8 => job.call(start, end - start, "cudaMalloc"),
            9 => job.call(start, end - start, "cuModuleLoadData"),
            _ => job.range(start, end - start, "data_load"),
        }
    }
    job.fixture.finish()
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec((0_u8..11, 0_u64..500, 0_u64..60), 0..40)
}

/// Returns the verdicts on a rank in a form that doesn't depend on any order.
fn verdicts(rank: &RankFindings) -> Vec<String> {
    let outcomes = rank.outcomes.iter();
    let mut verdicts: Vec<String> = outcomes
        .map(|outcome| {
            let found = outcome.found.iter().map(|(finding, places)| {
                (finding.subject.clone(), finding.bound_ns, finding.places, places.clone())
            });
            format!("{} {:?} {:?}", outcome.rule, found.collect::<Vec<_>>(), outcome.no_problem)
        })
        .collect();
    verdicts.sort();
    verdicts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bound_exceeds_the_judged_time(rows in rows(), steps in 0_u64..3) {
        let rank = judged(&file(&rows, steps), "rank 0");
        for outcome in &rank.outcomes {
            for (finding, _) in &outcome.found {
                // Time that is spent once lies outside of the window and is a share of the job's
                // life, so its limit is `of_ns`.
                let of_ns = finding.of_ns.unwrap_or(rank.window_ns);
                prop_assert!(finding.bound_ns <= of_ns, "{} {finding:?}", outcome.rule);
                prop_assert!(finding.keep || finding.bound_ns as f64 >= 0.01 * rank.window_ns as f64);
            }
        }
    }

    #[test]
    fn the_order_of_rows_changes_nothing(rows in rows(), turn in 0_usize..40) {
        let one = judged(&file(&rows, 2), "rank 0");
        let mut turned = rows.clone();
        turned.rotate_left(turn.min(rows.len()));
        let other = judged(&file(&turned, 2), "rank 0");
        prop_assert_eq!(verdicts(&one), verdicts(&other));
    }

    #[test]
    fn the_order_of_ranks_changes_no_finding(
        all in prop::collection::vec(rows(), 2..4), turn in 0_usize..4,
    ) {
        let mut ranks: Vec<RankFindings> = all
            .iter()
            .enumerate()
            .map(|(at, rows)| judged(&file(rows, 2), &format!("rank {at}")))
            .collect();
        let mut turned = ranks.clone();
        turned.rotate_left(turn % all.len());
        stragglers::judge(&mut ranks);
        stragglers::judge(&mut turned);
        let summed = |ranks: &[RankFindings]| {
            let found = joined(ranks);
            let one = |j: &super::super::join::JoinedFinding<'_>| {
                (j.rule, j.finding.subject.clone(), j.bound_ns(), j.severity(), j.ranks.len())
            };
            let mut rows: Vec<_> = found.iter().map(one).collect();
            // If several ranks have the same delay, their order decides which one Stragglers names.
            rows.retain(|row| row.0 != "Stragglers");
            rows
        };
        prop_assert_eq!(summed(&ranks), summed(&turned));
    }
}
