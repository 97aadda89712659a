use tprof_document::{Cell, Table, Value};
use tprof_facts::Clock;
use tprof_facts::flops::peaks::Peaks;
use tprof_fixture::Fixture;
use tprof_trace::TraceFile;
use tprof_trace::model::{
    CopyKind, Counter, Device, Kernel, MemoryCopy, NameId, Property, Span, SpanKind,
};

use super::*;

const MM: &str = r#"{"Input Dims":[[64,32],[32,16]],"Input type":["float","float"]}"#;
const LINEAR: &str = r#"{"Input Dims":[[64,32],[16,32]],"Input type":["float","float"]}"#;
const ADD: &str = r#"{"Input Dims":[[64,16],[16]],"Input type":["float","float"]}"#;
/// Operations of the matrix product that the tests use: 2 · 64 · 32 · 16.
const PRODUCT: u64 = 65_536;
const NODE: &str = "autograd::engine::evaluate_function: MmBackward0";

fn operator(made: &mut Fixture, thread: u32, [start, end]: [u64; 2], name: &str, args: &str) {
    numbered(made, thread, [start, end], name, args, None);
}

fn numbered(
    made: &mut Fixture,
    thread: u32,
    [start_ns, end]: [u64; 2],
    name: &str,
    args: &str,
    sequence: Option<u64>,
) {
    let args = if args.is_empty() { NameId::default() } else { made.name(args) };
    let duration_ns = end - start_ns;
    let kind = SpanKind::Operator;
    let row = Span { start_ns, duration_ns, thread, kind, args, sequence, ..Span::default() };
    made.span(row, name);
}

fn range(made: &mut Fixture, [start_ns, end]: [u64; 2], name: &str) {
    let kind = SpanKind::Annotation;
    made.span(Span { start_ns, duration_ns: end - start_ns, kind, ..Span::default() }, name);
}

fn launched(made: &mut Fixture, at: u64, correlation: u64, duration_ns: u64, name: &str) {
    made.call(0, at, 10, "cudaLaunchKernel", correlation);
    let start_ns = 100_000 + at;
    let correlation = Some(correlation);
    made.kernel(Kernel { start_ns, duration_ns, correlation, ..Kernel::default() }, name);
}

fn device(made: &mut Fixture, name: &str) {
    let name = made.name(name);
    made.writer.device(&Device { name, ..Device::default() });
}

fn at() -> RankContext {
    RankContext {
        rank: Some(0),
        label: "rank 0".to_owned(),
        file: "rank-0.tprof".to_owned(),
        clock: Clock::default(),
        machine: Default::default(),
    }
}

fn counted(file: &TraceFile, options: &Options) -> RankFlops {
    per_rank::of_rank(&RankTrace::load(file, needs()), &at(), options)
}

fn read(file: &TraceFile, options: &Options) -> [Vec<Table>; 2] {
    let part = counted(file, options);
    let flops = tables::body(&[(at(), part.clone())]).tables;
    [flops, roofline::body(&[(at(), part)], options).tables]
}

/// Returns a cell of a table by row and key.
fn cell(tables: &[Table], table: &str, row: usize, key: &str) -> Cell {
    let table = tables.iter().find(|one| one.key == table).unwrap();
    let column = table.columns.iter().position(|column| column.key == key).unwrap();
    table.rows[row][column].clone()
}

