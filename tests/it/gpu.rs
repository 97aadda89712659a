//! What devices did, as CUPTI's agent recorded it, against the log of what truly
//! ran on the stand-ins (a simulation).

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tprof_tests::{
    Job, Scratch, Traced, assert_unchanged, document, need_some, run_info, stand_ins, tprof,
    traced, train, what_ran,
};
use tprof_trace::model::*;
use tprof_trace::{TraceFile, TraceRow};

const GPU: &[&str] = &["--activities", "gpu"];

/// What CUPTI's clock and ours may be apart beyond what a join says of itself.
const JOIN_SLACK_NS: u64 = 100_000;

fn rows<R: TraceRow>(file: &TraceFile) -> Vec<R> {
    let (rows, problems) = file.rows();
    assert!(problems.is_empty(), "{problems:?}");
    rows
}

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

/// Trains under tprof with these words and variables.
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
    let file = TraceFile::open(&traced.run.join(format!("rank-{rank}.tprof"))).unwrap();
    let log = what_ran(log);
    assert!(!log.is_empty(), "{:?}", traced.outcome);
    let complaints = of_kind(&log, "complaint");
    assert!(complaints.is_empty(), "{complaints:?}");
    Ran { traced, file, log }
}

/// Names as people read them.
fn demangled(name: &str) -> &str {
    match name {
        "_Z4gemmPKfS0_Pfiii" => "gemm(float const*, float const*, float*, int, int, int)",
        "_Z4reluPfi" => "relu(float*, int)",
        "_Z9gemm_gradPKfS0_Pfiii" => "gemm_grad(float const*, float const*, float*, int, int, int)",
        "_Z12softmax_lossILi128EEvPKfPKiPfi" => {
            "softmax_loss<128>(float const*, int const*, float*, int)"
        }
        "_ZN9optimizer8sgd_stepIfEEvPT_PKS1_fi" => {
            "optimizer::sgd_step<float>(float*, float const*, float, int)"
        }
        other => other,
    }
}

type KernelFacts = (String, [u64; 4], [u32; 3], [u32; 3], [u64; 5], u64);

/// Everything that the log says of a kernel but when it began.
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

/// How far the times of this file may be off.
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

