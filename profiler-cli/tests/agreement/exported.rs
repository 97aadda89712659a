//! Reads the figures that exports of a run contain.

use std::collections::BTreeMap;
use std::fs::File;

use flate2::read::GzDecoder;
use serde_json::Value;
use tprof_export::{ExportError, Options, Selection, Slice, chrome, flame};
use tprof_trace::RunDir;

use super::reported::{Steps, Work};

/// Figures about devices on the flame page.
pub struct Flame {
    pub work: Work,
    pub busy_ns: f64,
}

pub fn flame(run: &RunDir) -> Flame {
    let json = flame_json(run);
    let profile = profile(&json, "gpu");
    let mut work = Work::new();
    for node in profile["nodes"].as_array().unwrap() {
        let frame = &json["frames"][node["frame"].as_u64().unwrap() as usize];
        let class = match frame["kind"].as_str().unwrap() {
            "kernel" => "compute",
            "collective" => "communication",
            "copy" => "memory",
            _ => continue,
        };
        let name = frame["name"].as_str().unwrap().to_owned();
        *work.entry((class.to_owned(), name)).or_default() += node["self"][1].as_u64().unwrap();
    }
    Flame { work, busy_ns: profile["measures"][0]["total"].as_f64().unwrap() }
}

/// Returns the labels that the flame page has for the run's files.
pub fn labels(run: &RunDir) -> Vec<String> {
    let json = flame_json(run);
    let frames = json["frames"].as_array().unwrap().iter();
    let ranks = frames.filter(|frame| frame["kind"] == "rank");
    ranks.map(|frame| frame["name"].as_str().unwrap().to_owned()).collect()
}

fn flame_json(run: &RunDir) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flame.json");
    let output = Some(path.clone());
    flame::export(run, &Options { output, json: true, ..Options::default() }).unwrap();
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn profile<'a>(json: &'a Value, key: &str) -> &'a Value {
    json["profiles"].as_array().unwrap().iter().find(|profile| profile["key"] == key).unwrap()
}

/// Returns the names of copies in torch.profiler's JSON, and the number of copies with each.
pub fn copies(run: &RunDir) -> BTreeMap<String, u64> {
    let dir = tempfile::tempdir().unwrap();
    let output = Some(dir.path().to_path_buf());
    let written = chrome::export(run, &Options { output, ..Options::default() }).unwrap();
    let mut copies = BTreeMap::new();
    for path in written.paths {
        let json: Value =
            serde_json::from_reader(GzDecoder::new(File::open(path).unwrap())).unwrap();
        for event in json["traceEvents"].as_array().unwrap() {
            if event["cat"] == "gpu_memcpy" || event["cat"] == "gpu_memset" {
                let name = event["name"].as_str().unwrap().to_owned();
                *copies.entry(name).or_default() += 1;
            }
        }
    }
    copies
}

pub fn start_unix_ns(run: &RunDir) -> u64 {
    let slice = Slice::default();
    Selection::new(run, &slice, None).unwrap().zero.unix_ns
}

/// Returns the steps with their times in exports. Each step is selected by its number, as `--steps`
/// does.
pub fn steps(run: &RunDir) -> Steps {
    let mut steps = Steps::new();
    let none = Slice { steps: Some("18446744073709551615".parse().unwrap()), ..Slice::default() };
    for file in run.files() {
        let selection = Selection::new(run, &none, None).unwrap();
        let there = match selection.open(file) {
            Err(ExportError::NoStep { available, .. }) => available,
            _ => panic!("there is such a step"),
        };
        for number in there {
            let wanted = number.to_string().parse().unwrap();
            let slice = Slice { steps: Some(wanted), ..Slice::default() };
            let part = Selection::new(run, &slice, None).unwrap().open(file).unwrap();
            let (from_ns, to_ns) =
                (part.since_start(part.window.from_ns), part.since_start(part.window.to_ns));
            steps.insert((file.label.to_string(), number), (from_ns, to_ns));
        }
    }
    steps
}
