//! Tests a follower on a growing run: steps, stalls, ends, and files that are renamed or replaced.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use tprof_live::{
    EventKind, FileEntry, Follower, Metric, PlainFiles, RunFiles, RunState, Snapshot, prometheus,
};
use tprof_trace::model::*;
use tprof_trace::run::{Completeness, LossInfo, ProcessInfo, RankInfo, RunInfo};
use tprof_trace::{TraceHeader, TraceWriter};

const SECOND: u64 = 1_000_000_000;
/// When a run begins, on the clock of its rank files and its `run.json`.
const START: u64 = 500 * SECOND;

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A run that began in the past, so that rows can be written with times between then and now. A
/// time that a method takes counts from the beginning of the run.
struct Run {
    directory: tempfile::TempDir,
    start_unix_ns: u64,
    writers: BTreeMap<u32, TraceWriter>,
    info: RunInfo,
}

impl Run {
    /// Creates a run that began `ago_ns` ago.
    fn begun(ago_ns: u64, ranks: u32) -> Run {
        let directory = tempfile::tempdir().unwrap();
        let start_unix_ns = unix_ns() - ago_ns;
        let info = RunInfo {
            version: 1,
            tprof: "0.1.0".to_owned(),
            // The info file names another host, where the follower can't look up the collector's
            // pid. So the age of `run.json` decides whether the run is in progress.
            host: "elsewhere".to_owned(),
            command: vec!["python".to_owned(), "train.py".to_owned()],
            start_ns: START,
            start_unix_ns,
            collector_pid: 7,
            ..RunInfo::default()
        };
        let mut run = Run { directory, start_unix_ns, writers: BTreeMap::new(), info };
        (0..ranks).for_each(|rank| run.add_rank(rank));
        run.write_info();
        run
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn file(&self, rank: u32) -> PathBuf {
        self.path().join(format!("rank-{rank}.tprof"))
    }

    /// Creates the file of a rank, with one process.
    fn add_rank(&mut self, rank: u32) {
        let header = TraceHeader {
            host: "elsewhere".to_owned(),
            rank: Some(rank),
            start_ns: START,
            start_unix_ns: self.start_unix_ns,
            ..TraceHeader::default()
        };
        let mut writer = TraceWriter::create(&self.file(rank), &header).unwrap();
        let command = writer.name("/usr/bin/python train.py");
        writer.process(&Process {
            process: 0,
            pid: 100 + rank,
            parent: 1,
            rank: Some(rank),
            command,
            exe: command,
            start_ns: START,
            memory: MemoryRecording::Off,
        });
        writer.flush().unwrap();
        self.writers.insert(rank, writer);
        self.info.files.push(format!("rank-{rank}.tprof"));
    }

    fn write_info(&self) {
        let text = serde_json::to_vec(&self.info).unwrap();
        fs::write(self.path().join("run.json"), text).unwrap();
    }

    fn writer(&mut self, rank: u32) -> &mut TraceWriter {
        self.writers.get_mut(&rank).unwrap()
    }

    /// Writes a mark `step N` at each of these times, where N is the time in ms. A mark ends the
    /// step that the previous mark began, so n marks make n - 1 steps.
    fn mark_steps(&mut self, rank: u32, times_ns: impl IntoIterator<Item = u64>) {
        let writer = self.writer(rank);
        for at_ns in times_ns {
            let name = writer.name(&format!("step {}", at_ns / 1_000_000));
            let (process, kind) = (Some(0), MarkKind::Step);
            writer.mark(Mark { time_ns: START + at_ns, process, name, kind });
        }
        writer.flush().unwrap();
    }

    fn counter(&mut self, rank: u32, at_ns: u64, name: &str, value: f64) {
        let writer = self.writer(rank);
        let name = writer.name(name);
        let (time_ns, process) = (START + at_ns, Some(0));
        writer.counter(Counter { time_ns, process, device: None, name, value });
        writer.flush().unwrap();
    }

    /// Writes the end of a rank's process.
    fn end_process(&mut self, rank: u32, at_ns: u64, end: ProcessEnd) {
        let writer = self.writer(rank);
        writer.process_end(0, START + at_ns, end);
        writer.flush().unwrap();
    }

    fn follower(&self) -> Follower<PlainFiles> {
        Follower::new(PlainFiles::of(self.path()).unwrap())
    }
}

/// Returns the first `count` multiples of `step_ns`.
fn every(step_ns: u64, count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(move |at| at * step_ns)
}

fn values(snapshot: &Snapshot, key: &str) -> Vec<Option<f64>> {
    snapshot.metrics.iter().find(|metric| metric.key == key).unwrap().values.clone()
}

fn event_kinds(snapshot: &Snapshot) -> Vec<(Option<u32>, EventKind)> {
    snapshot.events.iter().map(|event| (event.rank, event.kind)).collect()
}

#[test]
fn a_rank_without_a_step_for_too_long_stalls_until_its_next_one() {
    let mut run = Run::begun(20 * SECOND, 2);
    run.mark_steps(0, every(SECOND / 2, 40));
    run.mark_steps(1, every(SECOND / 2, 24));
    // The file of rank 1 still gets data, so the missing step is a stall.
    run.counter(1, 19 * SECOND, "rss_bytes", 5e6);
    let mut follower = run.follower();
    let stalled = follower.poll();
    assert_eq!(stalled.state, RunState::Running);
    let [stall] = &stalled.stalls[..] else { panic!("{:?}", stalled.stalls) };
    // The last step that ended is 11500, which the marks at 11.5 s and 12 s delimit.
    assert_eq!((stall.rank, stall.usual_ns, stall.step), (Some(1), SECOND / 2, 11_501));
    assert_eq!(stall.since_ns, 12 * SECOND);
    // Now is 20 s or a little later. A slow test can't exceed 17 s, because a stall counts up to 10
    // s after the newest data.
    assert!((8 * SECOND..18 * SECOND).contains(&stall.for_ns), "{}", stall.for_ns);
    assert!(event_kinds(&stalled).contains(&(Some(1), EventKind::Stall)));
    let again = follower.poll();
    assert_eq!((again.stalls.len(), event_kinds(&again)), (1, vec![]), "one stall is one event");
    run.mark_steps(1, [20 * SECOND]);
    let over = follower.poll();
    assert_eq!((over.stalls.len(), event_kinds(&over)), (0, vec![(Some(1), EventKind::StallEnd)]));
    assert_eq!(over.events[0].text, "step 11501 ended after 8.00 s");
}

#[test]
fn stalls_need_five_steps_a_live_rank_and_recording() {
    let stalls = |change: &dyn Fn(&mut Run), marks: u64| {
        let mut run = Run::begun(20 * SECOND, 1);
        run.mark_steps(0, every(SECOND / 4, marks));
        run.counter(0, 18 * SECOND, "rss_bytes", 5e6);
        change(&mut run);
        run.follower().poll().stalls.len()
    };
    assert_eq!(stalls(&|_| (), 30), 1);
    assert_eq!(stalls(&|_| (), 5), 0, "five marks make only four steps");
    assert_eq!(stalls(&|run| run.end_process(0, 18 * SECOND, ProcessEnd::Exited(0)), 30), 0);
    let switch_off = |run: &mut Run| {
        let writer = run.writer(0);
        let (name, kind) = (writer.name("by hand"), MarkKind::RecordingOff);
        writer.mark(Mark { time_ns: START + 9 * SECOND, process: None, name, kind });
        writer.flush().unwrap();
    };
    assert_eq!(stalls(&switch_off, 30), 0);
    let finish = |run: &mut Run| {
        run.info.finished = true;
        run.write_info();
    };
    assert_eq!(stalls(&finish, 30), 0);
}

#[test]
fn a_file_without_new_blocks_is_no_evidence_of_a_stall() {
    let mut run = Run::begun(3600 * SECOND, 1);
    // With steps of 20 s, a stall begins after 100 s without a step. The newest block is at 600 s,
    // so only the time until 610 s counts, and there is no stall.
    run.mark_steps(0, every(20 * SECOND, 30));
    let snapshot = run.follower().poll();
    assert_eq!(snapshot.stalls, []);
    assert!(snapshot.ranks[0].behind_ns.unwrap() >= 3000 * SECOND);
}

#[test]
fn a_slow_step_is_an_event() {
    let mut run = Run::begun(10 * SECOND, 1);
    run.mark_steps(0, every(SECOND / 10, 20).chain([4 * SECOND, 41 * SECOND / 10]));
    let snapshot = run.follower().poll();
    let slow = snapshot.events.iter().find(|event| event.kind == EventKind::StepSlow).unwrap();
    assert_eq!(slow.text, "step 2000 took 2.00 s, usually 100.0 ms");
    assert_eq!(slow.time_ns, 4 * SECOND);
}

#[test]
fn optimizer_updates_are_steps_until_a_better_source_appears() {
    let mut run = Run::begun(10 * SECOND, 1);
    let span = |at: u64, name| Span {
        start_ns: START + at * SECOND / 10,
        duration_ns: 1000,
        kind: SpanKind::Annotation,
        name,
        ..Span::default()
    };
    let writer = run.writer(0);
    let (update, other) = (writer.name("Optimizer.step#SGD.step"), writer.name("forward"));
    let mut spans: Vec<Span> = (1..21).flat_map(|at| [span(at, update), span(at, other)]).collect();
    writer.write(&mut spans).unwrap();
    let mut follower = run.follower();
    let snapshot = follower.poll();
    // The first update ends a step whose beginning is not known.
    assert_eq!(values(&snapshot, "steps"), [Some(19.0)]);
    assert_eq!(values(&snapshot, "step_ns"), [Some(1e8)]);
    // Marks are the better source, so the steps of the updates are discarded.
    run.mark_steps(0, every(SECOND, 3));
    assert_eq!(values(&follower.poll(), "steps"), [Some(2.0)]);
}

#[test]
fn a_rank_ends_with_its_last_process() {
    let mut run = Run::begun(30 * SECOND, 2);
    run.counter(0, 5 * SECOND, "rss_bytes", 4096.0);
    let mut follower = run.follower();
    let before = follower.poll();
    assert_eq!(before.ranks[0].ended, None);
    assert_eq!(values(&before, "rss_bytes"), [Some(4096.0), None]);
    assert_eq!(
        event_kinds(&before),
        [(Some(0), EventKind::ProcessStart)],
        "rank 1 has no data after its process began"
    );
    run.end_process(0, 6 * SECOND, ProcessEnd::Signal(9));
    run.end_process(1, 7 * SECOND, ProcessEnd::Exec);
    let after = follower.poll();
    // An `exec` ends only an image of a process, so rank 1 has no event for it.
    let ended = after.ranks.iter().map(|rank| rank.ended.as_deref()).collect::<Vec<_>>();
    assert_eq!(ended, [Some("SIGKILL"), Some("ended")]);
    assert_eq!(values(&after, "rss_bytes"), [None, None]);
    assert_eq!(event_kinds(&after), [(Some(0), EventKind::ProcessEnd)]);
    assert_eq!(after.events[0].text, "python [100]: SIGKILL");
}

#[test]
fn gauges_of_a_program_have_the_unit_of_their_names() {
    let mut run = Run::begun(9 * SECOND, 2);
    run.counter(1, SECOND, "queue_bytes", 12.0);
    run.counter(1, 2 * SECOND, "loss", 0.5);
    // A counter that tprof itself writes isn't a gauge of the program.
    run.counter(1, 3 * SECOND, "mapped_bytes", 1.0);
    let snapshot = run.follower().poll();
    let gauges = snapshot.metrics.iter().filter(|metric| metric.key.starts_with("gauge:"));
    let found: Vec<_> =
        gauges.map(|of| (of.key.as_str(), of.unit.as_str(), of.values.clone())).collect();
    assert_eq!(
        found,
        [
            ("gauge:queue_bytes", "bytes", vec![None, Some(12.0)]),
            ("gauge:loss", "none", vec![None, Some(0.5)]),
        ]
    );
}

#[test]
fn losses_are_in_totals_and_metrics_and_are_events() {
    let mut run = Run::begun(9 * SECOND, 2);
    let loss = |count| Completeness {
        recorded: 1000,
        samples: 24,
        lost: count,
        losses: vec![LossInfo { what: "heap events".into(), why: "full".into(), count }],
        ..Completeness::default()
    };
    let process = |lost| ProcessInfo {
        pid: 100,
        file: Some("rank-0.tprof".to_owned()),
        lost,
        ..ProcessInfo::default()
    };
    run.info.completeness = loss(5);
    run.info.processes = vec![process(Some(5)), process(None)];
    run.write_info();
    let mut follower = run.follower();
    let snapshot = follower.poll();
    // The total is the sum of events and samples.
    assert_eq!((snapshot.totals.recorded, snapshot.totals.lost), (1024, 5));
    assert_eq!(values(&snapshot, "lost"), [Some(5.0), None]);
    let text = |snapshot: &Snapshot| {
        let losses = snapshot.events.iter().filter(|event| event.kind == EventKind::Loss);
        losses.map(|event| event.text.clone()).collect::<Vec<_>>()
    };
    assert_eq!(text(&snapshot), ["lost: 5 heap events: full"]);
    run.info.completeness = loss(6);
    run.write_info();
    assert_eq!(text(&follower.poll()), [""; 0], "a loss has another event only after it doubled");
    run.info.completeness = loss(10);
    run.write_info();
    assert_eq!(text(&follower.poll()), ["lost: 10 heap events: full"]);
}

#[test]
fn a_run_without_a_writing_collector_is_cut_off_or_finished() {
    let mut run = Run::begun(60 * SECOND, 1);
    run.mark_steps(0, every(SECOND, 20));
    let mut follower = run.follower();
    assert_eq!(follower.poll().state, RunState::Running);
    // A collector rewrites `run.json` regularly, so an old one means that the collector is gone.
    let info = File::options().write(true).open(run.path().join("run.json")).unwrap();
    let long_ago = SystemTime::now() - std::time::Duration::from_secs(600);
    info.set_modified(long_ago).unwrap();
    let cut = follower.poll();
    assert_eq!((cut.state, cut.time_ns), (RunState::CutOff, 20 * SECOND));
    run.info.finished = true;
    run.info.end_ns = Some(START + 25 * SECOND);
    run.write_info();
    let finished = follower.poll();
    assert_eq!((finished.state, finished.time_ns), (RunState::Finished, 25 * SECOND));
    assert_eq!(finished.command, ["python", "train.py"]);
}

#[test]
fn a_renamed_file_continues_and_a_replaced_one_starts_again() {
    let mut run = Run::begun(60 * SECOND, 1);
    run.mark_steps(0, every(SECOND, 9));
    let mut follower = run.follower();
    assert_eq!(values(&follower.poll(), "steps"), [Some(8.0)]);
    fs::rename(run.file(0), run.file(5)).unwrap();
    // The writer of rank 0 has the file open and now writes to `rank-5.tprof`.
    run.mark_steps(0, [10 * SECOND]);
    let renamed = follower.poll();
    assert_eq!((renamed.ranks[0].rank, renamed.ranks.len()), (Some(5), 1));
    assert_eq!(values(&renamed, "steps"), [Some(9.0)]);
    // The file that replaces it has no steps.
    let other = Run::begun(60 * SECOND, 1);
    fs::rename(other.file(0), run.file(5)).unwrap();
    let replaced = follower.poll();
    assert_eq!(values(&replaced, "steps"), [None]);
    fs::remove_file(run.file(5)).unwrap();
    assert_eq!(follower.poll().ranks, []);
}

#[test]
fn the_info_file_tells_restarts_from_launches() {
    let mut run = Run::begun(60 * SECOND, 1);
    fs::copy(run.file(0), run.path().join("rank-0.1.tprof")).unwrap();
    let rank_info =
        |file: &str, restarts| RankInfo { file: file.to_owned(), restarts, ..RankInfo::default() };
    let mut follower = run.follower();
    let labels =
        |snapshot: Snapshot| snapshot.ranks.into_iter().map(|rank| rank.label).collect::<Vec<_>>();
    assert_eq!(labels(follower.poll()), ["rank 0", "rank 0, restart 1"]);
    run.info.ranks = vec![rank_info("rank-0.tprof", 0), rank_info("rank-0.1.tprof", 0)];
    run.write_info();
    assert_eq!(labels(follower.poll()), ["rank 0", "rank 0, launch 2"]);
}

#[test]
fn values_of_metrics_are_in_the_history_and_the_heat_map() {
    let mut run = Run::begun(1300 * SECOND, 2);
    run.mark_steps(0, every(SECOND, 1200));
    // The last step of rank 1 takes 50 s.
    run.mark_steps(1, every(SECOND, 600).chain([650 * SECOND]));
    let mut follower = run.follower();
    follower.poll();
    let heat = follower.heat("step_ns");
    assert_eq!((heat.rows.len(), heat.values.len()), (2, 2));
    let columns = &heat.columns;
    assert!(columns.len() <= 200 && columns[0].from == 0);
    assert!(columns.windows(2).all(|pair| pair[0].to == pair[1].from));
    assert!(columns.last().unwrap().to >= 1300 * SECOND);
    let slow = columns.iter().position(|of| (of.from..of.to).contains(&(650 * SECOND))).unwrap();
    assert_eq!(heat.values[1][slow].0, Some(5e10), "a cell has the largest of its values");
    assert_eq!((heat.least.0, heat.most.0), (Some(1e9), Some(5e10)));
    // Rank 1 has no step after 650 s.
    assert_eq!(heat.values[1][slow + 5].0, None);
    assert!(heat.folded.unwrap().starts_with("max of "));
    assert!(follower.heat("nonsense").missing.unwrap().contains("step_ns"));
    assert!(follower.heat("gpu_power_watts").missing.is_some());
    let history = follower.with_history().history.unwrap();
    let course = &history.series["step_ns"];
    assert_eq!((course.len(), course[0].len()), (2, history.times_ns.len()));
    assert!(history.times_ns.len() <= 300 && history.times_ns.is_sorted());
    assert!(course[0].iter().flatten().count() > 100);
    assert!(!history.series.contains_key("gpu_power_watts"));
}

#[test]
fn many_ranks_are_folded_into_rows() {
    let mut run = Run::begun(60 * SECOND, 300);
    run.counter(0, 5 * SECOND, "rss_bytes", 3.0);
    run.counter(299, 5 * SECOND, "rss_bytes", 7.0);
    let mut follower = run.follower();
    follower.poll();
    let heat = follower.heat("rss_bytes");
    assert_eq!((heat.rows.len(), heat.rows[149].label.as_str()), (150, "rank 298 to rank 299"));
    assert_eq!(heat.most.0, Some(7.0));
    assert!(heat.folded.unwrap().contains("2 ranks"));
    // The history has only the first 32 ranks.
    assert_eq!(follower.with_history().history.unwrap().series["rss_bytes"].len(), 32);
}

/// A run whose files can be listed, but not opened while `is_refusing` is set.
struct RefusingFiles {
    inner: PlainFiles,
    is_refusing: RefCell<bool>,
}

impl RunFiles for RefusingFiles {
    fn directory(&self) -> &Path {
        self.inner.directory()
    }