fn rows(tables: &[Table], table: &str, key: &str) -> Vec<Value> {
    let of = tables.iter().find(|one| one.key == table).unwrap();
    (0..of.rows.len()).map(|row| cell(tables, table, row, key).value().unwrap().clone()).collect()
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

#[test]
fn an_operation_belongs_to_the_innermost_operator_that_counts() {
    let mut made = Fixture::new();
    operator(&mut made, 0, [0, 1000], "aten::linear", LINEAR);
    operator(&mut made, 0, [100, 200], "aten::t", ADD);
    operator(&mut made, 0, [300, 900], "aten::mm", MM);
    // The copy before the product also counts, but only with bytes, not with operations.
    let copy = r#"{"Input Dims":[[64,32],[64,32]],"Input type":["float","float"]}"#;
    operator(&mut made, 0, [350, 400], "aten::copy_", copy);
    // The inner operator's sizes don't fit its formula, so the operator around it counts.
    operator(&mut made, 0, [2000, 3000], "aten::linear", LINEAR);
    let unfit = r#"{"Input Dims":[[64,32],[16,32]],"Input type":["float","float"]}"#;
    operator(&mut made, 0, [2100, 2900], "aten::mm", unfit);
    let file = made.finish();
    let part = counted(&file, &Options::default());
    let mut found: Vec<(&str, u64, u64, u64)> = (part.rows.iter())
        .map(|(key, row)| (&*key.operator, row.runs, row.work.flops, row.host_ns))
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("aten::copy_", 1, 0, 50),
            ("aten::linear", 1, PRODUCT, 1000),
            ("aten::mm", 1, PRODUCT, 550),
        ]
    );
    assert_eq!((part.all.flops, part.all.runs), (2 * PRODUCT, 3));
    assert!(part.uncounted.is_empty(), "a counted operator contains it: {:?}", part.uncounted);
}

#[test]
fn kernels_belong_to_the_counted_operator_around_their_launch() {
    let mut made = Fixture::new();
    device(&mut made, "Tesla V100-SXM2-32GB");
    operator(&mut made, 0, [0, 1000], "aten::mm", MM);
    launched(&mut made, 100, 1, 3000, "volta_sgemm_32x32");
    launched(&mut made, 200, 2, 500, "splitK");
    operator(&mut made, 0, [300, 500], "aten::empty", "");
    launched(&mut made, 350, 3, 500, "memset");
    operator(&mut made, 0, [2000, 2500], "mylib::fused", ADD);
    launched(&mut made, 2100, 4, 700, "fused");
    launched(&mut made, 2600, 5, 900, "alone");
    let file = made.finish();
    let [flops, roofline] = read(&file, &Options::default());
    assert_eq!(cell(&flops, "operators", 0, "device_ns"), 4000_u64.into());
    assert_eq!(cell(&flops, "operators", 0, "flops_per_s"), (PRODUCT as f64 / 4e-6).into());
    assert_eq!(cell(&flops, "operators", 0, "kernel"), "volta_sgemm_32x32".into());
    assert_eq!(rows(&flops, "kernels", "kernel"), [text("volta_sgemm_32x32")]);
    assert_eq!(rows(&flops, "uncounted", "operator"), [text("mylib::fused")]);
    assert_eq!(cell(&flops, "uncounted", 0, "device_ns"), 700_u64.into());
    assert_eq!(cell(&flops, "uncounted", 0, "runs"), 1_u64.into());
    // 65,536 / 15.7e12 s for the operations are less than (64 · 32 + 32 · 16 + 64 · 16) · 4 / 900e9
    // s for the bytes.
    let least = 14_336.0 / 900.0;
    let Cell::Is(Value::Float(of_roof)) = cell(&roofline, "roofline", 0, "of_roof") else {
        panic!("{roofline:?}")
    };
    assert!((of_roof - least / 4000.0).abs() < 1e-9, "{of_roof}");
    assert_eq!(cell(&roofline, "roofline", 0, "bound"), "memory".into());
    assert_eq!(rows(&roofline, "peaks", "peak"), [text("fp32")]);
    let part = counted(&file, &Options::default());
    assert_eq!(part.unowned, (1, 900));
}

