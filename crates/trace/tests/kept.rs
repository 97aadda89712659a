//! Of a file that keeps only the last part of what happened, readers get that part and everything
//! that it refers to, while the file is written, after its writer was killed, and at its end.

use crate::common;
use std::path::{Path, PathBuf};

use tprof_trace::model::*;
use tprof_trace::{
    FilePart, KeptRoom, TailDecoder, TailOptions, TraceFile, TraceTail, TraceWriter,
};

const MS: u64 = 1_000_000;
const SEGMENTS: &str = "kept-1";

fn create(directory: &Path, bytes: Option<u64>) -> (TraceWriter, PathBuf) {
    let path = directory.join("rank-0.tprof");
    let writer =
        TraceWriter::create_keeping(&path, &common::header(), SEGMENTS, KeptRoom::new(bytes));
    (writer.unwrap(), path)
}

/// Writes a step of ten spans, a sample and a reading, each millisecond.
fn step(writer: &mut TraceWriter, number: u64) {
    let start_ns = common::START + number * MS;
    let name = writer.name(&format!("operator {}", number % 7));
    let reading = writer.name("rss");
    let span = |at: u64| Span {
        start_ns: start_ns + at * MS / 10,
        duration_ns: MS / 20,
        name,
        ..Span::default()
    };
    let value = number as f64;
    writer.counter(Counter {
        time_ns: start_ns,
        process: Some(0),
        device: None,
        name: reading,
        value,
    });
    writer.mark(Mark { time_ns: start_ns, process: Some(0), name, kind: MarkKind::Step });
    writer.write(&mut (0..10).map(span).collect()).unwrap();
    let sample = Sample { time_ns: start_ns, stack: 1, weight_ns: MS, ..Sample::default() };
    writer.write(&mut vec![sample]).unwrap();
}

/// Writes steps, of which the last `kept` are kept.
fn run(writer: &mut TraceWriter, steps: std::ops::Range<u64>, kept: u64) {
    for number in steps {
        step(writer, number);
        let now_ns = common::START + number * MS;
        writer.forget_before(now_ns.saturating_sub(kept * MS), now_ns);
    }
}

fn spans(file: &TraceFile) -> Vec<Span> {
    file.blocks::<Span>().flatten().collect()
}

/// Checks that a file has everything that happened in the last `kept` of `steps`, and nothing from
/// before the time that it states.
#[track_caller]
fn has_last(path: &Path, steps: u64, kept: u64) {
    let file = TraceFile::open(path).unwrap();
    assert!(file.problems().is_empty(), "{:?}", file.problems());
    let since_ns = file.kept_since_ns().unwrap();
    let first = common::START + (steps - kept) * MS;
    assert!(since_ns <= first, "{since_ns} {first}");
    let spans = spans(&file);
    let later = spans.iter().filter(|span| span.start_ns >= first).count() as u64;
    assert_eq!(later, kept * 10);
    assert!(spans.iter().all(|span| span.start_ns >= since_ns), "since {since_ns}");
    assert!(spans.iter().all(|span| file.name(span.name).starts_with("operator ")));
    let readings = file.counters().iter().filter(|row| row.time_ns >= first).count() as u64;
    assert_eq!(readings, kept);
}

#[test]
fn the_last_part_is_read_while_it_is_written_and_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, path) = create(directory.path(), None);
    run(&mut writer, 0..1000, 100);
    writer.flush().unwrap();
    has_last(&path, 1000, 100);
    let recorded = writer.recorded();
    assert!((1000..1200).contains(&recorded.events), "{recorded:?}");
    let segments = || std::fs::read_dir(directory.path().join(SEGMENTS)).map(Iterator::count);
    assert!((20..=24).contains(&segments().unwrap()), "{segments:?}", segments = segments());
    writer.finish().unwrap();
    has_last(&path, 1000, 100);
    let file = TraceFile::open(&path).unwrap();
    assert!(file.is_closed() && segments().is_err());
    assert!(file.recorded().events <= recorded.events);
}

