//! Tests comparisons of two runs with known differences.

use std::path::Path;

use tempfile::TempDir;
use tprof_diff::{Comparison, Gate, Side, SideOptions};
use tprof_document::{Cell, Table, Value};
use tprof_trace::model::{Collective, Device, Kernel, Process, Property, Span, SpanKind};
use tprof_trace::{TraceHeader, TraceWriter};

const US: u64 = 1000;

/// A run of some ranks whose steps take these times, in microseconds.
///
/// In each step, a kernel `gemm` runs for half of the step and `ncclAllReduce` for a quarter. Half
/// of the latter's time overlaps with `gemm`. `extra` names one more kernel of 1 us.
fn run(ranks: u32, steps: &[u64], extra: Option<&str>, world: &str) -> TempDir {
    run_on(None, ranks, steps, extra, world)
}

/// Like [`run`], on a device of this name.
fn run_on(
    device: Option<&str>,
    ranks: u32,
    steps: &[u64],
    extra: Option<&str>,
    world: &str,
) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for rank in 0..ranks {
        let path = dir.path().join(format!("rank-{rank}.tprof"));
        write_rank(&path, device, rank, steps, extra, world);
    }
    dir
}

fn write_rank(
    path: &Path,
    device: Option<&str>,
    rank: u32,
    steps: &[u64],
    extra: Option<&str>,
    world: &str,
) {
    let header = TraceHeader { rank: Some(rank), ..TraceHeader::default() };
    let mut writer = TraceWriter::create(path, &header).unwrap();
    let command = writer.name("train");
    let process = Process {
        process: 0,
        pid: 7,
        parent: 1,
        rank: Some(rank),
        command,
        exe: command,
        start_ns: 0,
        memory: tprof_trace::model::MemoryRecording::Off,
    };
    writer.process(&process);
    if let Some(name) = device {
        let name = writer.name(name);
        writer.device(&Device { name, ..Device::default() });
    }
    let key = if world.contains("operators") { "pytorch" } else { "distributedInfo" };
    let (key, value) = (writer.name(key), writer.name(world));
    writer.property(Property { key, value });
    let (gemm, reduce) = (writer.name("gemm"), writer.name("ncclAllReduce"));
    let (op, call, collective) =
        (writer.name("aten::mm"), writer.name("cudaLaunchKernel"), writer.name("all_reduce"));
    let extra = extra.map(|name| writer.name(name));
    let args = writer.name(r#"{"Input Dims":[[64,32],[32,16]],"Input type":["float","float"]}"#);
    let (mut spans, mut kernels, mut collectives) = (Vec::new(), Vec::new(), Vec::new());
    let (mut at, mut correlation) = (1000 * US, 0);
    for (number, step) in steps.iter().enumerate() {
        let step = step * US;
        let name = writer.name(&format!("ProfilerStep#{}", number + 5));
        let kind = SpanKind::Annotation;
        spans.push(Span { start_ns: at, duration_ns: step, kind, name, ..Span::default() });
        let kind = SpanKind::Operator;
        let duration_ns = step / 8;
        spans.push(Span { start_ns: at, duration_ns, kind, name: op, args, ..Span::default() });
        let mut launch = |name, start_ns, duration_ns| {
            correlation += 1;
            spans.push(Span {
                start_ns: at + correlation,
                duration_ns: US,
                kind: SpanKind::Runtime,
                name: call,
                correlation: Some(correlation),
                ..Span::default()
            });
            let correlation = Some(correlation);
            kernels.push(Kernel { start_ns, duration_ns, name, correlation, ..Kernel::default() });
            correlation
        };
        launch(gemm, at + step / 8, step / 2);
        let of_reduce = launch(reduce, at + step / 2, step / 4);
        collectives.push(Collective {
            start_ns: at + 1,
            name: collective,
            bytes: Some(4096),
            correlation: of_reduce,
            ..Collective::default()
        });
        if let Some(extra) = extra {
            launch(extra, at + step * 7 / 8, US);
        }
        at += step;
    }
    writer.write(&mut spans).unwrap();
    writer.write(&mut kernels).unwrap();
    writer.write(&mut collectives).unwrap();
    writer.finish().unwrap();
}

const EIGHT: &str = r#"{"backend":"nccl","rank":0,"world_size":8}"#;
const TWO: &str = r#"{"backend":"nccl","rank":0,"world_size":2}"#;

fn side(dir: &TempDir) -> Side {
    Side::read(dir.path(), &SideOptions::default()).unwrap()
}

fn table<'a>(comparison: &'a Comparison, key: &str) -> &'a Table {
    comparison.tables.iter().find(|table| table.key == key).unwrap()
}