#[test]
fn measured_bounds_take_precedence_over_modelled_ones() {
    let mut made = Fixture::new();
    device(&mut made, "NVIDIA A100-SXM4-40GB");
    // The host takes longer to launch this run than the device takes to execute it.
    operator(&mut made, 0, [0, 9000], "aten::mm", MM);
    launched(&mut made, 100, 1, 3000, "gemm");
    let large =
        r#"{"Input Dims":[[4096,4096],[4096,4096]],"Input type":["c10::Half","c10::Half"]}"#;
    operator(&mut made, 0, [10_000, 11_000], "aten::mm", large);
    launched(&mut made, 10_100, 2, 900_000, "gemm");
    let copy = r#"{"Input Dims":[[64],[64]],"Input type":["float","float"]}"#;
    operator(&mut made, 0, [12_000, 12_100], "aten::copy_", copy);
    made.call(0, 12_010, 10, "cudaMemcpyAsync", 3);
    let kind = CopyKind::HostToDevice;
    let (start_ns, correlation) = (2_000_000, Some(3));
    made.copy(
        MemoryCopy { start_ns, duration_ns: 5000, kind, correlation, ..MemoryCopy::default() },
        "",
    );
    let file = made.finish();
    let [_, roofline] = read(&file, &Options::default());
    let bounds: Vec<(Value, Value)> = rows(&roofline, "roofline", "operator")
        .into_iter()
        .zip(rows(&roofline, "roofline", "bound"))
        .collect();
    let wanted = [("aten::mm", "compute"), ("aten::copy_", "bus"), ("aten::mm", "launch")];
    assert_eq!(bounds, wanted.map(|(operator, bound)| (text(operator), text(bound))));
    assert_eq!(cell(&roofline, "roofline", 0, "peak"), "fp16".into());
    assert!(matches!(cell(&roofline, "roofline", 1, "of_roof"), Cell::Missing(_)));
}

#[test]
fn a_device_without_peaks_has_rates_and_no_shares() {
    let mut made = Fixture::new();
    device(&mut made, "AMD Radeon Graphics");
    operator(&mut made, 0, [0, 1000], "aten::mm", MM);
    launched(&mut made, 100, 1, 4000, "Cijk_Alik");
    let file = made.finish();
    let none = roofline::body(&[(at(), counted(&file, &Options::default()))], &Options::default());
    assert!(none.notes.iter().any(|note| note.contains("AMD Radeon Graphics")), "{:?}", none.notes);
    assert!(matches!(cell(&none.tables, "roofline", 0, "of_roof"), Cell::Missing(_)));
    assert_eq!(cell(&none.tables, "roofline", 0, "flops_per_s"), (PRODUCT as f64 / 4e-6).into());
    let peaks = Some(Peaks::parse("fp32=1T,memory=1T").unwrap());
    let given = Options { peaks, ..Options::default() };
    let [_, roofline] = read(&file, &given);
    assert_eq!(cell(&roofline, "roofline", 0, "of_roof"), (65.536 / 4.0 / 1000.0).into());
}

#[test]
fn without_a_device_operators_are_measured_by_host_time() {
    let mut made = Fixture::new();
    operator(&mut made, 0, [0, 4000], "aten::mm", MM);
    range(&mut made, [0, 10_000], "ProfilerStep#7");
    let file = made.finish();
    let peaks = Some(Peaks::parse("fp32=32.768G,memory=100G").unwrap());
    let [flops, roofline] = read(&file, &Options { peaks, ..Options::default() });
    assert_eq!(cell(&roofline, "roofline", 0, "of_roof"), 0.5.into());
    assert_eq!(cell(&roofline, "roofline", 0, "on"), "host".into());
    assert_eq!(cell(&flops, "steps", 0, "step"), 7_u64.into());
    assert_eq!(cell(&flops, "steps", 0, "mfu"), 0.2.into());
    assert_eq!(cell(&flops, "steps", 0, "flops"), PRODUCT.into());
    let [flops, _] = read(&file, &Options::default());
    assert!(matches!(cell(&flops, "steps", 0, "mfu"), Cell::Missing(_)));
}