/// Each call once, told by CUPTI or by the hooks, never by both.
#[track_caller]
fn assert_calls(ran: &Ran) {
    let mut wanted = BTreeMap::new();
    for line in of_kind(&ran.log, "call") {
        *wanted.entry((line["name"].as_str().unwrap(), number(line, "thread"))).or_insert(0) += 1;
    }
    let spans = rows::<Span>(&ran.file);
    let mut got = BTreeMap::new();
    for span in spans.iter().filter(|span| span.kind == SpanKind::Runtime) {
        let thread = ran.file.threads().iter().find(|t| t.thread == span.thread).unwrap();
        let key = (ran.file.name(span.name), u64::from(thread.tid));
        *got.entry(key).or_insert(0) += 1;
    }
    // The first call brings the driver up, and with it CUPTI: the hooks alone tell of it,
    // where they know it.
    let first = of_kind(&ran.log, "call")[0]["name"].as_str().unwrap();
    let missing: Vec<_> = wanted.iter().filter(|(key, n)| got.get(*key) != Some(*n)).collect();
    assert!(
        missing.iter().all(|((name, _), n)| *name == first && **n == 1),
        "{missing:?} of {wanted:?} in {got:?}"
    );
    assert!(got.keys().all(|key| wanted.contains_key(key)), "{got:?}");
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

#[test]
fn all_that_ran_is_recorded_once_whichever_cuda() {
    for major in [12, 13] {
        let words = ["8", "overlap", "memory", "threads"];
        let (_scratch, ran) = need_some!(ran(major, &words, &[]));
        assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
        assert_eq!(of_kind(&ran.log, "kernel").len(), 2 * 8 * 6);
        assert_kernels(&ran);
        assert_copies(&ran);
        assert_waits(&ran);
        assert_calls(&ran);
        assert_eq!(losses(&ran, "GPU", ""), 0);
        let [device] = ran.file.devices() else { panic!("{:?}", ran.file.devices()) };
        assert_eq!(ran.file.name(device.name), "Simulated GPU");
        assert_eq!((device.processors, device.compute_major), (Some(132), Some(9)));
        assert_eq!(ran.file.streams().len(), of_kind(&ran.log, "stream").len());
        assert!(ran.file.property("cupti").unwrap().contains(&format!("libcupti.so.{major}")));
    }
}

#[test]
fn reports_in_nsights_columns_agree_with_the_log() {
    let (_scratch, ran) = need_some!(ran(13, &["8", "overlap"], &[]));
    let sum = |lines: &[&Value], key: &str| lines.iter().map(|line| number(line, key)).sum::<u64>();
    let copies: Vec<&Value> =
        ran.log.iter().filter(|l| l["what"] == "copy" || l["what"] == "fill").collect();
    let report = document("memcpy", &ran.traced.run);
    let total = |table: &str, key: &str| {
        let rows = report["tables"][table].as_array().unwrap();
        rows.iter().map(|row| number(row, key)).sum::<u64>()
    };
    let times = sum(&copies, "end") - sum(&copies, "start");
    assert_eq!(total("cuda_gpu_mem_time_sum", "total_ns"), times);
    assert_eq!(total("cuda_gpu_mem_time_sum", "count"), copies.len() as u64);
    assert_eq!(total("cuda_gpu_mem_size_sum", "total_bytes"), sum(&copies, "bytes"));
    let report = document("api", &ran.traced.run);
    let rows = report["tables"]["cuda_api_sum"].as_array().unwrap();
    let launches = rows.iter().find(|row| row["name"] == "cudaLaunchKernel").unwrap();
    assert_eq!((number(launches, "count"), &launches["interface"]), (8 * 6, &"runtime".into()));
    let report = document("kernels", &ran.traced.run);
    let rows = report["tables"]["kernels"].as_array().unwrap();
    let gemm = rows.iter().find(|row| row["name"].as_str().unwrap().starts_with("gemm(")).unwrap();
    let of_log = of_kind(&ran.log, "kernel").into_iter();
    let mut times: Vec<u64> = of_log
        .filter(|line| line["name"] == "_Z4gemmPKfS0_Pfiii")
        .map(|line| number(line, "end") - number(line, "start"))
        .collect();
    times.sort_unstable();
    assert_eq!(number(gemm, "count"), times.len() as u64);
    let middle = (times[times.len() / 2 - 1] + times[times.len() / 2]) as f64 / 2.0;
    assert_eq!(gemm["p50_ns"].as_f64(), Some(middle));
}

#[test]
fn a_kernel_knows_the_call_that_launched_it() {
    let (_scratch, ran) = need_some!(ran(13, &["6"], &[]));
    let spans = rows::<Span>(&ran.file);
    for kernel in rows::<Kernel>(&ran.file) {
        let launch = spans.iter().find(|span| span.correlation == kernel.correlation).unwrap();
        assert_eq!(ran.file.name(launch.name), "cudaLaunchKernel");
    }
}

#[test]
fn replays_of_a_graph_are_told_node_by_node() {
    let (_scratch, ran) = need_some!(ran(12, &["7", "graph"], &[]));
    assert_kernels(&ran);
    let of_graph = rows::<Kernel>(&ran.file).into_iter().filter(|k| k.graph.is_some());
    let mut nodes = BTreeMap::new();
    for kernel in of_graph {
        *nodes.entry(kernel.graph_node.unwrap()).or_insert(0) += 1;
    }
    assert_eq!(nodes.into_values().collect::<Vec<_>>(), [7; 5]);
}

#[test]
fn records_that_cupti_dropped_are_counted_and_not_invented() {
    let faulty = [("FAKE_CUPTI_FAULTS", "drop=5")];
    let (_scratch, ran) = need_some!(ran(12, &["10"], &faulty));
    let dropped = faults(&ran.log, "dropped");
    assert_eq!(dropped, 60 / 5);
    assert_eq!(rows::<Kernel>(&ran.file).len(), 60 - dropped);
    assert_eq!(losses(&ran, "GPU records", "no room"), dropped as u64);
}

#[test]
fn kernels_without_times_are_counted_and_not_invented() {
    let faulty = [("FAKE_CUPTI_FAULTS", "zero=7")];
    let (_scratch, ran) = need_some!(ran(13, &["10"], &faulty));
    let zeros = faults(&ran.log, "no times");
    assert_eq!(zeros, 60 / 7);
    assert_eq!(rows::<Kernel>(&ran.file).len(), 60 - zeros);
    assert_eq!(losses(&ran, "GPU records", "no times"), zeros as u64);
}

#[test]
fn records_of_unknown_kinds_are_counted_and_hide_nothing() {
    let faulty = [("FAKE_CUPTI_FAULTS", "unknown=10")];
    let (_scratch, ran) = need_some!(ran(13, &["10"], &faulty));
    assert_kernels(&ran);
    assert_calls(&ran);
    assert!(losses(&ran, "GPU records", "kinds") > 0);
}

#[test]
fn a_buffer_that_cannot_be_read_on_is_counted() {
    let faulty = [("FAKE_CUPTI_FAULTS", "broken=40")];
    let (_scratch, ran) = need_some!(ran(12, &["10"], &faulty));
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert!(losses(&ran, "bytes of GPU records", "could not read") > 0);
    let wanted = kernels_of_log(&ran.log);
    for (facts, _) in kernels_of_file(&ran.file) {
        assert!(wanted.iter().any(|(of_log, _)| *of_log == facts), "{facts:?} never ran");
    }
}

#[test]
fn buffers_that_come_late_and_out_of_order_change_nothing() {
    let faulty = [("FAKE_CUPTI_FAULTS", "late")];
    let (_scratch, ran) = need_some!(ran(12, &["20", "threads"], &faulty));
    assert_kernels(&ran);
    assert_copies(&ran);
    assert_waits(&ran);
    assert_calls(&ran);
}

#[test]
fn another_clock_of_cuptis_is_joined() {
    let clock = [("FAKE_CUPTI_OFFSET_NS", "-987654321987"), ("FAKE_CUPTI_DRIFT_PPM", "40")];
    let (_scratch, ran) = need_some!(ran(13, &["30"], &clock));
    let off = uncertainty(&ran.file);
    let mut wanted: Vec<u64> = kernels_of_log(&ran.log).iter().map(|(_, start)| *start).collect();
    let mut got: Vec<u64> = rows::<Kernel>(&ran.file).iter().map(|row| row.start_ns).collect();
    wanted.sort_unstable();
    got.sort_unstable();
    assert_eq!(wanted.len(), got.len());
    for (wanted, got) in wanted.iter().zip(&got) {
        assert!(wanted.abs_diff(*got) <= off, "{got}, not {wanted}, within {off}");
    }
}

#[test]
fn what_cupti_refuses_is_said_and_the_rest_is_recorded() {
    // CONCURRENT_KERNEL, with CUPTI_ERROR_INSUFFICIENT_PRIVILEGES.
    let faulty = [("FAKE_CUPTI_FAULTS", "refuse=cuptiActivityEnable/10:35")];
    let (_scratch, ran) = need_some!(ran(12, &["5"], &faulty));
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert!(rows::<Kernel>(&ran.file).is_empty());
    assert!(blind(&ran, "CUPTI refused it"));
    assert_copies(&ran);
}

#[test]
fn where_cupti_refuses_all_the_hooks_tell_the_calls() {
    let faulty = [("FAKE_CUPTI_FAULTS", "refuse=cuptiActivityRegisterCallbacks:39")];
    let (_scratch, ran) = need_some!(ran(12, &["5"], &faulty));
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert!(blind(&ran, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"));
    let spans = rows::<Span>(&ran.file);
    let launches = spans.iter().filter(|s| ran.file.name(s.name) == "cudaLaunchKernel").count();
    assert_eq!(launches, 30);
}

#[test]
fn a_newer_cupti_is_read_as_far_as_it_is_known_and_an_older_one_refused() {
    for (version, kernels) in [("999999", 12), ("17", 0)] {
        let (_scratch, ran) = need_some!(ran(13, &["2"], &[("FAKE_CUPTI_VERSION", version)]));
        assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
        assert_eq!(rows::<Kernel>(&ran.file).len(), kernels, "version {version}");
        assert_eq!(blind(&ran, "older than CUDA 12.0"), kernels == 0);
    }
}

#[test]
fn a_cupti_that_cannot_be_used_is_said_and_harms_nothing() {
    let home = need_some!(stand_ins());
    // Without CUPTI in the loader's path: TPROF_CUPTI alone counts.
    let scratch = Scratch::new();
    let bare = scratch.join("bare");
    std::fs::create_dir_all(&bare).unwrap();
    for library in ["libcuda.so.1", "libcudart.so.12", "libnccl.so.2"] {
        std::fs::copy(home.join("12").join(library), bare.join(library)).unwrap();
    }
    let text = scratch.join("text.so");
    std::fs::write(&text, "no library").unwrap();
    let other = home.join("12/libnccl.so.2");
    let right = home.join("12/libcupti.so.12");
    for (named, why) in [
        (Path::new("/no/such/file.so"), "does not load"),
        (text.as_path(), "does not load"),
        (other.as_path(), "is not CUPTI"),
        (Path::new(""), "not in the CUDA wheels"),
        (right.as_path(), ""),
    ] {
        let scratch = Scratch::new();
        let (job, log) = need_some!(train(12, &["3"], &scratch));
        let job = job.env("LD_LIBRARY_PATH", &bare).env("TPROF_CUPTI", named);
        let ran = read(traced(&job, GPU, &scratch), &log, 0);
        assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
        let kernels = rows::<Kernel>(&ran.file).len();
        assert_eq!(kernels, if why.is_empty() { 18 } else { 0 }, "{named:?}");
        assert!(why.is_empty() || blind(&ran, why), "{named:?}: {why}");
    }
}

#[test]
fn the_job_is_unchanged() {
    let scratch = Scratch::new();
    for words in [&["5"][..], &["5", "fork"], &["5", "exit"], &["5", "_exit"], &["5", "abort"]] {
        let (job, log) = need_some!(train(13, words, &scratch));
        assert_unchanged(&job, &[GPU, &[]], &scratch);
        let complaints = what_ran(&log).iter().filter(|l| l["what"] == "complaint").count();
        assert_eq!(complaints, 0, "{words:?}");
    }
}

#[test]
fn a_driver_without_a_device_harms_nothing() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(train(12, &["5"], &scratch));
    let job = job.env("FAKE_CUDA_DEVICES", "0");
    let run = assert_unchanged(&job, &[GPU, &[]], &scratch);
    assert!(run.outcome.stdout.contains("there is no device"), "{:?}", run.outcome);
    let ran = read(run, &log, 0);
    assert!(rows::<Kernel>(&ran.file).is_empty() && ran.file.devices().is_empty());
    assert_eq!(losses(&ran, "", ""), 0);
}

#[test]
fn a_device_that_is_lost_in_the_middle_leaves_what_came_before() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(train(13, &["60"], &scratch));
    let job = job.env("FAKE_CUDA_LOST_AFTER", "300");
    let run = traced(&job, GPU, &scratch);
    assert_eq!(run.outcome.code, Some(1), "{:?}", run.outcome);
    assert!(run.outcome.stderr.contains("failed with 719"), "{:?}", run.outcome);
    let ran = read(run, &log, 0);
    // What was done when the job last waited for it is all there; nothing is invented.
    let calls = of_kind(&ran.log, "call").into_iter();
    let waited = calls.filter(|l| l["name"] == "cudaStreamSynchronize" && l["result"] == 0);
    let done = waited.map(|line| number(line, "start")).max().unwrap();
    let got: Vec<KernelFacts> = kernels_of_file(&ran.file).into_iter().map(|row| row.0).collect();
    let kernels = of_kind(&ran.log, "kernel");
    for line in kernels.iter().filter(|line| number(line, "end") < done) {
        assert!(got.contains(&kernel_facts(line).0), "{line} is missing");
    }
    let wanted: Vec<KernelFacts> = kernels.iter().map(|line| kernel_facts(line).0).collect();
    assert!(!got.is_empty() && got.iter().all(|facts| wanted.contains(facts)), "{got:?}");
    assert_calls(&ran);
    let spans = rows::<Span>(&ran.file);
    let failed = spans.iter().filter(|span| span.status == Some(719)).count();
    assert_eq!(failed, of_kind(&ran.log, "call").iter().filter(|l| l["result"] == 719).count());
    assert!(failed > 0);
}

#[test]
fn a_job_that_ends_without_a_flush_has_lost_the_last_moment_at_most() {
    for word in ["_exit", "kill"] {
        let slow = [("FAKE_CUDA_BLOCK_NS", "40000")];
        let (_scratch, ran) = need_some!(ran(12, &["120", word], &slow));
        let wanted = kernels_of_log(&ran.log);
        let got = kernels_of_file(&ran.file);
        for (facts, _) in &got {
            assert!(wanted.iter().any(|(of_log, _)| of_log == facts), "{facts:?} never ran");
        }
        // Over a second of training, flushed ten times a second.
        assert!(got.len() * 2 > wanted.len(), "{} of {}", got.len(), wanted.len());
    }
}

#[test]
fn another_client_that_takes_the_records_over_is_named_with_its_times() {
    // Its kernels take long enough that what is missing is no mere moment.
    let slow = [("FAKE_CUDA_BLOCK_NS", "40000")];
    let (_scratch, ran) = need_some!(ran(12, &["120", "tool"], &slow));
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert!(ran.traced.outcome.stdout.contains("the tool saw kernels"));
    let info = run_info(&ran.traced.run, |info| info["finished"] == true);
    let list = info["completeness"]["blind"].as_array().unwrap();
    let gaps: Vec<&Value> = list
        .iter()
        .filter(|entry| entry["why"].as_str().unwrap().contains("took them over"))
        .collect();
    let [gap] = gaps.as_slice() else { panic!("{list:?}") };
    assert!(gap["what"].as_str().unwrap().starts_with("what the GPU did from "), "{gap}");
    // What came before is there, and nothing of what came after is invented.
    let kernels = rows::<Kernel>(&ran.file).len();
    assert!((1..120 * 6).contains(&kernels), "{kernels} kernels");
    let marks = ran.file.marks().iter().map(|mark| (ran.file.name(mark.name), mark.time_ns));
    let taken = marks.filter(|(name, _)| name.starts_with("another client of CUPTI"));
    let taken: Vec<u64> = taken.map(|(_, time_ns)| time_ns).collect();
    // It begins with the first launch that was not told of, to milliseconds.
    let [taken] = taken.as_slice() else { panic!("{taken:?}") };
    let spans = rows::<Span>(&ran.file);
    let told = |span: &&Span| ran.file.name(span.name) == "cudaLaunchKernel";
    let told: Vec<u64> = spans.iter().filter(told).map(|span| span.start_ns).collect();
    assert!(told.iter().all(|start_ns| *start_ns < taken + 5_000_000), "{taken}: {told:?}");
    let of_log = of_kind(&ran.log, "call").into_iter();
    let launched = of_log.filter(|line| line["name"] == "cudaLaunchKernel");
    let before = launched.filter(|line| number(line, "start") + 10_000_000 < *taken).count();
    let seen = told.iter().filter(|start_ns| *start_ns + 5_000_000 < *taken).count();
    assert!(seen >= before, "{seen} of {before}");
}

#[test]
fn raw_buffers_are_kept_as_cupti_gave_them() {
    let raw = Scratch::new();
    let path = raw.join("raw.cupti");
    let keep = [("TPROF_CUPTI_RECORD", path.to_str().unwrap())];
    let (_scratch, ran) = need_some!(ran(12, &["6"], &keep));
    assert_kernels(&ran);
    let bytes = std::fs::read(&path).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut buffers, mut texts, mut at) = (Vec::new(), BTreeMap::new(), 0);
    while at < bytes.len() {
        assert_eq!(&bytes[at..at + 8], b"TPROFRAW");
        let (kind, version, len) = (word(at + 8), word(at + 16), word(at + 20) as usize);
        assert_eq!(version, 28);
        let body = &bytes[at + 24..at + 24 + len];
        match kind {
            1 => buffers.push(body),
            2 => {
                let address = u64::from_ne_bytes(body[..8].try_into().unwrap());
                texts.insert(address, std::str::from_utf8(&body[8..]).unwrap());
            }
            other => panic!("a block of kind {other}"),
        }
        at += 24 + len;
    }
    // Each kernel of the log is in a buffer, laid out as CUPTI 12 does, and its name is there.
    for line in of_kind(&ran.log, "kernel") {
        let (start, end) = (number(line, "start"), number(line, "end"));
        let matches = |record: &[u8]| {
            let wide = |at: usize| u64::from_ne_bytes(record[at..at + 8].try_into().unwrap());
            let narrow = |at: usize| u32::from_ne_bytes(record[at..at + 4].try_into().unwrap());
            narrow(0) == 10
                && u64::from(narrow(92)) == number(line, "correlation")
                && wide(24).wrapping_sub(wide(16)) == end - start
                && texts.get(&wide(104)).is_some_and(|name| line["name"] == **name)
        };
        let found = buffers.iter().any(|buffer| {
            (0..buffer.len() / 8).any(|at| buffer.get(at * 8..at * 8 + 112).is_some_and(matches))
        });
        assert!(found, "{line}");
    }
}