/// Returns a cell of the column `wanted`. Its row is the one with `row` in `column`.
fn cell<'a>(table: &'a Table, column: &str, row: &str, wanted: &str) -> &'a Cell {
    let at = |key: &str| table.columns.iter().position(|column| column.key == key).unwrap();
    let row = table.rows.iter().find(|cells| cells[at(column)] == Cell::from(row));
    &row.unwrap_or_else(|| panic!("no row in {table:?}"))[at(wanted)]
}

fn number(cell: &Cell) -> f64 {
    cell.value().and_then(Value::number).unwrap_or_else(|| panic!("{cell:?}"))
}

#[test]
fn a_devices_time_is_compared_part_by_part() {
    let a = run(2, &[800, 808, 792, 800], None, EIGHT);
    let b = run(2, &[880, 888, 872, 880], Some("more"), EIGHT);
    let comparison = Comparison::of(side(&a), side(&b));
    let parts = table(&comparison, "gpu_time");
    let at = |key: &str| parts.columns.iter().position(|column| column.key == key).unwrap();
    let sum = |key: &str| parts.rows.iter().map(|row| number(&row[at(key)])).sum::<f64>();
    assert_eq!((sum("a_ns"), sum("b_ns")), (800e3, 880e3), "{parts:?}");
    let of = |part, column| number(cell(parts, "part", part, column));
    assert_eq!((of("compute", "a_ns"), of("compute", "b_ns")), (400e3, 441e3));
    assert_eq!((of("communication", "a_ns"), of("communication", "b_ns")), (100e3, 110e3));
    assert_eq!(cell(parts, "part", "compute", "verdict"), &"more?".into());
}

#[test]
fn a_clearly_slower_step_is_worse() {
    let a = run(2, &[800, 808, 792, 800], None, EIGHT);
    let b = run(2, &[880, 888, 872, 880], None, EIGHT);
    let comparison = Comparison::of(side(&a), side(&b));
    let times = table(&comparison, "times");
    let of = |row, column| number(cell(times, "metric", row, column));
    assert_eq!((of("step_time", "a"), of("step_time", "b")), (800e3, 880e3));
    assert_eq!(of("step_time", "change"), 80e3);
    assert!((of("step_time", "change_share") - 0.1).abs() < 1e-12);
    // Standard deviation 6.53 us on either side, 6 degrees of freedom: t is 2.447.
    let expected = 2.447 * (2.0 * 128.0 / 3.0 / 4.0_f64).sqrt() * 1e3;
    assert!(
        (of("step_time", "interval") - expected).abs() < 10.0,
        "{}",
        of("step_time", "interval")
    );
    assert_eq!(cell(times, "metric", "step_time", "verdict"), &Cell::from("worse"));
    // Half of the step is compute. A quarter is communication, half of which is hidden.
    assert_eq!(of("compute_time", "a"), 400e3);
    assert_eq!(of("exposed_communication", "a"), 100e3);
    assert_eq!(of("exposed_copies", "a"), 0.0);
    assert_eq!(of("idle_time", "a"), 300e3);
    let busy = number(cell(table(&comparison, "shares"), "metric", "gpu_busy", "b"));
    assert!((busy - 0.625).abs() < 1e-9);
    let trips = |gate: &str| comparison.trips(&gate.parse::<Gate>().unwrap());
    assert_eq!([trips("step_time>+5%"), trips("step_time>+15%")], [Some(true), Some(false)]);
    assert_eq!(trips("step_time>+79us"), Some(true));
    assert_eq!(trips("peak_device_memory>+5%"), None, "device memory was not measured");
}

#[test]
fn operators_of_one_size_are_compared_with_their_rates() {
    let a = run(2, &[800, 808, 792, 800], None, EIGHT);
    let b = run(2, &[1600, 1608, 1592, 1600], None, EIGHT);
    let comparison = Comparison::of(side(&a), side(&b));
    let shapes = table(&comparison, "shapes");
    let of = |column| number(cell(shapes, "name", "aten::mm [64,32] [32,16] float32", column));
    // The operator launched the kernels that run for a half and for a quarter of the step. The
    // number of operations is the same in both runs.
    assert_eq!((of("a_ns"), of("b_ns")), (600e3, 1200e3));
    assert_eq!((of("a_count"), of("b_count")), (1.0, 1.0));
    let operations = 2.0 * 64.0 * 32.0 * 16.0;
    assert!((of("a_flops_per_s") / (operations / 600e-6) - 1.0).abs() < 1e-9);
    assert!((of("b_flops_per_s") / (operations / 1200e-6) - 1.0).abs() < 1e-9);
    assert!(of("interval_ns") < of("change_ns"));
}

