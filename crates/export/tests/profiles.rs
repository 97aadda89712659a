//! Tests speedscope and pprof files, and what TensorBoard's plugin and HTA read from traces.

use crate::common;
use crate::common::{NASTY, SMALL, readers};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use tprof_export::{
    ExportError, Options, Written, chrome, flame, folded, perfetto, pprof, speedscope, tensorboard,
    timeline,
};
use tprof_trace::{RunDir, TraceHeader, TraceWriter};

fn options(output: &Path) -> Options<'static> {
    Options { output: Some(output.to_path_buf()), ..Options::default() }
}

fn small() -> (tempfile::TempDir, RunDir, Vec<common::Counts>) {
    let dir = tempfile::tempdir().unwrap();
    let counts = common::write_run(dir.path(), SMALL);
    let run = RunDir::open(dir.path()).unwrap();
    (dir, run, counts)
}

#[test]
fn speedscope_profiles_nest_and_add_up() {
    let (dir, run, counts) = small();
    let path = dir.path().join("out.speedscope.json");
    let written = speedscope::export(&run, &options(&path)).unwrap();
    assert_eq!(written.left_out, 0);
    let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let frames = json["shared"]["frames"].as_array().unwrap();
    assert!(frames.iter().any(|frame| frame["name"] == NASTY && frame["line"] == 12));
    let (mut opened, mut spent) = (0, 0);
    for profile in json["profiles"].as_array().unwrap() {
        let end = profile["endValue"].as_u64().unwrap();
        if profile["type"] == "sampled" {
            let weights = profile["weights"].as_array().unwrap();
            assert_eq!(weights.len(), profile["samples"].as_array().unwrap().len());
            assert_eq!(weights.iter().map(|w| w.as_u64().unwrap()).sum::<u64>(), end);
            continue;
        }
        // As speedscope's own importer requires, a frame must close before the frames around it.
        let (mut stack, mut last) = (Vec::new(), profile["startValue"].as_u64().unwrap());
        for event in profile["events"].as_array().unwrap() {
            let (frame, at) = (event["frame"].as_u64().unwrap(), event["at"].as_u64().unwrap());
            assert!(at >= last && (frame as usize) < frames.len(), "{event}");
            last = at;
            if event["type"] == "O" {
                opened += 1;
                stack.push((frame, at));
            } else {
                let (open, since) = stack.pop().unwrap();
                assert_eq!(open, frame);
                spent += at - since;
            }
        }
        assert!(stack.is_empty() && last == end);
    }
    assert_eq!(opened, counts.iter().map(|c| c.spans).sum::<u64>());
    assert_eq!(spent, counts.iter().map(|c| c.span_ns).sum::<u64>());
}

/// Returns the fields of a protobuf message. A field is its number and a varint, or its number and
/// bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let number = varint(&mut bytes);
        match tag & 7 {
            0 => fields.push((tag >> 3, number, &bytes[..0])),
            2 => {
                let (value, rest) = bytes.split_at(number as usize);
                fields.push((tag >> 3, 0, value));
                bytes = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    fields
}

#[test]
fn pprof_values_add_up() {
    let (dir, run, counts) = small();
    let path = dir.path().join("out.pb.gz");
    pprof::export(&run, &options(&path)).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(&path).unwrap()).read_to_end(&mut bytes).unwrap();
    let all = fields(&bytes);
    let strings: Vec<_> = all.iter().filter(|f| f.0 == 6).map(|f| f.2).collect();
    assert_eq!(strings[0], b"");
    assert!(strings.contains(&NASTY.as_bytes()));
    let kinds: Vec<&[u8]> = all
        .iter()
        .filter(|field| field.0 == 1)
        .map(|field| strings[fields(field.2)[0].1 as usize])
        .collect();
    let mut sums: BTreeMap<&[u8], u64> = BTreeMap::new();
    for sample in all.iter().filter(|field| field.0 == 2) {
        let values = fields(sample.2);
        for (kind, value) in kinds.iter().zip(values.iter().filter(|value| value.0 == 2)) {
            *sums.entry(kind).or_default() += value.1;
        }
    }
    let samples: u64 = counts.iter().map(|c| c.samples).sum();
    assert_eq!(sums[&b"samples"[..]], samples);
    assert_eq!(sums[&b"cpu"[..]] + sums[&b"off_cpu"[..]], samples * 1_000_000);
    assert!(sums[&b"off_cpu"[..]] > 0);
    assert_eq!(sums[&b"alloc_objects"[..]], 200);
    assert_eq!(sums[&b"alloc_space"[..]], 200 << 20);
}

#[test]
fn the_pprof_tool_of_go_reads_the_same_sums() {
    let (dir, run, counts) = small();
    let path = dir.path().join("out.pb.gz");
    pprof::export(&run, &options(&path)).unwrap();
    let Some((sums, text)) = readers::pprof(&path) else { return };
    let samples: u64 = counts.iter().map(|c| c.samples).sum();
    let of = |kind: &str| sums.iter().find(|sum| sum.0 == kind).map(|sum| sum.1);
    assert_eq!(of("samples/count"), Some(samples), "{sums:?}");
    let times = of("cpu/nanoseconds").unwrap() + of("off_cpu/nanoseconds").unwrap();
    assert_eq!(times, samples * 1_000_000);
    assert_eq!(of("alloc_objects/count"), Some(200));
    assert_eq!(of("alloc_space/bytes"), Some(200 << 20));
    assert!(text.contains(NASTY), "{text}");
}