#[test]
fn each_rank_has_its_own_device_and_its_collectives_kernels() {
    let scratch = Scratch::new();
    let (_, log) = need_some!(train(13, &[], &scratch));
    let home = need_some!(stand_ins());
    let both = "RANK=0 \"$1\" 6 nccl & first=$!; RANK=1 \"$1\" 6 nccl; wait $first";
    let job = Job::sh(both)
        .arg(home.join("train-13"))
        .env("WORLD_SIZE", "2")
        .env("MEETING", scratch.join("meeting"))
        .env("LD_LIBRARY_PATH", home.join("13"))
        .env("FAKE_CUDA_DEVICES", "2")
        .env("FAKE_CUDA_LOG", &log);
    let run = traced(&job, &["--activities", "gpu,comm"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    for rank in [0, 1] {
        let path = run.run.join(format!("rank-{rank}.tprof"));
        let file = TraceFile::open(&path).unwrap();
        let pid = file.processes().iter().find(|p| p.rank == Some(rank)).unwrap().pid;
        let own: PathBuf = log.join(format!("{pid}.jsonl"));
        let text = std::fs::read_to_string(own).unwrap();
        let log: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let got = kernels_of_file(&file);
        assert!(got.iter().all(|(facts, _)| facts.1[1] == u64::from(rank)), "rank {rank}");
        let names = |all: &[(KernelFacts, u64)]| {
            all.iter().filter(|(f, _)| f.0.starts_with("nccl")).count()
        };
        assert_eq!(names(&got), 1 + 6);
        let strip = |all: Vec<(KernelFacts, u64)>| {
            let rest = all.into_iter().filter(|(facts, _)| !facts.0.contains("nccl"));
            rest.collect::<Vec<_>>()
        };
        assert_same(strip(kernels_of_log(&log)), strip(got), uncertainty(&file));
    }
    // Calls know their kernels by way of the launches: a group of two is one operation.
    let comm = document("comm", &run.run);
    let rows = comm["tables"]["comm"].as_array().unwrap();
    let of = |operation: &str| {
        let row = rows.iter().find(|row| row["operation"] == operation).unwrap();
        ["calls", "bytes", "group_size"].map(|key| number(row, key))
    };
    assert_eq!(of("broadcast Float"), [2, 4096 * 4, 2]);
    assert_eq!(of("all_reduce Float"), [2 * 6, 4096 * 4 + 4, 2]);
}

#[test]
fn a_library_that_the_job_injects_itself_is_loaded_first() {
    let scratch = Scratch::new();
    let source = scratch.join("own.c");
    std::fs::write(
        &source,
        "#include <stdio.h>\nint InitializeInjection(void) { puts(\"own injection\"); fflush(stdout); return 1; }\n",
    )
    .unwrap();
    let own = scratch.join("own.so");
    let built = Job::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&own).arg(&source);
    assert_eq!(built.run_in(scratch.path()).code, Some(0));
    let (job, log) = need_some!(train(12, &["4"], &scratch));
    let job = job.env("CUDA_INJECTION64_PATH", &own);
    let ran = read(assert_unchanged(&job, &[GPU], &scratch), &log, 0);
    assert!(ran.traced.outcome.stdout.contains("own injection"));
    assert!(!rows::<Kernel>(&ran.file).is_empty());

    let scratch = Scratch::new();
    let (job, log) = need_some!(train(12, &["4"], &scratch));
    let job = job.env("CUDA_INJECTION64_PATH", "/no/such/library.so");
    let ran = read(assert_unchanged(&job, &[GPU], &scratch), &log, 0);
    assert!(blind(&ran, "CUDA_INJECTION64_PATH"));
    assert!(!rows::<Kernel>(&ran.file).is_empty());
}

#[test]
fn a_program_without_cuda_sees_nothing_of_the_agent() {
    let scratch = Scratch::new();
    let job = Job::sh("grep -c libtprof_cupti /proc/self/maps; echo done");
    let ran = traced(&job, GPU, &scratch);
    assert_eq!(ran.outcome.stdout, "0\ndone\n");
}

/// A check of `tprof doctor --json`, by name.
fn check<'d>(doctor: &'d Value, part: &str, name: &str) -> Option<&'d Value> {
    doctor[part].as_array()?.iter().find(|check| check["name"] == name)
}

