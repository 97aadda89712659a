//! Tests TensorBoard's event files by reading them in two ways: with a decoder that shares no code
//! with the writer, and with TensorBoard itself. The second way needs the tools of
//! `common/readers.rs`, or a Python with TensorBoard that `TPROF_TEST_TENSORBOARD` names.

use crate::common::{Job, NASTY, SMALL, START, STEP_NS, UNIX, readers, write_rank, write_run};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tprof_export::tensorboard::{
    CounterKey, Figure, LiveLog, RankFigures, RunAnalysis, StepCounter, StepFigures, export,
};
use tprof_export::{Options, Slice};
use tprof_trace::RunDir;
use tprof_trace::model::*;
use tprof_trace::{TraceHeader, TraceWriter};

/// Computes CRC32C bit by bit, with the reflected polynomial 0x1EDC6F41.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}

fn masked(bytes: &[u8]) -> u32 {
    let crc = crc32c(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the records of a file. Fails if a checksum is wrong or if bytes remain.
fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
    while !bytes.is_empty() {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert_eq!(word(&bytes[8..]), masked(&bytes[..8]), "the length's checksum");
        let (record, rest) = bytes[12..].split_at(length);
        assert_eq!(word(rest), masked(record), "the record's checksum");
        records.push(record);
        bytes = &rest[4..];
    }
    records
}

/// The value of a field of a protobuf message.
#[derive(Clone, Copy, Debug)]
enum Field<'a> {
    Number(u64),
    Wide([u8; 8]),
    Bytes(&'a [u8]),
    Narrow([u8; 4]),
}

impl<'a> Field<'a> {
    fn bytes(self) -> &'a [u8] {
        let Field::Bytes(bytes) = self else { panic!("{self:?} is no text") };
        bytes
    }

    fn double(self) -> f64 {
        let Field::Wide(bytes) = self else { panic!("{self:?} is no double") };
        f64::from_le_bytes(bytes)
    }
}

fn number<'a>(bytes: &mut &'a [u8]) -> u64 {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
    let (digits, rest): (&'a [u8], &'a [u8]) = bytes.split_at(end + 1);
    *bytes = rest;
    digits.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
}

/// Returns the fields of a message, in order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes);
        let length = match key & 7 {
            0 => 0,
            1 => 8,
            2 => number(&mut bytes) as usize,
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let (content, rest) = bytes.split_at(length);
        bytes = rest;
        fields.push((
            key >> 3,
            match key & 7 {
                0 => Field::Number(number(&mut bytes)),
                1 => Field::Wide(content.try_into().unwrap()),
                2 => Field::Bytes(content),
                _ => Field::Narrow(content.try_into().unwrap()),
            },
        ));
    }
    fields
}

fn field<'a>(bytes: &'a [u8], wanted: u64) -> Option<Field<'a>> {
    fields(bytes).into_iter().find(|(number, _)| *number == wanted).map(|(_, field)| field)
}

fn message<'a>(bytes: &'a [u8], path: &[u64]) -> &'a [u8] {
    path.iter().fold(bytes, |bytes, number| field(bytes, *number).unwrap().bytes())
}

fn text(bytes: &[u8], path: &[u64]) -> String {
    String::from_utf8(message(bytes, path).to_vec()).unwrap()
}

/// The points of curves, histograms and texts by tag. A point is its step, its time in seconds
/// since 1970, and its value.
type Points = BTreeMap<String, Vec<(u64, f64, Value)>>;

