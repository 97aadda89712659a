//! Tests of the rows that a builder makes of planted steps.

use std::path::Path;

use tprof_trace::model::*;
use tprof_trace::{TraceFile, TraceHeader, TraceWriter};

use super::{HistoryBuilder, RankHistory, of_file};
use crate::steps::StepSource;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const NCCL: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)";

/// A file that is being written, with a builder of its history.
struct Recording {
    writer: TraceWriter,
    _directory: tempfile::TempDir,
}

impl Recording {
    fn new() -> Recording {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        writer.watch(Box::new(HistoryBuilder::new(0)));
        Recording { writer, _directory: directory }
    }

    fn step(&mut self, number: u64, time_ns: u64) {
        self.writer.mark_named((Some(0), time_ns), MarkKind::Step, &format!("step {number}"));
    }

    fn counter(&mut self, time_ns: u64, name: &str, of: (Option<u32>, Option<u32>), value: f64) {
        let ((process, device), name) = (of, self.writer.name(name));
        self.writer.counter(Counter { time_ns, process, device, name, value });
    }

    fn kernel(&mut self, name: &str, start_ns: u64, duration_ns: u64) {
        let name = self.writer.name(name);
        let row = Kernel { start_ns, duration_ns, name, ..Kernel::default() };
        self.writer.write(&mut vec![row]).unwrap();
    }

    fn copy(&mut self, start_ns: u64, duration_ns: u64, bytes: u64) {
        let bytes = Some(bytes);
        let row = MemoryCopy { start_ns, duration_ns, bytes, ..MemoryCopy::default() };
        self.writer.write(&mut vec![row]).unwrap();
    }

    fn collective(&mut self, start_ns: u64, duration_ns: u64, bytes: Option<u64>) {
        let duration_ns = Some(duration_ns);
        let row = Collective { start_ns, duration_ns, bytes, ..Collective::default() };
        self.writer.write(&mut vec![row]).unwrap();
    }

    fn figures(&mut self, now_ns: u64, is_last: bool) -> Vec<HistoryRow> {
        self.writer.watcher().unwrap().figures(now_ns, is_last)
    }

    /// Writes these rows and ends the file, unless the recorder is killed.
    fn end(mut self, mut rows: Vec<HistoryRow>, is_killed: bool) -> RankHistory {
        let path = self.writer.path().to_path_buf();
        self.writer.write(&mut rows).unwrap();
        match is_killed {
            true => self.writer.flush().unwrap(),
            false => self.writer.finish().unwrap(),
        }
        of_file(&TraceFile::open(Path::new(&path)).unwrap(), None)
    }
}

/// Three steps of two seconds from 10 s on, each with the same work. The last one ends at 16 s.
fn planted() -> Recording {
    let mut job = Recording::new();
    for step in 0..4 {
        let start = (10 + 2 * step) * S;
        job.step(100 + step, start);
        if step == 3 {
            break;
        }
        job.kernel("gemm", start, 800 * MS);
        job.kernel(NCCL, start + 600 * MS, 400 * MS);
        job.copy(start + 900 * MS, 300 * MS, 4096);
        job.collective(start + 500 * MS, 250 * MS, Some(1 << 20));
        job.collective(start + 700 * MS, 100 * MS, Some(1 << 10));
        for tenth in 0..20 {
            let time_ns = start + tenth * 100 * MS;
            let process = (Some(0), None);
            job.counter(time_ns, counter::RSS_BYTES, process, (step * 1000 + tenth) as f64);
            job.counter(time_ns, counter::HEAP_BYTES, process, 77.0);
            job.counter(time_ns, counter::READ_BYTES, process, (step * 20 + tenth) as f64 * 10.0);
            job.counter(time_ns, counter::GPU_POWER, (None, Some(3)), 400.0 + (tenth % 2) as f64);
            job.counter(time_ns, counter::GPU_TEMPERATURE, (None, Some(3)), 60.0 + tenth as f64);
            let joules = 5e6 + (step * 20 + tenth) as f64 * 35.0;
            job.counter(time_ns, counter::GPU_ENERGY, (None, Some(3)), joules);
            let active = (tenth % 2) as f64;
            job.counter(time_ns, counter::GPU_SM_ACTIVE, (None, Some(3)), active);
            job.counter(time_ns, counter::GPU_THROTTLE, (None, Some(3)), (1 << (tenth % 3)) as f64);
            job.writer.watcher().unwrap().cpu_time(0, time_ns, (step * 20 + tenth) * 50 * MS);
        }
    }
    job.writer.watcher().unwrap().cpu_time(0, 16 * S, 3 * S);
    job
}

