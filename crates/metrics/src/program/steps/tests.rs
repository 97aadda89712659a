//! Tests with steps on a host that runs ahead of its device.

use tprof_document::{Analysis, Cell, Options, RankContext, Table};
use tprof_facts::Clock;
use tprof_fixture::Fixture;
use tprof_rank::RankTrace;
use tprof_trace::model::{Kernel, Span, SpanKind};

use super::Steps;

/// Makes the tables of eight steps of 10 ns on the host. With `kernels`, each step has a kernel of
/// 100 ns that waits for the kernel before it.
fn tables(kernels: bool) -> Vec<Table> {
    let mut made = Fixture::new();
    for step in 0..8 {
        let row = Span {
            start_ns: 10 * step,
            duration_ns: 10,
            kind: SpanKind::Annotation,
            ..Span::default()
        };
        made.span(row, &format!("ProfilerStep#{step}"));
        if kernels {
            made.call(0, 10 * step + 1, 1, "cudaLaunchKernel", step);
            let (start_ns, correlation) = (5 + 100 * step, Some(step));
            let row = Kernel { start_ns, duration_ns: 100, correlation, ..Kernel::default() };
            made.kernel(row, "gemm");
        }
    }
    let file = made.finish();
    let options = Options { data: true, ..Options::default() };
    let rank = RankTrace::load(&file, Steps.needs(&options));
    let (label, clock) = ("rank 0".to_owned(), Clock::default());
    let file = "rank-0.tprof".to_owned();
    let at = RankContext { rank: Some(0), label, file, clock, machine: Default::default() };
    let judged = Steps.rank(&rank, &at, &options);
    Steps.join(vec![(at, judged)], &options).tables
}

fn cells(tables: &[Table], table: &str, key: &str) -> Vec<Cell> {
    let table = tables.iter().find(|one| one.key == table).unwrap();
    let at = table.columns.iter().position(|column| column.key == key).unwrap();
    table.rows.iter().map(|row| row[at].clone()).collect()
}

#[test]
fn steps_are_timed_on_the_device_and_host_times_have_own_columns() {
    let tables = tables(true);
    let of_rank = |key| cells(&tables, "step_times", key).remove(0);
    assert_eq!(of_rank("timed_on"), "device".into());
    assert_eq!((of_rank("median_ns"), of_rank("host_median_ns")), (100_u64.into(), 10_u64.into()));
    let times = cells(&tables, "steps", "duration_ns");
    // The first step begins when the host begins it, 5 ns before its kernel.
    assert_eq!(times[..2], [105_u64.into(), 100_u64.into()]);
    assert_eq!(cells(&tables, "steps", "start_ns")[2], 205_u64.into());
    assert_eq!(cells(&tables, "steps", "host_start_ns")[2], 20_u64.into());
    assert!(cells(&tables, "steps", "host_ns").iter().all(|cell| *cell == 10_u64.into()));
    assert_eq!(cells(&tables, "device_time_by_step", "idle_ns")[..2], [5_u64.into(), 0_u64.into()]);
}

/// The second rank has two processes with steps, such as a trainer and its evaluator.
#[test]
fn a_rank_with_two_processes_counts_once_among_the_ranks_of_a_step() {
    let options = Options::default();
    let parts = [("rank 0", 1), ("rank 1", 2)].map(|(label, processes)| {
        let mut made = Fixture::new();
        for step in 0..8 {
            for process in 0..processes {
                let row = Span {
                    start_ns: 10 * step,
                    duration_ns: 10,
                    kind: SpanKind::Annotation,
                    thread: process,
                    process,
                    ..Span::default()
                };
                made.span(row, &format!("ProfilerStep#{step}"));
            }
        }
        let file = made.finish();
        let rank = RankTrace::load(&file, Steps.needs(&options));
        let (label, file, clock) = (label.to_owned(), String::new(), Clock::default());
        let at = RankContext { rank: Some(0), label, file, clock, machine: Default::default() };
        let judged = Steps.rank(&rank, &at, &options);
        assert_eq!(judged.steps.len(), 8 * processes as usize);
        (at, judged)
    });
    let tables = Steps.join(parts.into(), &options).tables;
    let ranks = cells(&tables, "steps_over_ranks", "ranks");
    assert_eq!(ranks, vec![Cell::from(2_u64); 8]);
}

#[test]
fn steps_without_a_device_have_the_hosts_time() {
    let tables = tables(false);
    let of_rank = |key| cells(&tables, "step_times", key).remove(0);
    assert_eq!((of_rank("timed_on"), of_rank("median_ns")), ("host".into(), 10_u64.into()));
    assert_eq!(of_rank("host_median_ns"), Cell::Empty);
    let table = tables.iter().find(|table| table.key == "step_times").unwrap();
    assert!(table.columns.iter().all(|column| column.heading != "host median"));
}