fn doubles(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// Returns the content of an event file, by tag.
fn events(path: &Path) -> Points {
    let bytes = std::fs::read(path).unwrap();
    let records = records(&bytes);
    assert_eq!(text(records[0], &[3]), "brain.Event:2");
    let mut points = Points::new();
    for record in records[1..].iter().filter(|record| field(record, 4).is_none()) {
        let wall_s = field(record, 1).unwrap().double();
        let step = match field(record, 2) {
            Some(Field::Number(step)) => step,
            other => panic!("{other:?} is no step"),
        };
        let value = message(record, &[5, 1]);
        let tag = text(value, &[1]);
        let is_first = !points.contains_key(&tag);
        assert_eq!(field(value, 9).is_some(), is_first, "{tag} is described once, at first");
        let shown = match (field(value, 2), field(value, 5), field(value, 8)) {
            (Some(Field::Narrow(bytes)), None, None) => json!(f32::from_le_bytes(bytes)),
            (None, Some(histogram), None) => {
                let of = histogram.bytes();
                let [min, max, count] = [1, 2, 3].map(|n| field(of, n).unwrap().double());
                let (limits, counts) = (doubles(message(of, &[6])), doubles(message(of, &[7])));
                assert_eq!((limits.len(), counts.iter().sum::<f64>()), (counts.len(), count));
                assert!(limits.is_sorted() && limits.last() == Some(&max), "{limits:?}");
                json!({ "min": min, "max": max, "count": count })
            }
            (None, None, Some(tensor)) => json!(text(tensor.bytes(), &[8])),
            other => panic!("{tag} has {other:?}"),
        };
        points.entry(tag).or_default().push((step, wall_s, shown));
    }
    points
}

/// Returns the only event file of a directory.
fn event_file(dir: &Path) -> PathBuf {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| path.to_string_lossy().contains("/events.out.tfevents.");
    let mut found = entries.filter(is_one);
    let one = found.next().unwrap();
    assert_eq!(found.next(), None);
    one
}

fn values(points: &Points, tag: &str) -> Vec<(u64, f64)> {
    let of = points.get(tag).unwrap_or_else(|| panic!("no {tag} among {:?}", points.keys()));
    of.iter().map(|(step, _, value)| (*step, value.as_f64().unwrap())).collect()
}

fn options(out: &Path) -> Options<'static> {
    Options { output: Some(out.to_path_buf()), ..Options::default() }
}

/// Returns figures as reports would compute them for [`SMALL`].
fn analysed() -> RunAnalysis {
    let steps = (0..SMALL.steps).map(|number| StepFigures {
        number,
        start_ns: 1_000_000 + number * STEP_NS,
        values: vec![(Figure::Compute, 3e6), (Figure::Busy, 0.5 + number as f64 / 8.0)],
    });
    let counter = CounterKey { name: "rss_bytes".into(), pid: Some(4242), device: None };
    let counters = vec![StepCounter { step: 0, counter, mean: 5000.5 }];
    let of_rank = RankFigures { steps: steps.collect(), counters };
    RunAnalysis {
        ranks: [("rank 1".to_owned(), of_rank)].into(),
        texts: vec![(
            "summary".to_owned(),
            "# A run\n\n| a | b |\n|---|--:|\n| größe | 1 |\n".to_owned(),
        )],
    }
}