#[test]
fn the_figures_of_planted_steps_are_their_truth() {
    let rows = planted().figures(17 * S, true);
    assert_eq!(rows.len(), 3);
    for (step, row) in (0..).zip(&rows) {
        let last_read = if step == 2 { 590 } else { (step + 1) * 200 };
        let read_before = step * 200;
        let expected = HistoryRow {
            start_ns: (10 + 2 * step) * S,
            duration_ns: 2 * S,
            process: 0,
            source: HistorySource::Explicit,
            first_step: 100 + step,
            steps: 1,
            steps_ns: 2 * S,
            shortest_ns: 2 * S,
            median_ns: 2 * S,
            longest_ns: 2 * S,
            longest_step: 100 + step,
            devices: Some(1),
            busy_ns: Some(1200 * MS),
            compute_ns: Some(800 * MS),
            communication_ns: Some(400 * MS),
            exposed_communication_ns: Some(200 * MS),
            copied_bytes: Some(4096),
            collectives: Some(2),
            collective_bytes: Some((1 << 20) + (1 << 10)),
            collective_ns: Some(300 * MS),
            cpu_ns: Some(S),
            heap_bytes: Some(77),
            // The reading at the end of a step is the first of the next one.
            resident_bytes: Some(if step == 2 { 2019 } else { (step + 1) * 1000 }),
            read_bytes: Some(last_read - read_before),
            written_bytes: None,
            storage_read_bytes: None,
            storage_written_bytes: None,
            device_memory_bytes: None,
            temperature_celsius: Some(79),
            power_milliwatts: row.power_milliwatts,
            sm_clock_hz: None,
            throttle_reasons: Some(7),
            throttled_ns: None,
            // Nobody read the counter after the last step.
            energy_millijoules: (step < 2).then_some(700_000),
            // The last reading holds for an unknown time.
            sm_active_millionths: Some(if step == 2 { 473_684 } else { 500_000 }),
            tensor_active_millionths: None,
            dram_bandwidth_millionths: None,
        };
        assert_eq!(*row, expected);
        let power = row.power_milliwatts.unwrap();
        assert!((400_400..=400_600).contains(&power), "{power}");
    }
}

#[test]
fn a_row_waits_for_the_records_of_devices_and_late_work_is_counted() {
    let mut job = planted();
    assert_eq!(job.figures(17 * S, false), []);
    assert_eq!(job.figures(18 * S, false).len(), 1);
    // The second step lasts until 14 s. Its records still come.
    job.kernel("gemm", 13 * S, 500 * MS);
    let rows = job.figures(20 * S, false);
    assert_eq!(rows.iter().map(|row| row.compute_ns).collect::<Vec<_>>(), [Some(1300 * MS)]);
    job.kernel("gemm", 13_900 * MS, 200 * MS);
    let last = job.figures(30 * S, false);
    assert_eq!(last[0].compute_ns, Some(800 * MS), "it ran at the same time as another");
    assert_eq!(job.writer.watcher().unwrap().late_ns(), 100 * MS);
}

#[test]
fn without_devices_a_row_is_complete_soon_and_says_what_is_unknown() {
    let mut job = Recording::new();
    job.step(0, S);
    job.step(1, 3 * S);
    assert_eq!(job.figures(4 * S, false), []);
    let rows = job.figures(5 * S, false);
    assert_eq!((rows.len(), rows[0].busy_ns, rows[0].collectives), (1, None, None));
    assert_eq!((rows[0].cpu_ns, rows[0].heap_bytes), (None, None));
}