#[test]
fn a_change_within_the_noise_is_not_sure() {
    let a = run(1, &[800, 1200, 700, 900], None, EIGHT);
    let b = run(1, &[1000, 750, 1300, 800], None, EIGHT);
    let comparison = Comparison::of(side(&a), side(&b));
    let verdict = cell(table(&comparison, "times"), "metric", "step_time", "verdict");
    assert_eq!(verdict, &Cell::from("not sure"));
    assert_eq!(comparison.trips(&"step_time>+1%".parse().unwrap()), Some(false));
}

#[test]
fn a_single_step_has_no_interval_but_a_reason_for_that() {
    let (a, b) = (run(1, &[800], None, EIGHT), run(1, &[900], None, EIGHT));
    let comparison = Comparison::of(side(&a), side(&b));
    let times = table(&comparison, "times");
    assert!(matches!(cell(times, "metric", "step_time", "interval"), Cell::Missing(_)));
    assert_eq!(cell(times, "metric", "step_time", "verdict"), &Cell::from("worse?"));
    assert!(comparison.notes.iter().any(|note| note.contains("chance")), "{:?}", comparison.notes);
}

#[test]
fn names_are_compared_per_step_and_rank() {
    let a = run(4, &[800, 800], Some("old_kernel"), EIGHT);
    let b = run(2, &[800, 800, 800], Some("new_kernel"), TWO);
    let comparison = Comparison::of(side(&a), side(&b));
    let kernels = table(&comparison, "kernels");
    let of = |row, column| cell(kernels, "name", row, column);
    assert_eq!((number(of("gemm", "a_ns")), number(of("gemm", "b_ns"))), (400e3, 400e3));
    assert_eq!((number(of("gemm", "a_count")), number(of("gemm", "b_count"))), (1.0, 1.0));
    assert_eq!(of("old_kernel", "presence"), &Cell::from("A"));
    assert_eq!(of("new_kernel", "presence"), &Cell::from("B"));
    assert_eq!(number(of("new_kernel", "change_ns")), 1e3);
    let collectives = table(&comparison, "collectives");
    assert_eq!(number(cell(collectives, "name", "all_reduce", "a_ns")), 200e3);
    assert_eq!(number(cell(collectives, "name", "all_reduce", "b_bytes")), 4096.0);
    let operators = table(&comparison, "operators");
    assert_eq!(number(cell(operators, "name", "aten::mm", "a_ns")), 100e3);
    let differences = table(&comparison, "differences");
    assert_eq!(cell(differences, "key", "distributed.world_size", "b"), &Cell::from("2"));
    assert_eq!(cell(differences, "key", "ranks", "a"), &Cell::from("4"));
    assert!(comparison.notes.iter().any(|note| note.contains("means over ranks")));
}