#[test]
fn each_rank_has_its_curves_and_histograms() {
    let dir = tempfile::tempdir().unwrap();
    let counts = write_run(dir.path(), SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("logs");
    export(&run, &options(&out), &analysed()).unwrap();
    for (rank, counts) in counts.iter().enumerate() {
        let points = events(&event_file(&out.join(format!("rank-{rank}"))));
        let step_ms = (STEP_NS - 1000) as f64 / 1e6;
        let times = values(&points, "step/step_time_ms");
        assert_eq!(times, [0, 1, 2].map(|step| (step, f64::from(step_ms as f32))));
        // The second rank's clock is a second ahead of the first one's.
        let end_ns = 1_000_000 + STEP_NS - 1000;
        let at = (UNIX + end_ns) as f64 / 1e9;
        assert!((points["step/step_time_ms"][0].1 - at).abs() < 1e-6);
        let kernels: f64 =
            points["kernel_duration_us"].iter().map(|at| at.2["count"].as_f64().unwrap()).sum();
        assert_eq!(kernels, counts.kernels as f64);
        let histogram = &points["step_time_ms"][0];
        assert_eq!((histogram.0, &histogram.2["count"]), (2, &json!(3.0)));
        // Live heap bytes rise by a MiB each microsecond, 100 times. None of these blocks is freed.
        assert_eq!(
            values(&points, "step_peak/heap_bytes"),
            [0, 1, 2].map(|step| (step, 104_857_600.0))
        );
        // These are the allocator's totals at the operators 0, 4, …, 16.
        let device = values(&points, "step_peak/device_memory_bytes/GPU 0");
        assert_eq!(device, [0, 1, 2].map(|step| (step, 1_048_592.0)));
        let rss: Vec<(u64, f64)> = (0..5).map(|at| (at, 4096.0 * at as f64)).collect();
        assert_eq!(values(&points, "time/rss_bytes"), rss);
        // A value that the analysis does not know must be absent. Zero would be wrong.
        let of_analysis = [("step/compute_ms", 3.0), ("step_mean/rss_bytes", 5000.5)];
        for (tag, first) in of_analysis {
            match rank {
                1 => assert_eq!(values(&points, tag)[0], (0, first)),
                _ => assert!(!points.contains_key(tag), "{tag}"),
            }
        }
    }
    let points = events(&event_file(&out));
    assert_eq!(points["summary"][0].2, analysed().texts[0].1);
}

#[test]
fn tensorboard_reads_the_same_points() {
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), SMALL);
    odd_rank(&dir.path().join("rank-2.tprof"));
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("logs");
    export(&run, &options(&out), &analysed()).unwrap();
    let Some(read) = readers::tensorboard(&out) else { return };
    let mut runs: Vec<&String> = read.as_object().unwrap().keys().collect();
    runs.sort_unstable();
    assert_eq!(runs, [".", "rank-0", "rank-1", "rank-2"]);
    for run in runs {
        let (points, of) = (events(&event_file(&out.join(run))), &read[run]);
        for (tag, points) in &points {
            assert_ne!(of["about"][tag], "", "{tag} is described");
            let (scalars, histograms) = (&of["scalars"][tag], &of["histograms"][tag]);
            let read = [scalars, histograms, &of["text"][tag]];
            let read = read.iter().find_map(|found| found.as_array()).expect(tag);
            assert_eq!(read.len(), points.len(), "{tag}");
            for (point, (step, wall_s, value)) in read.iter().zip(points) {
                assert_eq!((&point[0], &point[1]), (&json!(step), &json!(wall_s)), "{tag}");
                match value {
                    Value::Number(_) => assert_eq!(point[2].as_f64(), value.as_f64(), "{tag}"),
                    Value::String(_) => assert_eq!(point[2][0], *value, "{tag}"),
                    Value::Null => assert!(point[2].is_null(), "{tag}"),
                    histogram => {
                        let buckets = point[2].as_array().unwrap();
                        let counts = buckets.iter().map(|bucket| bucket[2].as_f64().unwrap());
                        assert_eq!(counts.sum::<f64>(), histogram["count"], "{tag}");
                        // TensorBoard converts limits to 32-bit floats.
                        let narrow = |value: &Value| value.as_f64().unwrap() as f32;
                        let ends = [&buckets[0][0], &buckets.last().unwrap()[1]].map(narrow);
                        assert_eq!(
                            ends,
                            [&histogram["min"], &histogram["max"]].map(narrow),
                            "{tag}"
                        );
                    }
                }
            }
        }
    }
}

/// Writes a rank with two processes, and counters with unusual names and values.
fn odd_rank(path: &Path) {
    let header = TraceHeader {
        rank: Some(2),
        start_ns: START,
        start_unix_ns: UNIX,
        ..TraceHeader::default()
    };
    let mut writer = TraceWriter::create(path, &header).unwrap();
    let command = writer.name("python3 train.py");
    for process in 0..3 {
        writer.process(&Process {
            process,
            pid: 100 + process,
            parent: 1,
            rank: Some(2),
            command,
            exe: NameId(0),
            start_ns: START,
            memory: MemoryRecording::Off,
        });
    }
    let long = "l".repeat(1 << 20);
    let names = ["loss", NASTY, &long, "tokens", "a/b c", "huge"].map(|name| writer.name(name));
    let mut read = |at_ms: u64, process, name, value| {
        let time_ns = START + at_ms * 1_000_000;
        writer.counter(Counter { time_ns, process, device: None, name, value });
    };
    for (at_ms, value) in [(1, -3.5), (2, f64::NAN), (3, f64::INFINITY), (4, 0.0)] {
        names[..3].iter().for_each(|name| read(at_ms, Some(1), *name, value));
        read(at_ms, Some(2), names[0], value + 100.0);
    }
    for at in 0..5 {
        read(5 + 10 * at, Some(1), names[3], 512.0 * at as f64);
    }
    read(7, None, names[4], 1.0);
    read(7, None, names[5], 1e300);
    let step = writer.name("step");
    for at in 0..4 {
        let time_ns = START + (10 + 10 * at) * 1_000_000;
        writer.mark(Mark { time_ns, process: Some(1), name: step, kind: MarkKind::Step });
    }
    writer.finish().unwrap();
}