#[test]
fn figures_of_steps_stay_when_the_steps_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, path) = create(directory.path(), None);
    let row = |number: u64| HistoryRow {
        start_ns: common::START + number * MS,
        duration_ns: MS,
        first_step: number,
        steps: 1,
        busy_ns: number.is_multiple_of(2).then_some(number),
        ..HistoryRow::default()
    };
    for number in 0..1000 {
        run(&mut writer, number..number + 1, 100);
        if number % 100 == 99 {
            writer.write(&mut (number - 99..=number).map(row).collect()).unwrap();
        }
    }
    let check = |file: &TraceFile| {
        assert_eq!(file.rows::<HistoryRow>().0, (0..1000).map(row).collect::<Vec<_>>());
        assert!(file.kept_since_ns().is_some() && spans(file).len() < 1200);
    };
    writer.flush().unwrap();
    check(&TraceFile::open(&path).unwrap());
    let copy = writer.copy_kept().unwrap().unwrap();
    let dump = directory.path().join("dump.tprof");
    copy.write(&dump, &[]).unwrap();
    check(&TraceFile::open(&dump).unwrap());
    writer.finish().unwrap();
    let mut file = TraceFile::open(&path).unwrap();
    check(&file);
    // A part of the run has the figures of that part.
    let times_ns = vec![(common::START + 10 * MS, common::START + 20 * MS)];
    file.read_only(FilePart { recorded_ns: times_ns.clone(), times_ns, device_until_ns: None });
    assert_eq!(file.rows::<HistoryRow>().0, (10..20).map(row).collect::<Vec<_>>());
    assert_eq!(spans(&file), []);
}

#[test]
fn nothing_is_missing_as_long_as_nothing_was_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, path) = create(directory.path(), None);
    for number in 0..50 {
        step(&mut writer, number);
        writer.forget_before(common::START - 1, common::START + number * MS);
    }
    let segments = std::fs::read_dir(directory.path().join(SEGMENTS)).unwrap().count();
    assert!(segments > 5, "{segments}");
    writer.finish().unwrap();
    let file = TraceFile::open(&path).unwrap();
    assert_eq!((file.kept_since_ns(), spans(&file).len()), (None, 500));
    assert!(file.part().is_none());
}

#[test]
fn a_limit_of_size_holds_at_every_moment() {
    let directory = tempfile::tempdir().unwrap();
    let most = 4 << 20;
    let (mut writer, path) = create(directory.path(), Some(most));
    let of_segments = || -> u64 {
        let files = std::fs::read_dir(directory.path().join(SEGMENTS)).into_iter().flatten();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    for number in 0..30_000 {
        step(&mut writer, number);
        if number % 100 == 0 {
            assert!(of_segments() <= most, "{} at {number}", of_segments());
        }
    }
    assert!(of_segments() > most * 9 / 10, "{}", of_segments());
    writer.finish().unwrap();
    let file = TraceFile::open(&path).unwrap();
    let since_ns = file.kept_since_ns().unwrap();
    let steps = (common::START + 30_000 * MS - since_ns) / MS;
    has_last(&path, 30_000, steps - 1);
}

#[test]
fn files_share_their_room() {
    let directory = tempfile::tempdir().unwrap();
    let room = KeptRoom::new(Some(2 << 20));
    let mut writers: Vec<TraceWriter> = (0..3)
        .map(|rank| {
            let path = directory.path().join(format!("rank-{rank}.tprof"));
            let segments = format!("kept-{rank}");
            let header = common::header();
            TraceWriter::create_keeping(&path, &header, &segments, room.clone()).unwrap()
        })
        .collect();
    for number in 0..10_000 {
        writers.iter_mut().for_each(|writer| step(writer, number));
    }
    let of = |rank: u32| {
        let files = std::fs::read_dir(directory.path().join(format!("kept-{rank}"))).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>()
    };
    let all = [of(0), of(1), of(2)];
    assert!(all.iter().sum::<u64>() <= 2 << 20, "{all:?}");
    assert!(all.iter().all(|bytes| *bytes > 500_000), "{all:?}");
}

#[test]
fn a_killed_writer_leaves_the_last_part() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, path) = create(directory.path(), None);
    run(&mut writer, 0..300, 50);
    std::mem::forget(writer);
    has_last(&path, 300, 50);
    // The killed writer was writing into the last segment.
    let segments = directory.path().join(SEGMENTS);
    let last = std::fs::read_dir(&segments).unwrap().map(|file| file.unwrap().path()).max();
    let last = std::fs::OpenOptions::new().write(true).open(last.unwrap()).unwrap();
    last.set_len(last.metadata().unwrap().len() - 7).unwrap();
    let file = TraceFile::open(&path).unwrap();
    assert_eq!(file.problems().len(), 1, "{:?}", file.problems());
    assert!(spans(&file).len() > 450);
}

