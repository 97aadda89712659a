use tprof_fixture::Fixture;
use tprof_trace::model::Kernel;

use super::*;
use crate::gpu::breakdown::NO_WORK;

fn kernel(start_ns: u64, end_ns: u64, correlation: Option<u64>) -> Kernel {
    Kernel { start_ns, duration_ns: end_ns - start_ns, correlation, ..Kernel::default() }
}

#[test]
fn the_cause_of_a_gap_is_what_the_next_kernel_waited_for() {
    let mut made = Fixture::new();
    made.call(0, 0, 10, "cudaLaunchKernel", 1);
    made.call(0, 150_000, 10, "cudaLaunchKernel", 2);
    made.call(0, 150_010, 10, "cudaLaunchKernel", 3);
    made.call(0, 150_020, 10, "cudaLaunchKernel", 4);
    let runs = [
        (100_000, 120_000, Some(1)),
        // Launched 30 us after the stream fell idle.
        (160_000, 170_000, Some(2)),
        // Launched long before the stream fell idle; they begin 5 us and 80 us after that.
        (175_000, 180_000, Some(3)),
        (260_000, 300_000, Some(4)),
        // This kernel begins before the kernel before it has ended. So there is no gap, and the
        // next gap begins at the later of the two ends.
        (290_000, 295_000, None),
        (301_000, 302_000, None),
    ];
    for (start, end, correlation) in runs {
        made.kernel(kernel(start, end, correlation), "k");
    }
    let file = made.finish();
    let found = of_rank(&RankTrace::load(&file, Needs::WORK | Needs::CALLS));
    assert_eq!(found.streams.len(), 1);
    assert_eq!(found.streams[0].idle_ns, [40_000, 5_000, 80_000, 1_000]);
    assert_eq!(found.streams[0].busy_ns, 20_000 + 10_000 + 5_000 + 40_000 + 1_000);
    let longest = &found.longest[0];
    assert_eq!(
        (longest.start_ns, longest.length_ns, longest.cause),
        (180_000, 80_000, Cause::Other)
    );
}

#[test]
fn busy_and_idle_time_sum_to_a_streams_time() {
    let mut made = Fixture::new();
    for (start, end) in [(10, 40), (20, 30), (40, 60), (100, 101), (90, 95)] {
        made.kernel(kernel(start, end, None), "k");
    }
    let file = made.finish();
    let found = of_rank(&RankTrace::load(&file, Needs::WORK | Needs::CALLS));
    let row = &found.streams[0];
    assert_eq!(row.busy_ns as i64 + row.total_ns(), 101 - 10);
}

#[test]
fn two_devices_have_a_device_column_and_an_empty_table_a_reason() {
    let idle_of = |devices: &[u32]| {
        let mut made = Fixture::new();
        for &device in devices {
            made.kernel(Kernel { device, stream: 20, ..kernel(10, 40, None) }, "k");
        }
        let file = made.finish();
        let found = of_rank(&RankTrace::load(&file, Needs::WORK | Needs::CALLS));
        let (label, file) = ("rank 0".to_owned(), String::new());
        let at = RankContext {
            rank: Some(0),
            label,
            file,
            clock: tprof_facts::Clock::default(),
            machine: Default::default(),
        };
        tables::body(&[(at, found)]).tables
    };
    let heading = |tables: &[tprof_document::Table]| {
        let column = tables[0].columns.iter().find(|column| column.key == "device");
        column.map(|column| column.heading)
    };
    let (one, two) = (idle_of(&[0]), idle_of(&[0, 1]));
    assert_eq!((heading(&one), heading(&two)), (Some(""), Some("device")));
    assert_eq!(two[0].rows.len(), 2);
    // The device may still be idle before, after and between the work of the two streams, so the
    // text speaks only of streams.
    assert_eq!(two[1].empty, "no stream was idle between two of its own kernels and copies");
    assert_eq!(idle_of(&[])[1].empty, NO_WORK);
}