#[test]
fn counters_with_odd_names_or_values_have_separate_curves() {
    let dir = tempfile::tempdir().unwrap();
    odd_rank(&dir.path().join("rank-2.tprof"));
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("logs");
    let written = export(&run, &options(&out), &RunAnalysis::default()).unwrap();
    let points = events(&event_file(&out.join("rank-2")));
    // A loss can be NaN or infinite, which JSON cannot represent.
    assert_eq!(points["time/loss"].len(), 4);
    assert_eq!(points["time/loss"][0].2, -3.5);
    assert_eq!(points["time/loss"][1].2, Value::Null);
    // The process that runs the steps gets the plain name.
    assert_eq!(points["time/loss/python3"][0].2, 96.5);
    assert_eq!(points["time/a/b c"][0].2, 1.0);
    assert_eq!(points[&format!("time/{NASTY}")].len(), 4);
    let long = points.keys().find(|tag| tag.starts_with("time/lll")).unwrap();
    assert!(long.len() < 300, "{}", long.len());
    // Each step of 10 ms has 512 tokens.
    assert_eq!(values(&points, "step/tokens_per_s"), [0, 1, 2].map(|step| (step, 51_200.0)));
    assert!(!points.contains_key("time/huge"));
    assert!(
        written.notes.iter().any(|note| note.contains("32-bit numbers")),
        "{:?}",
        written.notes
    );
    assert!(!out.join("events.out.tfevents").exists());
}

#[test]
fn a_slice_contains_only_its_steps() {
    let dir = tempfile::tempdir().unwrap();
    write_rank(&dir.path().join("rank-0.tprof"), 0, Job { steps: 5, ..SMALL });
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("logs");
    let slice = Slice { steps: Some("2-3".parse().unwrap()), ..Slice::default() };
    export(&run, &Options { slice, ..options(&out) }, &RunAnalysis::default()).unwrap();
    let points = events(&event_file(&out.join("rank-0")));
    let steps: Vec<u64> =
        values(&points, "step/step_time_ms").iter().map(|point| point.0).collect();
    assert_eq!(steps, [2, 3]);
    assert!(!points.contains_key("time/rss_bytes"), "it was read before");
}

/// Writes a rank as it is after some seconds. It has a step and a loss every 100 ms, and resident
/// memory every 50 ms.
fn growing_rank(path: &Path, seconds: u64) {
    let header = TraceHeader {
        rank: Some(0),
        start_ns: START,
        start_unix_ns: UNIX,
        ..TraceHeader::default()
    };
    let _ = std::fs::remove_file(path);
    let mut writer = TraceWriter::create(path, &header).unwrap();
    let command = writer.name("python3 train.py");
    writer.process(&Process {
        process: 0,
        pid: 100,
        parent: 1,
        rank: Some(0),
        command,
        exe: NameId(0),
        start_ns: START,
        memory: MemoryRecording::Off,
    });
    let [step, loss, rss] = ["step", "loss", counter::RSS_BYTES].map(|name| writer.name(name));
    for at in 0..20 * seconds {
        let time_ns = START + at * 50_000_000;
        let (process, device) = (Some(0), None);
        if at % 2 == 0 {
            writer.mark(Mark { time_ns, process, name: step, kind: MarkKind::Step });
            writer.counter(Counter {
                time_ns,
                process,
                device,
                name: loss,
                value: 1.0 / (at + 1) as f64,
            });
        }
        let value = f64::from(1 << 20) * (at % 17) as f64;
        writer.counter(Counter { time_ns, process, device, name: rss, value });
    }
    writer.finish().unwrap();
}