    fn list(&self) -> io::Result<Vec<FileEntry>> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> io::Result<File> {
        match *self.is_refusing.borrow() {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => self.inner.open(name),
        }
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_a_problem_of_its_rank() {
    let mut run = Run::begun(60 * SECOND, 1);
    run.mark_steps(0, every(SECOND, 9));
    let inner = PlainFiles::of(run.path()).unwrap();
    let mut follower = Follower::new(RefusingFiles { inner, is_refusing: RefCell::new(true) });
    let nothing = follower.poll();
    assert_eq!((nothing.ranks.len(), nothing.recording), (1, None));
    assert!(nothing.ranks[0].problem.is_some());
    // A metric that no rank has a value of says why.
    assert_eq!(nothing.metrics[0].why.is_some(), nothing.metrics[0].values == [None]);
}

#[test]
fn a_file_that_is_not_a_trace_is_a_problem_of_its_rank_only() {
    let mut run = Run::begun(60 * SECOND, 1);
    run.mark_steps(0, every(SECOND, 9));
    fs::write(run.path().join("rank-1.tprof"), "{}").unwrap();
    // The name of this file is one of an info file, but its content isn't.
    fs::write(run.path().join("run-mine.json"), "{\"lr\": 1}").unwrap();
    let snapshot = run.follower().poll();
    assert!(snapshot.ranks[1].problem.as_ref().unwrap().contains("is not a tprof file"));
    assert_eq!(values(&snapshot, "steps"), [Some(8.0), None]);
}

#[test]
fn snapshots_survive_json_and_prometheus_escapes_labels() {
    let mut run = Run::begun(60 * SECOND, 1);
    run.mark_steps(0, every(SECOND, 9));
    run.counter(0, SECOND, "odd \"name\"\n\\", 1.5);
    let mut follower = run.follower();
    follower.poll();
    let snapshot = follower.with_history();
    let text = serde_json::to_string(&snapshot).unwrap();
    assert!(text.contains(r#""key":"step_ns","unit":"ns""#) && text.contains(":[1000000000]"));
    let read: Snapshot = serde_json::from_str(&text).unwrap();
    // The figures of steps are for scrapers only.
    assert_eq!(Snapshot { figures: snapshot.figures.clone(), ..read }, snapshot);
    let text = prometheus(&[("a\"b", &snapshot), ("c", &snapshot)]);
    let gauge = r#"tprof_rank_gauge{run="a\"b",rank="0",file="rank-0.tprof",host="elsewhere",name="odd \"name\"\n\\"} 1.5"#;
    assert!(text.contains(gauge), "{text}");
    assert!(text.contains("tprof_rank_step_seconds{run=\"c\",rank=\"0\","));
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split('{').next().unwrap();
        assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1, "{name}");
    }
    assert!(Metric::ALL.iter().all(|metric| Metric::ALL[metric.place()] == *metric));
}

/// Any times, among them extreme ones, as a damaged or hostile file may contain them.
fn times() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), START..START + 100 * SECOND]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn hostile_values_never_panic(
        starts in (times(), times(), times()),
        rows in prop::collection::vec((0..7u8, times(), times(), any::<f64>()), 0..60),
        finished: bool,
    ) {
        let mut run = Run::begun(60 * SECOND, 1);
        let header = TraceHeader {
            start_ns: starts.0,
            start_unix_ns: starts.1,
            ..TraceHeader::default()
        };
        let path = run.path().join("rank-1.tprof");
        let mut writer = TraceWriter::create(&path, &header).unwrap();
        let names = ["rss_bytes", "Optimizer.step#A.step", "step 18446744073709551615", "loss"];
        let names = names.map(|name| writer.name(name));
        for (kind, time_ns, other, value) in rows {
            let (process, name) = (Some(other as u32 % 2), names[(other % 4) as usize]);
            match kind {
                0 => writer.counter(Counter { time_ns, process, device: None, name, value }),
                1 => writer.counter(Counter { time_ns, process: None, device: Some(1), name, value }),
                2 => writer.mark(Mark { time_ns, process, name, kind: MarkKind::Step }),
                3 => {
                    let kind = [MarkKind::RecordingOn, MarkKind::RecordingOff][(other % 2) as usize];
                    let name = writer.name("cycle 1: step 18446744073709551615 (--schedule)");
                    writer.mark(Mark { time_ns, process, name, kind });
                }
                4 => {
                    let kind = [SpanKind::Annotation, SpanKind::Nvtx][(other % 2) as usize];
                    let span = Span { start_ns: time_ns, duration_ns: other, kind, name, ..Span::default() };
                    writer.write(&mut vec![span]).unwrap();
                }
                5 => {
                    let row = Sample { time_ns, weight_ns: other, stack: 1, ..Sample::default() };
                    writer.write(&mut vec![row; 3]).unwrap();
                }
                _ => {
                    writer.process(&Process {
                        process: other as u32 % 2,
                        pid: 7,
                        parent: 7,
                        rank: None,
                        command: name,
                        exe: name,
                        start_ns: time_ns,
                        memory: MemoryRecording::Off,
                    });
                    let tid = other as u32 % 9;
                    writer.thread(&Thread { thread: 0, process: 0, tid, start_ns: time_ns });
                    if other % 3 == 0 {
                        writer.process_end(0, time_ns, ProcessEnd::Signal(other as i32));
                    }
                }
            }
            writer.flush().unwrap();
        }
        run.info.start_unix_ns = starts.2;
        run.info.completeness.lost = starts.0;
        run.info.end_ns = Some(starts.1);
        run.info.finished = finished;
        run.write_info();
        let mut follower = run.follower();
        for _ in 0..2 {
            let snapshot = follower.poll();
            prop_assert_eq!(snapshot.ranks.len(), 2);
            let metrics = snapshot.metrics.iter().map(|metric| metric.key.clone());
            metrics.for_each(|key| drop(follower.heat(&key)));
            let whole = follower.with_history();
            let text = serde_json::to_string(&whole).unwrap();
            prop_assert!(serde_json::from_str::<Snapshot>(&text).is_ok());
            prometheus(&[("a", &whole)]);
        }
    }
}

