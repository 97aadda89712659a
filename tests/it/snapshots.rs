//! Tests of PyTorch's memory snapshots: reports of them, and exports that PyTorch's own viewer
//! reads.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tprof_tests::{Refused, Scratch, assert_refused, skip, tprof};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/import/tests/corpus").join(name)
}

fn report(kind: &str, input: &Path) -> Value {
    let outcome = tprof(["report".as_ref(), kind.as_ref(), input.as_os_str(), "--json".as_ref()])
        .run_in(std::env::temp_dir());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

#[test]
fn a_report_of_a_snapshot_has_its_pieces_stacks_and_events() {
    const MIB: u64 = 1 << 20;
    let report = report("device-memory", &corpus("snapshot-newer.pickle"));
    let tables = &report["tables"];
    let device = &tables["snapshot"][0];
    assert_eq!((&device["device"], &device["held_bytes"]), (&0.into(), &(110 * MIB).into()));
    assert_eq!(
        (&device["free_bytes"], &device["stranded_bytes"]),
        (&(50 * MIB).into(), &(50 * MIB).into())
    );
    assert_eq!(device["largest_free_bytes"], 40 * MIB);
    assert_eq!(tables["live_stacks"][0]["live_bytes"], 50 * MIB);
    let stack = tables["live_stacks"][0]["stack"].as_str().unwrap();
    assert!(stack.contains("step") && stack.contains("train.py:51"), "{stack}");
    let oom = &tables["errors"][0];
    assert_eq!((&oom["asked_bytes"], &oom["at_ns"]), (&(900 * MIB).into(), &7_000_000.into()));
    let pools = tables["pools"].as_array().unwrap();
    let framework = pools.iter().find(|row| row["allocator"] == "framework").unwrap();
    assert_eq!((&framework["exact"], &framework["peak_bytes"]), (&true.into(), &(60 * MIB).into()));
    assert_eq!(tables["allocator_settings"].as_array().map(Vec::len), Some(2));
}

#[test]
fn fragmentation_is_a_finding_and_an_empty_snapshot_is_not_zero() {
    let findings = |name: &str| report("findings", &corpus(name));
    let text = findings("snapshot-newer.pickle")["tables"]["findings"].to_string();
    assert!(text.contains("FragmentedMemory"), "{text}");
    let text = findings("snapshot-empty.pickle")["tables"]["findings"].to_string();
    assert!(!text.contains("FragmentedMemory"), "{text}");
    let empty = report("device-memory", &corpus("snapshot-empty.pickle"));
    let notes = empty["notes"].to_string();
    assert!(notes.contains("which is not zero usage"), "{notes}");
    assert_eq!(empty["tables"]["snapshot"].as_array().map(Vec::len), Some(0));
}

#[test]
fn events_without_times_get_no_times_from_their_order() {
    let report = report("device-memory", &corpus("snapshot-older.pickle"));
    assert_eq!(report["tables"]["pools"][0]["peak_at_ns"], Value::Null);
    assert_eq!(report["tables"]["errors"][0]["at_ns"], Value::Null);
    assert_eq!(report["tables"]["errors"][0]["entry"], 7);
    assert!(report["tables"].get("curve").is_none());
}

#[test]
fn damaged_and_foreign_pickles_are_refused_with_what_and_where() {
    let scratch = Scratch::new();
    let whole = std::fs::read(corpus("snapshot-newer.pickle")).unwrap();
    for (name, bytes, words) in [
        ("cut.pickle", &whole[..700], ["cut off", "at byte", "the whole file"]),
        (
            "code.pickle",
            b"\x80\x04cos\nsystem\n.",
            ["opcode GLOBAL", "at byte 2", "_dump_snapshot"],
        ),
    ] {
        let path = scratch.join(name);
        std::fs::write(&path, bytes).unwrap();
        let words_of = ["report".as_ref(), "device-memory".as_ref(), path.as_os_str()];
        assert_refused(&tprof(words_of).run_in(std::env::temp_dir()), &words);
    }
}

/// Exports a snapshot, and runs a Python program on the export and on its source.
fn read_back(name: &str, python: &Path, program: &str) -> String {
    let scratch = Scratch::new();
    let output = scratch.join("out.pickle");
    let (input, export) = (corpus(name), "torch-memory-snapshot");
    let words = ["export".as_ref(), input.as_os_str(), "--to".as_ref(), export.as_ref()];
    let words = words.into_iter().chain(["-o".as_ref(), output.as_os_str()]);
    tprof(words).run_in(std::env::temp_dir()).expect_code(0);
    let ran = Command::new(python).args(["-c", program]).arg(&output).arg(&input).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn python_reads_an_export_without_classes_and_finds_the_same() {
    // The keys that older files lack (`address` of blocks) are added.
    let program = r#"
import pickle, sys
class Values(pickle.Unpickler):
    def find_class(self, module, name):
        raise ValueError(module)
def load(path):
    with open(path, "rb") as file:
        return Values(file).load()
out, source = load(sys.argv[1]), load(sys.argv[2])
for segment, other in zip(out["segments"], source["segments"]):
    for block, before in zip(segment["blocks"], other["blocks"]):
        before.setdefault("address", block["address"])
assert out == source, (out, source)
print(len(out["segments"]))
"#;
    for name in ["snapshot-newer.pickle", "snapshot-older.pickle"] {
        assert_eq!(read_back(name, Path::new("python3"), program), "3\n");
    }
    assert_eq!(read_back("snapshot-empty.pickle", Path::new("python3"), program), "0\n");
}

#[test]
fn the_viewer_of_pytorch_reads_an_export() {
    let Some(python) = std::env::var_os("TPROF_TEST_TORCH") else {
        return skip(Refused::PyTorch);
    };
    let program = "
import pickle, sys
from torch.cuda import _memory_viz as viz
with open(sys.argv[1], 'rb') as file:
    data = pickle.load(file)
print(viz.segsum(data), viz.trace(data))
for page in (viz.trace_plot(data), viz.segment_plot(data)):
    assert 'MemoryViz.js' in page and len(page) > 1000
";
    let text = read_back("snapshot-newer.pickle", Path::new(&python), program);
    assert!(text.contains("total_reserved: 113.0MiB"), "{text}");
    assert!(text.contains("raise OutOfMemoryError # 900.0MiB requested, 7.0MiB free"), "{text}");
}

#[test]
fn a_snapshot_of_pytorch_without_a_gpu_is_empty() {
    let Some(python) = std::env::var_os("TPROF_TEST_TORCH") else {
        return skip(Refused::PyTorch);
    };
    let scratch = Scratch::new();
    let path = scratch.join("live.pickle");
    let program = "import sys, torch; torch.cuda.memory._dump_snapshot(sys.argv[1])";
    let ran = Command::new(python).args(["-c", program]).arg(&path).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let notes = report("device-memory", &path)["notes"].to_string();
    assert!(notes.contains("which is not zero usage"), "{notes}");
}