#[test]
fn appended_points_stay_and_the_rest_is_added_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rank-0.tprof");
    let mut log = LiveLog::of(dir.path()).unwrap();
    assert!(log.append().is_err(), "there is no run yet");
    let mut before: Vec<u8> = Vec::new();
    for (seconds, steps) in [(4, 0), (12, 60), (12, 60), (19, 130)] {
        growing_rank(&file, seconds);
        log.append().unwrap();
        let logged = event_file(&dir.path().join("tensorboard/rank-0"));
        let bytes = std::fs::read(&logged).unwrap();
        assert!(bytes.starts_with(&before), "the earlier bytes are unchanged");
        before = bytes;
        let points = events(&logged);
        assert_eq!(points.get("step/step_time_ms").map_or(0, Vec::len), steps, "{seconds} s");
        assert!(!points.contains_key("step_peak/rss_bytes"));
    }
    growing_rank(&file, 30);
    let run = RunDir::open(dir.path()).unwrap();
    let written = log.finish(&run, &Options::default(), &analysed()).unwrap();
    assert_eq!(written.paths, [dir.path().join("tensorboard")]);
    assert!(dir.path().join("tensorboard/rank-0.pt.trace.json.gz").exists());
    let appended = events(&event_file(&dir.path().join("tensorboard/rank-0")));
    // An export after the end has the same points by step, but more readings over time.
    let out = dir.path().join("at-once");
    export(&run, &options(&out), &analysed()).unwrap();
    let at_once = events(&event_file(&out.join("rank-0")));
    assert_eq!(appended.keys().collect::<Vec<_>>(), at_once.keys().collect::<Vec<_>>());
    for (tag, points) in &at_once {
        match tag.as_str() {
            "time/loss" => {
                // While the run lasts, only the last reading of each second is appended.
                let kept: Vec<_> = points.iter().skip(9).step_by(10).collect();
                assert_eq!(appended[tag].iter().collect::<Vec<_>>(), kept, "{tag}");
            }
            "time/rss_bytes" => {
                let highest = points.chunks(20).map(|second| {
                    let values = second.iter().map(|point| point.2.as_f64().unwrap());
                    values.fold(0.0, f64::max)
                });
                assert_eq!(
                    values(&appended, tag).iter().map(|p| p.1).collect::<Vec<_>>(),
                    highest.collect::<Vec<_>>()
                );
            }
            _ => assert_eq!(appended[tag], *points, "{tag}"),
        }
    }
    assert!(LiveLog::of(dir.path()).is_none(), "the directory exists");
}