#[test]
fn an_export_without_data_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank-0.tprof");
    TraceWriter::create(&path, &TraceHeader::default()).unwrap().finish().unwrap();
    let run = RunDir::open(&path).unwrap();
    let out = dir.path().join("out");
    let none = pprof::export(&run, &options(&out)).unwrap_err();
    assert!(matches!(none, ExportError::Nothing { format: "pprof", .. }), "{none}");
    let none = speedscope::export(&run, &options(&out)).unwrap_err();
    assert!(matches!(none, ExportError::Nothing { format: "speedscope", .. }), "{none}");
    assert!(!out.exists());
}

#[test]
fn tensorboards_plugin_finds_every_kernel() {
    let (dir, run, counts) = small();
    let out = dir.path().join("logs");
    let written =
        tensorboard::export(&run, &options(&out), &tensorboard::RunAnalysis::default()).unwrap();
    assert_eq!(written.paths, std::slice::from_ref(&out));
    let Some(read) = readers::python("plugin.py", &[&out]) else { return };
    for (rank, counts) in counts.iter().enumerate() {
        let worker = &read[format!("rank-{rank}")];
        assert_eq!(worker["kernels"], counts.kernels, "{read}");
        let kernel_us = worker["kernel_us"].as_f64().unwrap();
        assert!((kernel_us - counts.kernel_ns as f64 / 1e3).abs() < 60.0, "{kernel_us}");
        let names = worker["names"].as_array().unwrap();
        assert!(names.iter().any(|name| name == NASTY), "{names:?}");
    }
}

#[test]
fn holistic_trace_analysis_loads_every_rank() {
    let (_dir, run, counts) = small();
    let written = chrome::export(&run, &Options::default()).unwrap();
    let paths: Vec<&Path> = written.paths.iter().map(PathBuf::as_path).collect();
    let Some(read) = readers::python("holistic.py", &paths) else { return };
    let breakdown = &read["temporal_breakdown"];
    let columns = breakdown["columns"].as_array().expect("a table, not an error");
    let at = columns.iter().position(|column| column == "compute_time(us)").unwrap();
    for (row, counts) in breakdown["data"].as_array().unwrap().iter().zip(&counts) {
        // HTA rounds each kernel to whole microseconds, and ignores the last step.
        let compute = row[at].as_f64().unwrap();
        let all = counts.kernel_ns as f64 / 1e3;
        let (steps, kernels) = (SMALL.steps as f64, counts.kernels as f64);
        let share = all * (steps - 1.0) / steps;
        assert!(compute > share - kernels && compute < all + kernels, "{compute} of {all}");
    }
}

type Export = fn(&RunDir, &Options<'_>) -> Result<Written, ExportError>;

const FORMATS: [(&str, Export); 7] = [
    ("chrome", chrome::export),
    ("flame", flame::export),
    ("folded", folded::export),
    ("perfetto", perfetto::export),
    ("pprof", pprof::export),
    ("speedscope", speedscope::export),
    ("timeline", timeline::export),
];

/// Returns, for each format, the bytes that an export of a run writes, and its notes.
fn outputs(dir: &Path) -> Vec<(Vec<u8>, Vec<String>)> {
    let run = RunDir::open(dir).unwrap();
    let out = tempfile::tempdir().unwrap();
    let made = FORMATS.into_iter().map(|(name, export)| {
        let path = out.path().join(name);
        let written = export(&run, &options(&path)).unwrap();
        (std::fs::read(&written.paths[0]).unwrap(), written.all_notes().collect())
    });
    made.collect()
}

#[test]
fn an_export_that_a_damaged_block_changes_has_a_note() {
    let dir = tempfile::tempdir().unwrap();
    common::write_run(dir.path(), common::Job { ranks: 1, ..SMALL });
    let path = dir.path().join("rank-0.tprof");
    let bytes = std::fs::read(&path).unwrap();
    let good = outputs(dir.path());
    let is_block = |at: &usize| bytes[*at..].starts_with(b"tpB\xf1");
    // Damage only blocks of heap events and of large tables, because an export decodes them late.
    // All other blocks are decoded when a file is opened.
    let is_large = |at: &usize| matches!(bytes[at + 4], 16 | 19 | 32..=38 | 44);
    let blocks: Vec<usize> = (0..bytes.len() - 5).filter(is_block).filter(is_large).collect();
    assert_eq!(blocks.len(), 10, "{blocks:?}");
    let mut changed = [false; FORMATS.len()];
    for at in blocks {
        let mut flipped = bytes.clone();
        flipped[at + 70] ^= 1;
        std::fs::write(&path, flipped).unwrap();
        for (which, (output, notes)) in outputs(dir.path()).into_iter().enumerate() {
            let is_named = notes.iter().any(|note| note.contains(&format!("(at byte {at})")));
            let differs = output != good[which].0;
            changed[which] |= differs;
            let (name, table) = (FORMATS[which].0, bytes[at + 4]);
            assert!(!differs || is_named, "{name}, table {table}: {notes:?}");
        }
    }
    assert!(changed.iter().all(|changed| *changed), "{changed:?}");
}