/// A forward pass of two products, and its backward pass, which recomputes the second product.
fn checkpointed(made: &mut Fixture) {
    range(made, [0, 3000], "nn.Module: Net (Net)");
    range(made, [100, 1000], "nn.Module: Net.first (Linear)");
    numbered(made, 0, [200, 900], "aten::mm", MM, Some(1));
    range(made, [1100, 2000], "nn.Module: Net.second (Linear)");
    numbered(made, 0, [1200, 1900], "aten::mm", MM, Some(2));
    // The function that computes the gradients of the second product first recomputes the product.
    numbered(made, 1, [5000, 9000], NODE, "", Some(2));
    numbered(made, 1, [5100, 8900], "MmBackward0", "", Some(2));
    numbered(made, 1, [5200, 6000], "aten::linear", LINEAR, Some(40));
    numbered(made, 1, [5300, 5900], "aten::mm", MM, Some(41));
    operator(made, 1, [7000, 8000], "aten::mm", MM);
    numbered(made, 1, [10_000, 12_000], NODE, "", Some(1));
    numbered(made, 1, [10_100, 11_900], "MmBackward0", "", Some(1));
    operator(made, 1, [10_200, 11_000], "aten::mm", MM);
    range(made, [0, 20_000], "ProfilerStep#1");
}

#[test]
fn recomputed_work_counts_for_the_hardware_but_not_for_the_model() {
    let mut made = Fixture::new();
    checkpointed(&mut made);
    let file = made.finish();
    let peaks = Some(Peaks::parse("fp32=1T,memory=1T").unwrap());
    let [flops, _] = read(&file, &Options { peaks, ..Options::default() });
    assert_eq!(cell(&flops, "ranks", 0, "flops"), (5 * PRODUCT).into());
    assert_eq!(cell(&flops, "ranks", 0, "recomputed_flops"), PRODUCT.into());
    let [mfu, hfu] = ["mfu", "hfu"].map(|key| match cell(&flops, "steps", 0, key) {
        Cell::Is(Value::Float(share)) => share,
        other => panic!("{other:?}"),
    });
    assert!((mfu / hfu - 0.8).abs() < 1e-9, "{mfu} {hfu}");
    assert_eq!(cell(&flops, "operators", 0, "recomputed_runs"), 1_u64.into());
}

#[test]
fn gradients_of_gradients_are_not_recomputed() {
    let mut made = Fixture::new();
    numbered(&mut made, 0, [0, 900], "aten::mm", MM, Some(1));
    // All outermost operators of the function have numbers, so nothing is recomputed. The inner
    // operator without a number does not matter.
    numbered(&mut made, 1, [5000, 9000], NODE, "", Some(1));
    numbered(&mut made, 1, [5100, 8900], "MmBackward0", "", Some(1));
    numbered(&mut made, 1, [5300, 5900], "aten::mm", MM, Some(41));
    operator(&mut made, 1, [5400, 5500], "aten::resolve_conj", ADD);
    let file = made.finish();
    let part = counted(&file, &Options::default());
    assert_eq!((part.all.flops, part.all.recomputed), (2 * PRODUCT, 0));
}

#[test]
fn backward_operators_belong_to_the_module_of_their_forward_one() {
    let mut made = Fixture::new();
    checkpointed(&mut made);
    let file = made.finish();
    let [flops, _] = read(&file, &Options::default());
    let found: Vec<(Value, Value, Value, Value)> = rows(&flops, "modules", "path")
        .into_iter()
        .zip(rows(&flops, "modules", "flops"))
        .zip(rows(&flops, "modules", "backward_flops"))
        .zip(rows(&flops, "modules", "own_flops"))
        .map(|(((path, all), backward), own)| (path, all, backward, own))
        .collect();
    let row = |path: &str, all: u64, backward: u64, own: u64| {
        let times = |n: u64| Value::Unsigned(n * PRODUCT);
        (text(path), times(all), times(backward), times(own))
    };
    // This trace has no ranges of modules for the recomputed forward pass.
    assert_eq!(found, [row("Net", 5, 3, 0), row("Net.second", 3, 2, 3), row("Net.first", 2, 1, 2)]);
}

#[test]
fn without_sizes_the_report_says_how_to_record_them() {
    let mut made = Fixture::new();
    operator(&mut made, 0, [0, 1000], "aten::mm", "");
    let file = made.finish();
    let [flops, roofline] = read(&file, &Options::default());
    for (tables, key) in [(&flops, "operators"), (&roofline, "roofline")] {
        let table = tables.iter().find(|table| table.key == key).unwrap();
        assert!(table.rows.is_empty() && table.empty.contains("--operators shapes"));
    }
    assert_eq!(cell(&flops, "uncounted", 0, "why"), "sizes of its inputs were not recorded".into());
}

