//! Imports real traces, if the machine has any, and accounts for every event.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use tprof_import::{Options, import};
use tprof_trace::model::*;
use tprof_trace::{RunDir, TraceFile};

/// Returns the folders of traces in `TPROF_SHARED_DATA/kineto`, or in `shared/data/kineto` next to
/// the checkout.
fn sets() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var_os("TPROF_SHARED_DATA").map_or(root, PathBuf::from);
    let Ok(entries) = std::fs::read_dir(data.join("kineto")) else {
        eprintln!("skipped: no traces in TPROF_SHARED_DATA");
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Counts events by phase and category with an independent JSON parser, as the reference.
fn counts(path: &Path) -> BTreeMap<String, u64> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_end(&mut text).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let mut counts = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let part = |key: &str| event[key].as_str().unwrap_or_default();
        *counts
            .entry(format!("{} {}", part("ph"), part("cat")).trim_end().to_owned())
            .or_default() += 1;
    }
    counts
}

#[test]
fn every_event_of_real_traces_is_accounted_for() {
    for set in sets() {
        let scratch = tempfile::tempdir().unwrap();
        let output = scratch.path().join("run");
        let imported = import(std::slice::from_ref(&set), &output, &Options::new("test")).unwrap();
        assert_eq!(imported.lost, 0, "{}", set.display());
        let run = RunDir::open(&output).unwrap();
        for (path, source) in &imported.files {
            let file = TraceFile::open(path).unwrap();
            assert_eq!(file.problems(), []);
            let counts = counts(source);
            let read: serde_json::Value =
                serde_json::from_str(file.property("tprof.import").unwrap()).unwrap();
            let read: BTreeMap<String, u64> =
                serde_json::from_value(read["events"].clone()).unwrap();
            assert_eq!(read, counts, "{}", source.display());
            let sum =
                |kinds: &[&str]| kinds.iter().filter_map(|kind| counts.get(*kind)).sum::<u64>();
            let spans = [
                "X cpu_op",
                "X cuda_runtime",
                "X cuda_driver",
                "X user_annotation",
                "X Trace",
                "X python_function",
                "X overhead",
            ];
            assert_eq!(file.row_count::<Span>(), sum(&spans));
            assert_eq!(file.row_count::<Kernel>(), sum(&["X kernel"]));
            assert_eq!(file.row_count::<MemoryCopy>(), sum(&["X gpu_memcpy", "X gpu_memset"]));
            assert_eq!(file.row_count::<Synchronization>(), sum(&["X cuda_sync"]));
            assert_eq!(
                file.row_count::<DeviceSpan>(),
                sum(&["X gpu_user_annotation", "X cuda_profiler_range"])
            );
            assert_eq!(file.row_count::<DeviceAllocation>(), sum(&["i cpu_instant_event"]));
            assert_eq!(file.row_count::<FlowPoint>(), sum(&["s fwdbwd", "f fwdbwd"]));
            let (kernels, _) = file.rows::<Kernel>();
            let nccl =
                kernels.iter().filter(|kernel| file.name(kernel.name).starts_with("nccl")).count();
            let (collectives, _) = file.rows::<Collective>();
            let with_kernel = collectives.iter().filter(|row| row.correlation.is_some()).count();
            assert_eq!(with_kernel, nccl, "{}", source.display());
        }
        assert_eq!(run.problems(), []);
    }
}
