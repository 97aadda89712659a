//! Tests how the rank that wrote a log of `torch.compile` is found in runs without a description.

use std::path::Path;
use tprof_facts::compile::{RankCompile, RunLogs};
use tprof_trace::model::{MemoryRecording, NameId, Process};
use tprof_trace::{RunDir, TraceFile, TraceHeader, TraceWriter};

fn rank(dir: &Path, rank: u32, pids: &[u32]) {
    let header = TraceHeader { rank: Some(rank), ..TraceHeader::default() };
    let path = dir.join(format!("rank-{rank}.tprof"));
    let mut writer = TraceWriter::create(&path, &header).unwrap();
    for (pid, process) in pids.iter().zip(0..) {
        writer.process(&Process {
            process,
            pid: *pid,
            parent: 0,
            rank: Some(rank),
            command: NameId(0),
            exe: NameId(0),
            start_ns: 0,
            memory: MemoryRecording::Off,
        });
    }
    writer.finish().unwrap();
}

fn log(dir: &Path, name: &str, pid: u32) {
    let home = dir.join("compile/host-h");
    std::fs::create_dir_all(&home).unwrap();
    let line = format!("V1122 08:36:34.041000 {pid} a.py:1] {{\"str\": [\"a\", 0]}}\n");
    std::fs::write(home.join(format!("dedicated_log_torch_trace_{name}.log")), line).unwrap();
}

/// Returns the names of each rank's logs and the number of problems.
fn logs(dir: &Path) -> Vec<(Vec<String>, usize)> {
    let run = RunDir::open(dir).unwrap();
    let logs = RunLogs::of(&run);
    let of = |found: RankCompile| {
        let name = |name: &str| {
            name.trim_start_matches("dedicated_log_torch_trace_")
                .trim_end_matches(".log")
                .to_owned()
        };
        (found.logs.iter().map(|read| name(&read.name)).collect(), found.problems.len())
    };
    let files = run.files().iter();
    files.map(|file| of(logs.of_rank(file, &TraceFile::open(&file.path).unwrap()))).collect()
}

#[test]
fn a_log_belongs_to_the_only_rank_that_recorded_its_process() {
    let dir = tempfile::tempdir().unwrap();
    rank(dir.path(), 0, &[10, 11]);
    rank(dir.path(), 1, &[20, 21, 10]);
    log(dir.path(), "a", 11);
    log(dir.path(), "b", 21);
    log(dir.path(), "rank_1_c", 99);
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(logs(dir.path()), [(named(&["a"]), 0), (named(&["b", "rank_1_c"]), 0)]);
    // If two processes have the id, or none has it, the rank is a guess, which the problems
    // mention.
    log(dir.path(), "d", 10);
    log(dir.path(), "e", 99);
    assert_eq!(logs(dir.path()), [(named(&["a", "d", "e"]), 2), (named(&["b", "rank_1_c"]), 0)]);
}

#[test]
fn a_kernel_has_the_source_lines_of_all_graphs_that_contain_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dedicated_log_torch_trace_a.log");
    let event = |name: &str, frame: u32, payload: &str| {
        let payload: String = payload.lines().map(|line| format!("\t{line}\n")).collect();
        format!(
            "V1122 08:36:34.041000 7 a.py:1] {{\"{name}\": {{}}, \"frame_id\": {frame}, \
             \"frame_compile_id\": 0, \"has_payload\": \"0\"}}\n{payload}"
        )
    };
    let code = "# Topologically Sorted Source Nodes: [y], Original ATen: [aten.add]\n\
                triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '')\n\
                # Topologically Sorted Source Nodes: [y], Original ATen: [aten.add]\n\
                cpp_fused_add_1 = async_compile.cpp_pybinding([], '')\n";
    let mut text = String::new();
    for (frame, line) in [(0, 3), (1, 8)] {
        let graph = format!("# File: a.py:{line} in f, code: y = x + 1\ny = x + 1\n");
        text += &event("dynamo_output_graph", frame, &graph);
        text += &event("inductor_output_code", frame, code);
    }
    std::fs::write(&path, text).unwrap();
    let found = RankCompile::of_logs(&[path]);
    let sources: Vec<_> = found.kernel_sources().into_iter().collect();
    assert_eq!(sources, [("triton_poi_fused_add_0", vec!["a.py:3", "a.py:8"])]);
}