#[test]
fn rates_of_operators_and_steps_are_available_to_other_reports() {
    let mut made = Fixture::new();
    device(&mut made, "NVIDIA H200");
    range(&mut made, [0, 100_000], "ProfilerStep#3");
    operator(&mut made, 0, [0, 50], "aten::linear", LINEAR);
    operator(&mut made, 0, [10, 40], "aten::mm", MM);
    launched(&mut made, 20, 1, 1_000, "gemm");
    operator(&mut made, 0, [100, 140], "aten::mm", MM);
    launched(&mut made, 120, 2, 3_000, "gemm");
    let file = made.finish();
    let rank = RankTrace::load(&file, needs());
    let rates = operator_rates(&rank, &at(), None);
    assert_eq!(rates.len(), 1, "only the inner product counts, not the operator that calls it");
    let row = rate_cells(rates.values().next());
    let flops_per_s = 2.0 * PRODUCT as f64 / 4_000.0 * 1e9;
    assert_eq!((&row[0], &row[3]), (&flops_per_s.into(), &"memory".into()));
    // Two runs move 2,048 + 512 + 1,024 elements of four bytes each, at 4.8 TB/s.
    let least_ns = 2.0 * 4.0 * 3_584.0 / 4_800.0;
    let of_roof = row[4].value().and_then(Value::number).unwrap();
    assert!((of_roof - least_ns / 4_000.0).abs() < 1e-9, "{of_roof}");
    assert!(matches!(rate_cells(None)[0], Cell::Missing(_)));
    let [step] = &use_of_steps(&rank, &Options::default())[..] else { panic!() };
    // The step ends with its last kernel.
    let mfu = 2.0 * PRODUCT as f64 / 66.9e12 / 103_120e-9;
    assert_eq!(step.needed, 2 * PRODUCT);
    assert!((step.mfu.unwrap() - mfu).abs() < 1e-12 && step.mfu == step.hfu);
}

#[test]
fn the_utilization_of_a_rank_uses_the_device_time_of_its_steps() {
    let mut made = Fixture::new();
    device(&mut made, "NVIDIA H200");
    // A warm-up step, and two steps of 100 ns on the host, in which the device works for 3 and 4
    // us.
    range(&mut made, [1_000, 1_100], "ProfilerStep#1");
    range(&mut made, [1_100, 1_200], "ProfilerStep#2");
    let kernels = [(0, 10_000, 500), (1_000, 20_000, 3_000), (1_100, 23_000, 4_000)];
    for ((at, start_ns, duration_ns), number) in kernels.into_iter().zip(1..) {
        operator(&mut made, 0, [at, at + 50], "aten::mm", MM);
        made.call(0, at + 10, 10, "cudaLaunchKernel", number);
        let correlation = Some(number);
        made.kernel(Kernel { start_ns, duration_ns, correlation, ..Kernel::default() }, "gemm");
    }
    let [tables, _] = read(&made.finish(), &Options::default());
    let number = |key| cell(&tables, "ranks", 0, key).value().and_then(Value::number).unwrap();
    // The device finished the warm-up step at 10,500.
    assert_eq!(number("window_ns"), 12_500.0 + 4_000.0);
    assert_eq!(number("needed_flops"), 3.0 * PRODUCT as f64);
    assert_eq!(number("window_needed_flops"), 2.0 * PRODUCT as f64);
    let mfu = 2.0 * PRODUCT as f64 / 66.9e12 / 16_500e-9;
    assert!((number("mfu") - mfu).abs() < 1e-12);
    assert_eq!(rows(&tables, "steps", "duration_ns"), [12_500_u64, 4_000].map(Value::from));
}