#[test]
fn a_stretch_in_which_recording_was_off_has_no_figures_of_devices() {
    let mut job = Recording::new();
    job.kernel("gemm", S, S);
    job.writer.mark_named((None, 12 * S), MarkKind::RecordingOff, "--schedule");
    job.writer.mark_named((None, 15 * S), MarkKind::RecordingOn, "--schedule");
    job.kernel("gemm", 25 * S, 5 * S);
    let rows = job.figures(40 * S, true);
    let busy: Vec<_> = rows.iter().map(|row| (row.steps, row.busy_ns)).collect();
    assert_eq!(busy, [(0, Some(S)), (0, None), (0, Some(5 * S))]);
}

#[test]
fn a_job_without_steps_has_stretches_of_ten_seconds() {
    let mut job = Recording::new();
    (0..100).for_each(|second| job.counter(second * S, counter::RSS_BYTES, (Some(0), None), 5.0));
    assert_eq!(job.figures(69 * S, false), []);
    let rows = job.figures(85 * S, false);
    let times: Vec<_> = rows.iter().map(|row| (row.start_ns / S, row.duration_ns / S)).collect();
    assert_eq!(times, [(0, 10), (10, 10)]);
    assert_eq!((rows[0].resident_bytes, rows[0].source), (Some(5), HistorySource::None));
    let rest = job.figures(100 * S, true);
    assert_eq!(rest.iter().map(|row| row.duration_ns).sum::<u64>(), 79 * S);
}

#[test]
fn steps_after_stretches_have_no_time_of_devices_that_was_counted_before() {
    let mut job = Recording::new();
    job.kernel("gemm", 0, 30 * S);
    assert_eq!(job.figures(90 * S, false).len(), 3);
    job.step(0, 25 * S);
    job.step(1, 95 * S);
    job.kernel("gemm", 96 * S, S);
    job.step(2, 98 * S);
    let rows = job.figures(110 * S, true);
    let busy: Vec<_> = rows.iter().map(|row| (row.first_step, row.busy_ns)).collect();
    assert_eq!(busy, [(0, None), (1, Some(S))]);
}

#[test]
fn only_one_process_of_a_rank_makes_its_steps() {
    let mut job = Recording::new();
    for step in 0..10 {
        for process in [4, 5] {
            let time_ns = S + 2 * step * S + u64::from(process);
            let name = format!("step {step}");
            job.writer.mark_named((Some(process), time_ns), MarkKind::Step, &name);
        }
    }
    let rows = job.figures(100 * S, true);
    assert_eq!(rows.len(), 9);
    assert!(rows.iter().all(|row| row.process == 4));
    // Another image of the program goes on.
    job.writer.process_end(4, 30 * S, ProcessEnd::Exec);
    job.writer.mark_named((Some(6), 31 * S), MarkKind::Step, "step 0");
    job.writer.mark_named((Some(6), 33 * S), MarkKind::Step, "step 1");
    let rows = job.figures(100 * S, true);
    assert_eq!(rows.iter().map(|row| row.process).collect::<Vec<_>>(), [6]);
}

#[test]
fn steps_of_an_optimizer_and_operations_on_the_host_count() {
    let mut job = Recording::new();
    let update = job.writer.name("Optimizer.step#SGD.step");
    let reduce = job.writer.name("gloo:all_reduce");
    for step in 0..6 {
        let span = |start_ns, duration_ns, name| Span {
            start_ns,
            duration_ns,
            kind: SpanKind::Annotation,
            name,
            ..Span::default()
        };
        let at = 2 * step * S;
        let mut rows = vec![span(at, 500 * MS, reduce), span(at + 1900 * MS, 100 * MS, update)];
        job.writer.write(&mut rows).unwrap();
    }
    let rows = job.figures(100 * S, true);
    assert_eq!(rows.len(), 5, "the first update ends no step");
    for row in &rows {
        assert_eq!((row.source, row.steps_ns), (HistorySource::Optimizer, 2 * S));
        assert_eq!((row.collectives, row.collective_ns), (Some(1), Some(500 * MS)));
        assert_eq!(row.collective_bytes, None);
    }
}