/// Writes a rank with two calls of a model. The calls have different operators.
fn rank_with_modules(path: &Path) {
    let header = TraceHeader { rank: Some(0), start_ns: START, ..TraceHeader::default() };
    let mut writer = TraceWriter::create(path, &header).unwrap();
    let sizes = writer.name(r#"{"Input Dims":[[4,8],[8,16]]}"#);
    let mut spans = Vec::new();
    let mut span = |kind, name: &str, from: u64, to: u64| {
        let name = writer.name(name);
        let args = if kind == SpanKind::Operator { sizes } else { NameId(0) };
        let (start_ns, duration_ns) = (START + from, to - from);
        spans.push(Span { kind, name, args, start_ns, duration_ns, thread: 1, ..Span::default() });
    };
    use SpanKind::{Annotation, Operator};
    span(Operator, "aten::zeros", 0, 5);
    for at in [10, 1000] {
        span(Annotation, "nn.Module: Net (Net)", at, at + 100);
        span(Annotation, "nn.Module: Net.layers (Sequential)", at + 1, at + 80);
        span(Annotation, "nn.Module: Net.layers.0 (Linear)", at + 2, at + 30);
        if at == 10 {
            span(Operator, "aten::linear", at + 3, at + 29);
            span(Operator, "aten::addmm", at + 4, at + 28);
        }
        span(Annotation, "nn.Module: Net.layers.1 (ReLU)", at + 30, at + 40);
        span(Annotation, "nn.Module: Net.layers.0 (Linear)", at + 41, at + 60);
        span(Operator, "aten::linear", at + 42, at + 59);
        span(Operator, "custom::add", at + 81, at + 90);
        span(Operator, "aten::add", at + 91, at + 95);
        span(Annotation, "nn.Module: Loss#2 (Loss)", at + 200, at + 300);
        span(Operator, "aten::mse_loss", at + 210, at + 290);
    }
    writer.write(&mut spans).unwrap();
    writer.finish().unwrap();
}

#[test]
fn the_graph_of_a_model_has_its_modules_and_their_operators() {
    let dir = tempfile::tempdir().unwrap();
    rank_with_modules(&dir.path().join("rank-0.tprof"));
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("logs");
    export(&run, &options(&out), &RunAnalysis::default()).unwrap();
    let bytes = std::fs::read(event_file(&out.join("rank-0"))).unwrap();
    let records = records(&bytes);
    let graphs: Vec<&[u8]> =
        records.iter().filter_map(|record| Some(field(record, 4)?.bytes())).collect();
    let [graph] = graphs[..] else { panic!("{} graphs", graphs.len()) };
    let nodes = fields(graph).into_iter().filter(|(number, _)| *number == 1);
    let found: Vec<[String; 3]> = nodes
        .map(|(_, node)| {
            let node = node.bytes();
            let input = field(node, 3).map(|name| String::from_utf8(name.bytes().to_vec()));
            [text(node, &[1]), text(node, &[2]), input.transpose().unwrap().unwrap_or_default()]
        })
        .collect();
    let expected = [
        ["Net/layers/0/linear", "aten::linear", ""],
        ["Net/layers/1", "ReLU", "Net/layers/0/linear"],
        ["Net/layers/0/linear_1", "aten::linear", "Net/layers/1"],
        ["Net/add", "custom::add", "Net/layers/0/linear_1"],
        ["Net/add_1", "aten::add", "Net/add"],
        ["Loss_2/mse_loss", "aten::mse_loss", ""],
    ];
    assert_eq!(found, expected.map(|row| row.map(str::to_owned)));
    let Some(read) = readers::tensorboard(&out) else { return };
    let read = read["rank-0"]["graph"].as_array().unwrap();
    assert_eq!(read.len(), expected.len());
    for (node, [name, operation, input]) in read.iter().zip(expected) {
        assert_eq!((&node[0], &node[1]), (&json!(name), &json!(operation)));
        let inputs: Vec<&str> = [input].into_iter().filter(|name| !name.is_empty()).collect();
        assert_eq!(node[2], json!(inputs));
        let about = match operation {
            "ReLU" => json!({ "module": "Net.layers.1" }),
            _ => json!({ "input_sizes": "[[4,8],[8,16]]" }),
        };
        assert_eq!(node[3], about);
    }
}

#[test]
fn damaged_histograms_are_counted_and_processes_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank-0.tprof");
    let header = TraceHeader { rank: Some(0), start_ns: START, ..TraceHeader::default() };
    let mut writer = TraceWriter::create(&path, &header).unwrap();
    let command = writer.name("python3 train.py");
    for process in 0..2 {
        writer.process(&Process {
            process,
            pid: 100 + process,
            parent: 1,
            rank: Some(0),
            command,
            exe: NameId(0),
            start_ns: START,
            memory: MemoryRecording::Off,
        });
    }
    let mut mark = |at_ms: u64, process, text: &str, kind| {
        let (name, time_ns) = (writer.name(text), START + at_ms * 1_000_000);
        writer.mark(Mark { time_ns, process: Some(process), name, kind });
    };
    let of = |least: f64, not_finite: u64| {
        format!(
            "w\u{1f}{{\"histogram\":{{\"min\":{least},\"max\":{},\"sum\":1,\"squares\":null,\
             \"counts\":[1,0,2],\"not_finite\":{not_finite}}}}}",
            least + 3.0
        )
    };
    for at in 0..3 {
        mark(10 * at, 0, "step", MarkKind::Step);
        mark(10 * at + 5, 0, &of(at as f64, 0), MarkKind::Histogram);
        mark(10 * at + 6, 1, &of(-1.0, 7), MarkKind::Histogram);
    }
    mark(30, 0, &of(0.5, 0)[..40], MarkKind::Histogram);
    writer.finish().unwrap();
    let run = RunDir::open(dir.path()).unwrap();
    let out = dir.path().join("logs");
    let written = export(&run, &options(&out), &RunAnalysis::default()).unwrap();
    let points = events(&event_file(&out.join("rank-0")));
    let own: Vec<_> = points["w"].iter().map(|(step, _, of)| (*step, of["min"].clone())).collect();
    // The third step also has a histogram, although it has begun but not ended.
    assert_eq!(own, [(0, json!(0.0)), (1, json!(1.0)), (2, json!(2.0))]);
    let other = &points["w/python3"];
    assert!(other.len() == 3 && other.iter().all(|at| at.2["max"] == 2.0 && at.2["count"] == 3.0));
    for word in ["21 values are not in the histograms `w`", "1 histogram was left out"] {
        assert!(written.notes.iter().any(|note| note.contains(word)), "{:?}", written.notes);
    }
    assert!(written.notes.last().unwrap().contains("torch-tb-profiler"));
}
