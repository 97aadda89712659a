//! Tests of `--kineto`, with which tprof requests windows of PyTorch's own profiler through
//! Kineto's protocol. They use a stand-in that speaks the protocol, and PyTorch itself if it is
//! installed.

use crate::operators::build;
use std::path::{Path, PathBuf};
use tprof_tests::{Job, Refused, Scratch, Traced, assert_refused, skip, tprof, traced};
use tprof_trace::model::{Span, SpanKind};
use tprof_trace::run::RunInfo;
use tprof_trace::{RunDir, TraceFile};

const KINETO: &[&str] = &["--kineto", "--mem", "off"];
const WHAT: &str = "the window of PyTorch's profiler (--kineto)";

/// Builds the stand-in's client; `None` without a compiler.
fn client(scratch: &Scratch) -> Option<PathBuf> {
    if !build(&["-DPYTHON_WORDS=1", "-DNAME_BYTES=40"], scratch) {
        return None;
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/torch_stand_in/kineto.cpp");
    let flags = ["-O1", "-std=c++17", "-Wl,-rpath,$ORIGIN", source, "libtorch_cpu.so", "libc10.so"];
    let built = Job::new("g++").args(flags).args(["-o", "kineto"]).run_in(scratch.path());
    assert_eq!(built.code, Some(0), "{built:?}");
    Some(scratch.join("kineto"))
}

fn info(run: &Path) -> RunInfo {
    RunDir::open(run).unwrap().infos()[0].clone()
}

/// Returns the reasons why processes have no window.
fn reasons(traced: &Traced) -> Vec<String> {
    let info = info(&traced.run);
    let blind = info.completeness.blind.into_iter().filter(|blind| blind.what == WHAT);
    blind.map(|blind| blind.why).collect()
}

/// Returns the ranges and Python functions of a file, with their times.
fn spans(file: &Path) -> Vec<(SpanKind, String, u64)> {
    let file = TraceFile::open(file).unwrap();
    let rows = file.in_order::<Span>(0, u64::MAX).flatten();
    rows.map(|span| (span.kind, file.name(span.name).to_owned(), span.start_ns)).collect()
}

/// Returns the names of the entries of a directory.
fn entries(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_window_becomes_a_run_with_the_same_clock() {
    let scratch = Scratch::new();
    let Some(client) = client(&scratch) else { return };
    let job = Job::new(client).arg("window").env("RANK", "1").env("WORLD_SIZE", "2");
    let traced = traced(&job, &["--kineto=stacks,steps=5", "--mem", "off"], &scratch);
    let outcome = &traced.outcome;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let asked = "ACTIVITY_TYPES=cpu_op,user_annotation,python_function\n";
    assert!(outcome.stdout.starts_with(asked), "{outcome:?}");
    assert!(outcome.stdout.contains("\nACTIVITIES_ITERATIONS=5\n"), "{outcome:?}");
    assert!(outcome.stdout.contains("SHAPES=false\nPROFILE_WITH_STACK=true\n"), "{outcome:?}");
    assert_eq!(reasons(&traced), Vec::<String>::new());

    let home = traced.run.join("kineto");
    let names = entries(&home);
    assert_eq!((names.len(), names[0].as_str()), (2, "rank-1.tprof"), "{names:?}");
    let window = RunDir::open(&home).unwrap();
    assert!(window.problems().is_empty() && window.infos()[0].is_imported(), "{window:?}");
    let found = spans(&home.join("rank-1.tprof"));
    let names: Vec<_> = found.iter().map(|(kind, name, _)| (*kind, name.as_str())).collect();
    let step = "Optimizer.step#SGD.step";
    let function = (SpanKind::Python, "train.py(3): step");
    assert!(
        names.contains(&(SpanKind::Annotation, step)) && names.contains(&function),
        "{names:?}"
    );
    // The program read the clock immediately before the last update that tprof recorded.
    let own = spans(&traced.run.join("rank-1.tprof"));
    let last = own.iter().filter(|(_, name, _)| name == step).map(|(.., start)| *start).max();
    let (run, start) = (info(&traced.run), found[0].2);
    assert!(start >= run.start_ns && start <= last.unwrap() + 1_000_000, "{start} {last:?}");
    assert!(last.unwrap().saturating_sub(start) < 1_000_000_000, "{start} {last:?}");
}

#[test]
fn a_worker_of_a_process_has_no_window() {
    let scratch = Scratch::new();
    let Some(client) = client(&scratch) else { return };
    let traced = traced(&Job::new(client).arg("worker"), KINETO, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    assert_eq!(spans(&traced.run.join("kineto/rank-0.tprof")).len(), 2);
    assert_eq!(reasons(&traced), Vec::<String>::new());
}

#[test]
fn a_job_without_a_window_has_a_reason() {
    let scratch = Scratch::new();
    let Some(client) = client(&scratch) else { return };
    let asked_nothing =
        "its PyTorch asked no daemon: built without, or older than KINETO_IPC_SOCKET_DIR";
    let program = |name: &str| Job::new(scratch.join(name));
    for (job, why) in [
        (Job::new(&client).arg("dies"), "it ended before its window was over"),
        (Job::new(&client).arg("idle"), "it made no step"),
        (program("linked"), asked_nothing),
        (Job::new("true"), "no process ran operators of PyTorch"),
    ] {
        let scratch = Scratch::new();
        let traced = traced(&job, KINETO, &scratch);
        assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
        assert_eq!(reasons(&traced), [why], "{:?}", traced.outcome);
        assert!(!traced.run.join("kineto").exists());
    }
}

#[test]
fn a_process_that_reads_no_answer_delays_nothing() {
    let scratch = Scratch::new();
    let Some(client) = client(&scratch) else { return };
    let traced = traced(&Job::new(client).arg("deaf"), KINETO, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    assert_eq!(traced.outcome.stdout, "deaf\n");
}

#[test]
fn options_that_exclude_a_window_are_one_clear_error() {
    let scratch = Scratch::new();
    for (arguments, what) in [
        (&["--kineto=stack"][..], "a list of stacks, shapes, names and steps=N"),
        (&["--kineto=steps=0"], "from 1 to 1000"),
        (&["--kineto", "--operators", "off"], "`kineto` and `operators = off` exclude each other"),
        (&["--kineto", "--redact"], "`kineto` and `redact` exclude each other"),
    ] {
        let arguments = [&["run"], arguments, &["--", "true"]].concat();
        assert_refused(&tprof(arguments).run_in(scratch.path()), &[what]);
    }
    let other = tprof(["run", "--kineto", "--", "true"]).env("KINETO_IPC_SOCKET_DIR", "/run/d");
    assert_refused(&other.run_in(scratch.path()), &["leads to another daemon"]);
    assert_eq!(entries(scratch.path()), Vec::<String>::new());
}

#[test]
fn pytorch_records_whole_steps_and_trains_as_without_tprof() {
    let Some(python) = std::env::var_os("TPROF_TEST_TORCH") else {
        return skip(Refused::PyTorch);
    };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/windows.py");
    let job = Job::new(python).args(["-B", source]).limit(500);
    let native = job.run_in(Scratch::new().cwd()).expect_code(0);
    let scratch = Scratch::new();
    let traced = traced(&job, &["--kineto=stacks,shapes,steps=4", "--mem", "off"], &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    assert_eq!(traced.outcome.stdout, native.stdout);
    assert_eq!(reasons(&traced), Vec::<String>::new());
    let found = spans(&traced.run.join("kineto/rank-0.tprof"));
    let count = |kind, text: &str| {
        found.iter().filter(|(of, name, _)| *of == kind && name.contains(text)).count()
    };
    assert_eq!(count(SpanKind::Annotation, "Optimizer.step#SGD.step"), 4);
    assert_eq!(count(SpanKind::Operator, "aten::addmm"), 8);
    assert_eq!(count(SpanKind::Python, "nn.Module: Linear"), 8);
    assert!(count(SpanKind::Python, "windows.py(18): update") >= 4);
}

#[test]
fn each_rank_of_pytorch_has_a_window_and_trains_as_without_tprof() {
    let Some(python) = std::env::var_os("TPROF_TEST_TORCH") else {
        return skip(Refused::PyTorch);
    };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/windows_ddp.py");
    let launch = ["-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"];
    let job = Job::new(python).args(launch).arg(source).env("OMP_NUM_THREADS", "1").limit(500);
    let native = job.run_in(Scratch::new().cwd()).expect_code(0);
    let scratch = Scratch::new();
    let traced = traced(&job, &["--kineto", "--modules", "--mem", "off"], &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&traced.outcome.stdout), sorted(&native.stdout));
    assert_eq!(reasons(&traced), Vec::<String>::new());
    for rank in ["rank-0.tprof", "rank-1.tprof"] {
        let count = |file: &Path, text: &str| {
            spans(file).iter().filter(|(_, name, _)| name.contains(text)).count()
        };
        let window = traced.run.join("kineto").join(rank);
        assert_eq!(count(&window, "Optimizer.step#SGD.step"), 3, "{rank}");
        let own = traced.run.join(rank);
        let path = "nn.Module: DistributedDataParallel.module.0 (Linear)";
        assert_eq!(count(&own, path), 300, "{rank}");
    }
}