#[test]
fn names_of_steps_are_deleted_with_them() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, path) = create(directory.path(), None);
    let names = || {
        let file = TraceFile::open(&path).unwrap();
        let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::Step);
        let of: Vec<String> = marks.map(|mark| file.name(mark.name).to_owned()).collect();
        (of, file.names().filter(|(_, name)| name.starts_with("step ")).count())
    };
    for number in 0..1000 {
        let time_ns = common::START + number * MS;
        writer.mark_named((Some(0), time_ns), MarkKind::Step, &format!("step {number}"));
        writer.flush().unwrap();
        writer.forget_before(time_ns.saturating_sub(100 * MS), time_ns);
    }
    let check = |end: bool| {
        let (of, all) = names();
        assert!((100..200).contains(&of.len()) && all < 200, "{} {all} {end}", of.len());
        let numbers = (1000 - of.len()..1000).map(|number| format!("step {number}"));
        assert!(of.into_iter().eq(numbers));
    };
    check(false);
    writer.finish().unwrap();
    check(true);
}

#[test]
fn rows_that_are_shown_are_read_at_once_and_stay_once() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, path) = create(directory.path(), None);
    let row = |number: u64| HistoryRow {
        start_ns: common::START + number * MS,
        steps: 1,
        ..HistoryRow::default()
    };
    let mut tail = TraceTail::new(&path, TailOptions::default());
    let mut decoder = TailDecoder::new().unwrap();
    let mut news = || {
        let rows = tail.read_more(&std::fs::File::open(&path).unwrap(), &mut decoder).unwrap();
        rows.history.iter().map(|row| row.start_ns).collect::<Vec<u64>>()
    };
    let times = |rows: std::ops::Range<u64>| rows.map(|at| row(at).start_ns).collect::<Vec<u64>>();
    assert!(writer.show(&[row(0), row(1)]).unwrap());
    assert_eq!(news(), times(0..2));
    writer.write(&mut (0..4).map(row).collect()).unwrap();
    assert_eq!(news(), times(2..4));
    let copy = writer.copy_kept().unwrap().unwrap();
    let dump = directory.path().join("dump.tprof");
    copy.write(&dump, &[]).unwrap();
    writer.finish().unwrap();
    assert_eq!(news(), times(0..0));
    for path in [&path, &dump] {
        let file = TraceFile::open(path).unwrap();
        assert_eq!(file.rows::<HistoryRow>().0, (0..4).map(row).collect::<Vec<_>>());
    }
}

#[test]
fn a_copy_is_a_whole_file_and_the_writer_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, path) = create(directory.path(), None);
    run(&mut writer, 0..500, 100);
    let copy = writer.copy_kept().unwrap().unwrap();
    let (recorded, since_ns) = (copy.recorded(), copy.since_ns());
    // The segments of the copy are deleted before it is written.
    run(&mut writer, 500..1000, 100);
    let (there, to) = (tempfile::tempdir().unwrap(), "dump.tprof");
    let to = there.path().join(to);
    copy.write(&to, &[("tprof.dumped_for", "SlowStep")]).unwrap();
    has_last(&to, 500, 100);
    // It may be written again, then without the property.
    let again = there.path().join("again.tprof");
    copy.write(&again, &[]).unwrap();
    has_last(&again, 500, 100);
    assert_eq!(TraceFile::open(&again).unwrap().property("tprof.dumped_for"), None);
    let file = TraceFile::open(&to).unwrap();
    assert!(file.is_closed());
    assert_eq!(file.kept_since_ns(), Some(since_ns));
    assert_eq!(file.property("tprof.dumped_for"), Some("SlowStep"));
    assert!(file.recorded().events <= recorded.events && recorded.events < 1200);
    writer.finish().unwrap();
    has_last(&path, 1000, 100);
    assert_eq!(TraceFile::open(&path).unwrap().property("tprof.dumped_for"), None);
}