/// Counts the bytes of device 0's memory over samples of 1 us: each value holds for one.
fn count_bytes(made: &mut Fixture, begin_ns: u64, values: &[f64]) {
    let uuid = made.name("GPU-1");
    let name = made.name("Tesla V100-SXM2-16GB");
    made.writer.device(&Device { name, uuid, ..Device::default() });
    let until_ns = begin_ns + 1000 * values.len() as u64;
    let facts = [
        ("nvml", r#"{"every_ms":500,"devices":[{"index":0,"uuid":"GPU-1"}]}"#.to_owned()),
        (
            "gpu_metrics",
            format!(
                r#"{{"interval_ns":1000,"devices":[{{"device":"GPU-1","clock_width_ns":50,"since_ns":{begin_ns},
                "until_ns":{until_ns},"metrics":{{"gpu_dram_read_bytes_per_second":"a",
                "gpu_dram_written_bytes_per_second":"b"}}}}]}}"#
            ),
        ),
    ];
    for (key, value) in facts {
        let (key, value) = (made.name(key), made.name(&value));
        made.writer.property(Property { key, value });
    }
    for (at, value) in values.iter().chain([&f64::NAN]).enumerate() {
        let time_ns = begin_ns + 1000 * at as u64;
        for name in ["gpu_dram_read_bytes_per_second", "gpu_dram_written_bytes_per_second"] {
            let (name, device) = (made.name(name), Some(0));
            let row = Counter { time_ns, process: None, device, name, value: *value };
            made.writer.counter(row);
        }
    }
}

#[test]
fn a_roofline_has_the_bytes_that_the_device_counted() {
    let mut made = Fixture::new();
    // The kernel runs from 100,100 to 104,100: three samples lie within it, and two cross its ends.
    count_bytes(&mut made, 99_600, &[9e9, 1e9, 2e9, 3e9, 9e9]);
    operator(&mut made, 0, [0, 1000], "aten::mm", MM);
    launched(&mut made, 100, 1, 4000, "volta_sgemm_32x32");
    let file = made.finish();
    let [_, roofline] = read(&file, &Options::default());
    assert_eq!(rows(&roofline, "measured", "kernel"), [text("volta_sgemm_32x32")]);
    let float = |key: &str| match cell(&roofline, "measured", 0, key) {
        Cell::Is(Value::Float(value)) => value,
        other => panic!("{key}: {other:?}"),
    };
    // Read and written: twice the mean of 1, 2 and 3 GB a second.
    assert!((float("dram_bytes_per_s") - 4e9).abs() < 1.0, "{roofline:?}");
    assert!((float("dram_intensity") - PRODUCT as f64 / 4e-6 / 4e9).abs() < 1e-9, "{roofline:?}");
    assert!((float("of_memory_peak") - 4.0 / 900.0).abs() < 1e-9, "{roofline:?}");
    assert_eq!(float("sampled_share"), 0.75);
    assert!(matches!(cell(&roofline, "measured", 0, "sm_active"), Cell::Missing(_)));
}

#[test]
fn samples_are_of_a_kernel_only_while_nothing_else_runs() {
    let mut made = Fixture::new();
    count_bytes(&mut made, 100_000, &[1e9; 12]);
    // The first two overlap; the third is shorter than a sample; the last has two within it.
    for (at, correlation, duration_ns, name) in
        [(0, 1, 3000, "a"), (2500, 2, 2000, "b"), (5000, 3, 900, "c"), (7900, 4, 3000, "d")]
    {
        launched(&mut made, at, correlation, duration_ns, name);
    }
    let file = made.finish();
    let rank = RankTrace::load(&file, needs());
    let part = crate::gpu::measured::of_rank(&rank, &Default::default());
    let all = crate::gpu::measured::join([(&at(), &part)].into_iter());
    let sampled = |name: &str| all.kernels[name].sampled_ns();
    assert_eq!(["a", "b", "c", "d"].map(sampled), [0, 0, 0, 2000]);
    // Another rank uses the device, too.
    let both = crate::gpu::measured::join([(&at(), &part), (&at(), &part)].into_iter());
    assert!(both.kernels.is_empty() && both.shared.is_some(), "{both:?}");
}