#[test]
fn the_doctor_says_what_of_gpus_can_be_seen() {
    let home = need_some!(stand_ins());
    let scratch = Scratch::new();
    let doctor = |words: &[&Path], env: &[(&str, &Path)]| -> Value {
        let mut job = tprof(["doctor", "--json"]);
        if !words.is_empty() {
            job = job.arg("--").args(words);
        }
        for (name, value) in env {
            job = job.env(name, value);
        }
        serde_json::from_str(&job.run_in(scratch.cwd()).stdout).unwrap()
    };
    let stand_ins = home.join("12");
    let path = ("LD_LIBRARY_PATH", stand_ins.as_path());
    let found = doctor(&[], &[path]);
    let driver = check(&found, "machine", "gpu driver").unwrap();
    assert_eq!(driver["verdict"], "ok");
    assert!(driver["found"].as_str().unwrap().contains("for CUDA 13.5 and older"), "{driver}");
    let cupti = check(&found, "machine", "cupti").unwrap();
    assert!(cupti["found"].as_str().unwrap().contains("12/libcupti.so.12"), "{cupti}");
    assert_eq!(check(&found, "machine", "nvtx").unwrap()["verdict"], "ok");

    let tool = Path::new("/opt/tool/libtool.so");
    let found = doctor(
        &[],
        &[
            path,
            ("NVTX_INJECTION64_PATH", tool),
            ("CUDA_INJECTION64_PATH", tool),
            ("TPROF_CUPTI", tool),
        ],
    );
    for name in ["nvtx", "cuda tool", "cupti"] {
        let check = check(&found, "machine", name).unwrap();
        assert_eq!(check["verdict"], "part", "{check}");
        assert!(check["found"].as_str().unwrap().contains("/opt/tool/libtool.so"), "{check}");
    }

    let dynamic = doctor(&[&home.join("train-12")], &[path]);
    let cuda = check(&dynamic, "command", "cuda").unwrap();
    assert!(cuda["found"].as_str().unwrap().starts_with("libcudart.so.12"), "{cuda}");
    let source = scratch.join("linked.c");
    let text =
        "__attribute__((section(\".nv_fatbin\"))) int kernels[4];\nint main(void) { return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let linked = scratch.join("linked");
    let built = Job::new("gcc").arg("-o").arg(&linked).arg(&source).run_in(scratch.path());
    assert_eq!(built.code, Some(0), "{built:?}");
    let cuda = doctor(&[&linked], &[path]);
    let cuda = check(&cuda, "command", "cuda").unwrap();
    assert!(cuda["found"].as_str().unwrap().contains("linked in"), "{cuda}");
}