#[test]
fn what_describes_the_job_is_not_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, path) = create(directory.path(), None);
    let name = writer.name("train");
    writer.process(&common::process(0, name));
    writer.process(&common::process(1, name));
    let time_ns = common::START + 1;
    let why = writer.name("tprof ctl stop");
    for kind in [MarkKind::RecordingOff, MarkKind::RecordingOn] {
        writer.mark(Mark { time_ns, process: None, name: why, kind });
    }
    let totals =
        |process, time_ns| HeapTotals { process, time_ns, allocations: 7, ..HeapTotals::default() };
    writer.totals(totals(1, time_ns));
    for number in 0..500 {
        let now_ns = common::START + number * MS;
        writer.totals(totals(0, now_ns));
        step(&mut writer, number);
        writer.forget_before(now_ns.saturating_sub(50 * MS), now_ns);
    }
    writer.finish().unwrap();
    let file = TraceFile::open(&path).unwrap();
    assert_eq!(file.processes().len(), 2);
    let switched = file.marks().iter().filter(|mark| mark.name == why).count();
    assert_eq!(switched, 2);
    let of = |process| file.totals().iter().filter(|row| row.process == process).count();
    assert_eq!(of(1), 1, "the totals of a process that ended long ago");
    assert!((50..60).contains(&of(0)), "{}", of(0));
}

#[test]
fn a_part_of_the_file_begins_with_what_was_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, path) = create(directory.path(), None);
    run(&mut writer, 0..300, 50);
    writer.finish().unwrap();
    let mut file = TraceFile::open(&path).unwrap();
    let since_ns = file.kept_since_ns().unwrap();
    let (from, to) = (common::START, common::START + 280 * MS);
    let times = vec![(from, to)];
    file.read_only(FilePart { times_ns: times.clone(), recorded_ns: times, device_until_ns: None });
    assert_eq!(file.part().unwrap().times_ns, [(since_ns, to)]);
    let spans = spans(&file);
    assert!(spans.iter().all(|span| (since_ns..to).contains(&span.start_ns)));
    assert!(spans.len() >= 290, "{}", spans.len());
}

#[test]
fn a_live_reader_gets_each_row_once() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, path) = create(directory.path(), None);
    let mut tail = TraceTail::new(&path, TailOptions { samples: true, ..TailOptions::default() });
    let mut decoder = TailDecoder::new().unwrap();
    let (mut readings, mut samples) = (Vec::new(), 0);
    let mut read = |tail: &mut TraceTail| {
        let news = tail.read_more(&std::fs::File::open(&path).unwrap(), &mut decoder).unwrap();
        readings.extend(news.counters.iter().map(|row| row.value as u64));
        samples += news.samples.len();
        assert!(!news.restarted);
    };
    for number in 0..500 {
        step(&mut writer, number);
        let now_ns = common::START + number * MS;
        writer.forget_before(now_ns.saturating_sub(50 * MS), now_ns);
        if number % 10 == 0 {
            writer.flush().unwrap();
            read(&mut tail);
        }
    }
    writer.finish().unwrap();
    read(&mut tail);
    assert!(tail.is_closed());
    assert_eq!(readings, (0..500).collect::<Vec<u64>>());
    assert_eq!((samples, tail.events(), tail.damaged()), (500, 5000, 0));
}

/// A header that names a directory elsewhere is hostile.
#[test]
fn segments_elsewhere_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = directory.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("0000000000"), "no block").unwrap();
    for name in ["../elsewhere", "/etc", "..", "."] {
        let header = tprof_trace::TraceHeader { segments: name.to_owned(), ..common::header() };
        let run = tempfile::tempdir_in(directory.path()).unwrap();
        let path = run.path().join("rank-0.tprof");
        TraceWriter::create(&path, &header).unwrap().flush().unwrap();
        assert!(TraceFile::open(&path).unwrap().problems().is_empty(), "{name}");
    }
}
