//! Compares the device work that CUPTI's agent recorded with the log of what truly ran on the
//! stand-ins (a simulation).

mod beside;
mod by_hooks;
mod call_stacks;
mod check;
mod clients;
mod compiled;
mod doctor;
mod graphs;
mod losses;
mod memory;
mod places;
mod records;
mod run_kernel;
mod stalls;
mod subscribers;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tprof_tests::{
    Job, Scratch, Traced, assert_unchanged, comms, document, memory, need_some, rank_file, rows,
    run_info, stand_ins, tprof, traced, train, what_ran,
};
use tprof_trace::TraceFile;
use tprof_trace::calls::is_launch;
use tprof_trace::model::*;

/// Options that record each node of graphs, so that every kernel can be compared.
const GPU: &[&str] = &["--activities", "gpu", "--cuda-graphs", "node"];

/// Largest difference between CUPTI's clock and tprof's, beyond the uncertainty with which the
/// clocks were joined.
const JOIN_SLACK_NS: u64 = 100_000;

fn number(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap_or_else(|| panic!("no {key} in {line}"))
}

fn of_kind<'a>(log: &'a [Value], what: &str) -> Vec<&'a Value> {
    log.iter().filter(|line| line["what"] == what).collect()
}

fn three(line: &Value, key: &str) -> [u32; 3] {
    let at = |i: usize| line[key][i].as_u64().unwrap() as u32;
    [at(0), at(1), at(2)]
}

/// A run, and the log of what ran in it.
struct Ran {
    traced: Traced,
    file: TraceFile,
    log: Vec<Value>,
}

/// Runs the training program under tprof with these words and variables.
fn ran(major: u32, words: &[&str], env: &[(&str, &str)]) -> Result<(Scratch, Ran), String> {
    let scratch = Scratch::new();
    let (mut job, log) = train(major, words, &scratch)?;
    for (name, value) in env {
        job = job.env(name, value);
    }
    let traced = traced(&job, GPU, &scratch);
    let ran = read(traced, &log, 0);
    Ok((scratch, ran))
}

fn read(traced: Traced, log: &Path, rank: u32) -> Ran {
    let file = rank_file(&traced.run, rank);
    let log = what_ran(log);
    assert!(!log.is_empty(), "{:?}", traced.outcome);
    let complaints = of_kind(&log, "complaint");
    assert!(complaints.is_empty(), "{complaints:?}");
    Ran { traced, file, log }
}

/// Returns the demangled name.
fn demangled(name: &str) -> &str {
    match name {
        "_Z4gemmPKfS0_Pfiii" => "gemm(float const*, float const*, float*, int, int, int)",
        "_Z4reluPfi" => "relu(float*, int)",
        "_Z9gemm_gradPKfS0_Pfiii" => "gemm_grad(float const*, float const*, float*, int, int, int)",
        "_Z12softmax_lossILi128EEvPKfPKiPfi" => {
            "void softmax_loss<128>(float const*, int const*, float*, int)"
        }
        "_ZN9optimizer8sgd_stepIfEEvPT_PKS1_fi" => {
            "void optimizer::sgd_step<float>(float*, float const*, float, int)"
        }
        other => other,
    }
}

type KernelFacts = (String, [u64; 4], [u32; 3], [u32; 3], [u64; 5], u64);

/// Returns everything that the log has of a kernel, and when the kernel began.
fn kernel_facts(line: &Value) -> (KernelFacts, u64) {
    let n = |key: &str| number(line, key);
    let facts = (
        demangled(line["name"].as_str().unwrap()).to_owned(),
        [n("correlation"), n("device"), n("context"), n("stream")],
        three(line, "grid"),
        three(line, "block"),
        [n("registers"), n("static_shared"), n("dynamic_shared"), n("graph"), n("node")],
        n("end") - n("start"),
    );
    (facts, n("start"))
}

fn kernel_row(file: &TraceFile, k: &Kernel) -> (KernelFacts, u64) {
    let wide = |value: Option<u32>| u64::from(value.unwrap_or(0));
    let facts = (
        file.name(k.name).to_owned(),
        [k.correlation.unwrap(), k.device.into(), k.context.into(), k.stream],
        k.grid,
        k.block,
        [
            wide(k.registers),
            wide(k.shared_static_bytes),
            wide(k.shared_dynamic_bytes),
            wide(k.graph),
            k.graph_node.unwrap_or(0),
        ],
        k.duration_ns,
    );
    (facts, k.start_ns)
}

/// Returns how far the times of this file may be off.
fn uncertainty(file: &TraceFile) -> u64 {
    assert!(!file.clock_joins().is_empty());
    file.clock_joins().iter().map(|join| join.uncertainty_ns).max().unwrap() + JOIN_SLACK_NS
}

#[track_caller]
fn assert_same<F: Ord + std::fmt::Debug>(
    mut wanted: Vec<(F, u64)>,
    mut got: Vec<(F, u64)>,
    off_ns: u64,
) {
    wanted.sort();
    got.sort();
    let facts = |all: &[(F, u64)]| all.iter().map(|(f, _)| format!("{f:?}")).collect::<Vec<_>>();
    assert_eq!(facts(&got), facts(&wanted));
    for ((facts, wanted), (_, got)) in wanted.iter().zip(&got) {
        assert!(wanted.abs_diff(*got) <= off_ns, "{facts:?}: {got}, not {wanted}, within {off_ns}");
    }
}