#[test]
fn one_file_is_a_run_and_a_follower_may_move_to_another_thread() {
    let mut run = Run::begun(60 * SECOND, 2);
    run.mark_steps(1, every(SECOND, 9));
    let mut follower = Follower::new(PlainFiles::of(&run.file(1)).unwrap());
    let poll = move || follower.poll();
    let snapshot = std::thread::spawn(poll).join().unwrap();
    assert_eq!((snapshot.ranks.len(), snapshot.ranks[0].rank), (1, Some(1)));
    assert_eq!(values(&snapshot, "steps"), [Some(8.0)]);
    assert_eq!(snapshot.command, ["python", "train.py"]);
}

#[test]
fn a_failed_request_gets_its_line_once_the_file_has_its_stack() {
    let mut run = Run::begun(3 * SECOND, 1);
    let mut follower = run.follower();
    let writer = run.writer(0);
    let action = writer.name("oom");
    let args = writer.name(r#"{"allocated": 4096, "reserved": null, "thread": 0}"#);
    let row = AllocatorEvent {
        time_ns: Some(START + SECOND),
        device: Some(1),
        action,
        bytes: 2 << 20,
        stack: 7,
        args,
        ..AllocatorEvent::default()
    };
    let other = AllocatorEvent { action: writer.name("alloc"), ..row };
    writer.write(&mut vec![row, other, row]).unwrap();
    writer.flush().unwrap();
    let first = follower.poll();
    let failed = first.ranks[0].out_of_memory.clone().unwrap();
    assert_eq!((failed.count, failed.time_ns, failed.line), (2, Some(SECOND), None));
    assert_eq!((failed.asked_bytes, failed.device), (2 << 20, Some(1)));
    assert_eq!((failed.allocated_bytes, failed.reserved_bytes), (Some(4096), None));
    let of_kind = |snapshot: &Snapshot| {
        let events = snapshot.events.iter().filter(|one| one.kind == EventKind::OutOfMemory);
        events.map(|one| (one.time_ns, one.text.clone())).collect::<Vec<_>>()
    };
    assert_eq!(of_kind(&first), []);
    let writer = run.writer(0);
    let frames = [SYNTHETIC_FRAME, SYNTHETIC_FRAME | 1].to_vec();
    writer.stack(&Stack { process: 0, stack: 7, end: 0, frames });
    let module = writer.name("[python]");
    for (at, file, line) in [(0, "/usr/lib/python3.12/ctypes/__init__.py", 4), (1, "/job.py", 63)] {
        let (address, depth, file) = (SYNTHETIC_FRAME | at, 0, writer.name(file));
        let function = writer.name("step");
        writer.symbol(&Symbol { process: 0, address, depth, function, file, line, module });
    }
    writer.flush().unwrap();
    let second = follower.poll();
    let failed = second.ranks[0].out_of_memory.as_ref().unwrap();
    assert_eq!(failed.line.as_deref(), Some("/job.py:63 (step)"));
    let text = "2 requests for device memory failed, the last for 2.0 MiB of GPU 1 at /job.py:63 \
                (step); 4.0 KiB allocated";
    assert_eq!(of_kind(&second), [(SECOND, text.to_owned())]);
    assert_eq!(of_kind(&follower.poll()), []);
    assert!(prometheus(&[("r", &second)]).contains("tprof_run_out_of_memory_total{run=\"r\"} 2"));
}