#[test]
fn a_file_without_rows_has_the_same_from_its_events() {
    let mut job = planted();
    let written = job.figures(17 * S, true);
    let whole = planted().end(written.clone(), false);
    assert_eq!((whole.computed, &whole.rows), (0, &written));
    let without_cpu = |row: &HistoryRow| HistoryRow { cpu_ns: None, ..*row };
    let expected: Vec<HistoryRow> = written.iter().map(without_cpu).collect();
    let older = planted().end(Vec::new(), false);
    assert_eq!((older.computed, &older.rows), (3, &expected));
    // The recorder was killed before it wrote the last row.
    let killed = planted().end(written[..2].to_vec(), true);
    assert_eq!(killed.computed, 1);
    assert_eq!(killed.rows.iter().map(without_cpu).collect::<Vec<_>>(), expected);
}

#[test]
fn steps_that_nothing_names_are_inferred_from_a_whole_file() {
    let mut job = Recording::new();
    for step in 0..40_u64 {
        let at = S + step * 100 * MS;
        for (kernel, name) in (0_u64..).zip(["a", "b", "c"]) {
            let (start_ns, correlation) = (at + kernel * 20 * MS, Some(step * 3 + kernel + 1));
            let id = job.writer.name("cudaLaunchKernel");
            let call = Span {
                start_ns: start_ns - MS,
                duration_ns: MS / 2,
                kind: SpanKind::Runtime,
                name: id,
                correlation,
                ..Span::default()
            };
            job.writer.write(&mut vec![call]).unwrap();
            let name = job.writer.name(name);
            let (duration_ns, grid) = (10 * MS, [1; 3]);
            let row =
                Kernel { start_ns, duration_ns, name, correlation, grid, ..Kernel::default() };
            job.writer.write(&mut vec![row]).unwrap();
        }
    }
    let written = job.figures(10 * S, true);
    assert_eq!(written.iter().map(|row| row.steps).sum::<u64>(), 0);
    let history = job.end(written, false);
    let steps: u64 = history.rows.iter().map(|row| row.steps).sum();
    assert!(steps > 30, "{history:?}");
    assert!(history.rows.iter().all(|row| row.source == HistorySource::Inferred));
}

#[test]
fn a_million_steps_take_constant_memory_and_a_small_file() {
    let mut job = Recording::new();
    let (mut rows, mut most, mut count, mut longest) = (Vec::new(), 0, 0, 0);
    for step in 0..1_000_000_u64 {
        let time_ns = S + step * 10 * MS;
        job.step(step, time_ns);
        if step.is_multiple_of(20) {
            job.counter(time_ns, counter::RSS_BYTES, (Some(0), None), (step % 977) as f64 * 4096.0);
            rows.extend(job.figures(time_ns, false));
            longest = longest.max(rows.len());
        }
        if rows.len() >= 128 {
            count += rows.len();
            job.writer.write(&mut rows).unwrap();
            most = most.max(job.writer.pending_bytes());
        }
    }
    count += rows.len();
    assert!(longest <= 128 && most < 1 << 20, "{longest} {most}");
    // Ten thousand seconds of steps: a row a second.
    assert!((9_900..=10_100).contains(&count), "{count}");
    let path = job.writer.path().to_path_buf();
    job.writer.write(&mut rows).unwrap();
    job.writer.finish().unwrap();
    let history = of_file(&TraceFile::open(&path).unwrap(), Some(StepSource::Explicit));
    let sum: u64 = history.rows.iter().map(|row| row.steps).sum();
    assert!(sum > 999_000, "{sum}");
    // Of the file, the marks and their names are the largest part.
    let bytes = bytes_of_rows(&history.rows);
    assert!(bytes < count as u64 * 90, "{bytes}");
}

/// Returns the size of a file that has only these rows.
fn bytes_of_rows(rows: &[HistoryRow]) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.tprof");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    rows.chunks(128).for_each(|rows| writer.write(&mut rows.to_vec()).unwrap());
    writer.finish().unwrap();
    std::fs::metadata(&path).unwrap().len()
}