fn kernels_of_log(log: &[Value]) -> Vec<(KernelFacts, u64)> {
    of_kind(log, "kernel").into_iter().map(kernel_facts).collect()
}

fn kernels_of_file(file: &TraceFile) -> Vec<(KernelFacts, u64)> {
    rows::<Kernel>(file).iter().map(|row| kernel_row(file, row)).collect()
}

#[track_caller]
fn assert_kernels(ran: &Ran) {
    assert_same(kernels_of_log(&ran.log), kernels_of_file(&ran.file), uncertainty(&ran.file));
}

#[track_caller]
fn assert_copies(ran: &Ran) {
    let kinds = |number: u64| match number {
        1 => CopyKind::HostToDevice,
        2 => CopyKind::DeviceToHost,
        8 => CopyKind::DeviceToDevice,
        9 => CopyKind::HostToHost,
        _ => CopyKind::Unknown,
    };
    let of_line = |line: &Value| {
        let n = |key: &str| number(line, key);
        let fill = line["what"] == "fill";
        let facts = (
            if fill { CopyKind::Memset } else { kinds(n("kind")) },
            [n("bytes"), n("correlation"), n("stream"), n("device"), n("graph"), n("node")],
            if fill { [0, n("memory")] } else { [n("from"), n("to")] },
            n("end") - n("start"),
        );
        (facts, n("start"))
    };
    let of_row = |row: &MemoryCopy| {
        let facts = (
            row.kind,
            [
                row.bytes.unwrap(),
                row.correlation.unwrap(),
                row.stream,
                row.device.into(),
                row.graph.unwrap_or(0).into(),
                row.graph_node.unwrap_or(0),
            ],
            [row.from as u64, row.to as u64],
            row.duration_ns,
        );
        (facts, row.start_ns)
    };
    let lines = ran.log.iter().filter(|l| l["what"] == "copy" || l["what"] == "fill");
    let rows = rows::<MemoryCopy>(&ran.file);
    let off = uncertainty(&ran.file);
    assert_same(lines.map(of_line).collect(), rows.iter().map(of_row).collect(), off);
}

#[track_caller]
fn assert_waits(ran: &Ran) {
    let of_line = |line: &Value| {
        let n = |key: &str| number(line, key);
        let facts = (n("kind"), n("correlation"), n("stream"), n("event"), n("end") - n("start"));
        (facts, n("start"))
    };
    let none = u64::from(u32::MAX);
    let of_row = |row: &Synchronization| {
        let facts = (
            row.kind as u64,
            row.correlation.unwrap(),
            row.stream.unwrap_or(none),
            row.event.unwrap_or(none),
            row.duration_ns,
        );
        (facts, row.start_ns)
    };
    let rows = rows::<Synchronization>(&ran.file);
    let lines = of_kind(&ran.log, "wait").into_iter();
    let off = uncertainty(&ran.file);
    assert_same(lines.map(of_line).collect(), rows.iter().map(of_row).collect(), off);
}

/// Calls that are not recorded, because no report uses them.
const MUTED: [&str; 4] =
    ["cudaGetLastError", "cudaPeekAtLastError", "cudaGetDevice", "cudaStreamIsCapturing"];

/// Checks that each call is recorded once, by CUPTI or by the hooks, never by both.
#[track_caller]
fn assert_calls(ran: &Ran) {
    let mut wanted = BTreeMap::new();
    let has_row = |line: &&&Value| !MUTED.contains(&line["name"].as_str().unwrap());
    for line in of_kind(&ran.log, "call").iter().filter(has_row) {
        *wanted.entry((line["name"].as_str().unwrap(), number(line, "thread"))).or_insert(0) += 1;
    }
    let spans = rows::<Span>(&ran.file);
    let mut got = BTreeMap::new();
    for span in spans.iter().filter(|span| span.kind == SpanKind::Runtime) {
        let thread = ran.file.threads().iter().find(|t| t.thread == span.thread).unwrap();
        let key = (ran.file.name(span.name), u64::from(thread.tid));
        *got.entry(key).or_insert(0) += 1;
    }
    // This includes each thread's first call, in which CUDA and CUPTI start.
    assert_eq!(got, wanted);
}

fn losses(ran: &Ran, what: &str, why: &str) -> u64 {
    let info = run_info(&ran.traced.run, |info| info["finished"] == true);
    let list = info["completeness"]["losses"].as_array().unwrap();
    let found = list.iter().filter(|loss| {
        loss["what"].as_str().unwrap().contains(what) && loss["why"].as_str().unwrap().contains(why)
    });
    found.map(|loss| loss["count"].as_u64().unwrap()).sum()
}

fn blind(ran: &Ran, why: &str) -> bool {
    let info = run_info(&ran.traced.run, |info| info["finished"] == true);
    let list = info["completeness"]["blind"].as_array().unwrap();
    list.iter().any(|entry| entry["why"].as_str().unwrap().contains(why))
}

fn faults(log: &[Value], fault: &str) -> usize {
    of_kind(log, "fault").iter().filter(|line| line["fault"] == fault).count()
}