#[test]
fn operators_that_were_recorded_for_a_part_of_the_time_are_not_compared() {
    let has = |comparison: &Comparison, name: &str| {
        let rows = &table(comparison, "operators").rows;
        rows.iter().any(|row| row.last() == Some(&Cell::from(name)))
    };
    let whole = || side(&run(1, &[1000, 1000], None, r#"{"operators":"names"}"#));
    let ended = side(&run(1, &[1000, 1000], None, r#"{"operators":"ranges"}"#));
    let comparison = Comparison::of(whole(), ended);
    assert!(has(&comparison, "ProfilerStep#5") && !has(&comparison, "aten::mm"));
    let note =
        "operators are not compared, only annotations: B recorded them for a part of the time";
    assert!(comparison.notes.iter().any(|of| of.starts_with(note)), "{:?}", comparison.notes);
    let comparison = Comparison::of(whole(), whole());
    assert!(has(&comparison, "ProfilerStep#5") && has(&comparison, "aten::mm"));
}

#[test]
fn steps_can_be_picked_by_number() {
    let dir = run(1, &[500, 800, 800], None, EIGHT);
    let options = SideOptions { steps: Some((6, 7)), ..SideOptions::default() };
    let picked = Side::read(dir.path(), &options).unwrap();
    assert_eq!(picked.steps, [6, 7]);
    assert_eq!(picked.figures["step_time"], [800e3, 800e3]);
    let options = SideOptions { steps: Some((50, 60)), ..SideOptions::default() };
    let none = Side::read(dir.path(), &options).unwrap();
    assert!(none.stepped && none.steps.is_empty());
}

#[test]
fn steps_of_warm_up_are_left_out_unless_they_are_chosen() {
    let steps = [4000, 1500, 800, 800, 810, 790, 800, 800];
    let (a, b) = (run(1, &steps, None, EIGHT), run(2, &steps[1..], None, EIGHT));
    let comparison = Comparison::of(side(&a), side(&b));
    assert_eq!(comparison.a.warm_up, [5, 6].into());
    assert_eq!(comparison.a.steps, [7, 8, 9, 10, 11, 12]);
    assert_eq!(comparison.b.warm_up, [5].into());
    let times = table(&comparison, "times");
    let of = |column| number(cell(times, "metric", "step_time", column));
    assert_eq!((of("a"), of("b")), (800e3, 800e3));
    let note = "steps of warm-up are left out (2 of A, 1 of B)";
    assert!(comparison.notes.iter().any(|found| found.starts_with(note)), "{comparison:?}");
    let options = SideOptions { steps: Some((5, 12)), ..SideOptions::default() };
    let chosen = Side::read(a.path(), &options).unwrap();
    assert_eq!((chosen.steps.len(), chosen.warm_up.len()), (8, 0));
}

#[test]
fn a_run_compared_with_itself_did_not_change() {
    let dir = run(3, &[800, 810, 790], Some("k"), EIGHT);
    let comparison = Comparison::of(side(&dir), side(&dir));
    for table in &comparison.tables {
        let Some(at) = table.columns.iter().position(|column| column.key.starts_with("change"))
        else {
            assert!(table.rows.is_empty(), "{table:?}");
            continue;
        };
        for row in &table.rows {
            assert_eq!(number(&row[at]), 0.0, "{}", table.key);
        }
    }
}

#[test]
fn other_hardware_is_neither_better_nor_worse() {
    let on = |device: Option<&str>, us: u64| run_on(device, 1, &[us, us + 8, us - 8], None, EIGHT);
    let (a100, v100) = (on(Some("NVIDIA A100"), 800), on(Some("Tesla V100"), 1600));
    let comparison = Comparison::of(side(&a100), side(&v100));
    assert_eq!(comparison.other_hardware(), ["device"]);
    let expected = "the hardware differs (device: NVIDIA A100 in A, Tesla V100 in B)";
    assert!(
        comparison.notes.iter().any(|note| note.starts_with(expected)),
        "{:?}",
        comparison.notes
    );
    let times = table(&comparison, "times");
    assert_eq!(number(cell(times, "metric", "step_time", "change")), 800e3);
    for key in ["step_time", "compute_time", "idle_time"] {
        assert_eq!(cell(times, "metric", key, "verdict"), &Cell::from("other hardware"), "{key}");
    }
    assert_eq!(comparison.trips(&"step_time>+5%".parse().unwrap()), None);
    // If a side does not name its device, it may have the same device.
    let unnamed = Comparison::of(side(&a100), side(&on(None, 1600)));
    assert!(unnamed.other_hardware().is_empty());
    let verdict = cell(table(&unnamed, "times"), "metric", "step_time", "verdict");
    assert_eq!(verdict, &Cell::from("worse"));
}

#[test]
fn an_empty_table_says_which_side_lacks_data() {
    let comparison = Comparison::of(side(&run(1, &[800, 800], None, EIGHT)), side(&empty()));
    let sites = table(&comparison, "sites");
    assert_eq!(sites.empty, "neither side has heap records");
    let both = Comparison::of(side(&empty()), side(&empty()));
    let kernels = table(&both, "kernels");
    assert_eq!(
        kernels.empty,
        "no kernel and no copy in the compared part: of A in its trace and of B in its trace"
    );
}

/// A run in which nothing was recorded but its process.
fn empty() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let header = TraceHeader { rank: Some(0), ..TraceHeader::default() };
    let writer = TraceWriter::create(&dir.path().join("rank-0.tprof"), &header).unwrap();
    writer.finish().unwrap();
    dir
}
